# SPDX-License-Identifier: MIT
"""The counting, counted: what scripts/count-tests makes of programs that pass, fail, skip, crash and lie.
test_count.py COUNT_TESTS"""

import json
import pathlib
import subprocess
import sys
import tempfile
from functools import partial

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import tap  # noqa: E402

TWO = "[==========] Running 2 test(s).\n[ RUN      ] a\n[       OK ] a\n[ RUN      ] b\n"
SKIPPED_B = "[  SKIPPED ] b\n[==========] 2 test(s) run.\n[  PASSED  ] 1 test(s).\n"
SKIPPED_B += "[  SKIPPED ] 1 test(s), listed below:\n[  SKIPPED ] b\n"


def said(result, returncode, stdout):
    return {"name": "n", "result": result, "returncode": returncode, "stdout": stdout}


# (title, test records, last line expected)
CASES = [
    ("cmocka, all pass", [said("OK", 0, TWO + "[       OK ] b\n")], "2 passed, 0 failed, 0 skipped"),
    ("cmocka, one fails", [said("FAIL", 1, TWO)], "1 passed, 1 failed, 0 skipped"),
    ("cmocka, one skips", [said("OK", 0, TWO + SKIPPED_B)], "1 passed, 0 failed, 1 skipped"),
    ("cmocka, a crash", [said("FAIL", -11, TWO)], "1 passed, 1 failed, 0 skipped"),
    ("cmocka, 256 failures exit as 0", [said("OK", 0, TWO)], "1 passed, 1 failed, 0 skipped"),
    ("cmocka, 77 failures exit as a skip", [said("SKIP", 77, TWO)], "1 passed, 1 failed, 0 skipped"),
    (
        "cmocka, a sanitizer at the end",
        [said("FAIL", 1, TWO + "[       OK ] b\n")],
        "2 passed, 1 failed, 0 skipped",
    ),
    ("tap", [said("OK", 0, "1..2\nok 1 - a\nok 2 - b\n")], "2 passed, 0 failed, 0 skipped"),
    ("tap, one fails", [said("ERROR", 1, "1..2\nok 1\nnot ok 2\n")], "1 passed, 1 failed, 0 skipped"),
    ("tap, one skips", [said("OK", 0, "1..1\nok 1 - a # SKIP b\n")], "0 passed, 0 failed, 1 skipped"),
    ("tap, one never ran", [said("OK", 0, "1..3\nok 1\nok 2\n")], "2 passed, 1 failed, 0 skipped"),
    ("plain, passes", [said("OK", 0, "")], "1 passed, 0 failed, 0 skipped"),
    ("plain, too slow", [said("TIMEOUT", -9, "")], "0 passed, 1 failed, 0 skipped"),
    ("plain, skips", [said("SKIP", 77, "no redis-server")], "0 passed, 0 failed, 1 skipped"),
    ("two programs add up", [said("OK", 0, ""), said("FAIL", 1, TWO)], "2 passed, 1 failed, 0 skipped"),
    ("nothing ran", [], "0 passed, 1 failed, 0 skipped"),
]


def ends_with(tests, expected):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as log:
        log.writelines(json.dumps(test) + "\n" for test in tests)
        log.flush()
        command = [sys.executable, sys.argv[1], log.name]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    last = (run.stdout.splitlines() or [""])[-1]
    good = last == expected and (run.returncode != 0) == (" 0 failed" not in expected)
    assert good, f"expected {expected}, got {last}, exit code {run.returncode}: {run.stderr}"


sys.exit(tap.run((title, partial(ends_with, *case)) for title, *case in CASES))
