# SPDX-License-Identifier: MIT
"""The checker, checked: a good small tree passes every rule, and each fault put into it breaks
exactly the rule that is meant to find it.  test_layers.py LINT_LAYERS"""

import pathlib
import re
import subprocess
import sys
import tempfile
from functools import partial

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import tap  # noqa: E402

SPDX = "/* SPDX-License-Identifier: MIT */\n"
ESSAY = SPDX + "/*\n * What this is.\n * Where it stands.\n * Who may call.\n */\n"


def header(guard, body=""):
    return f"{SPDX}#ifndef {guard}\n#define {guard}\n{body}#endif\n"


GOOD = {
    "include/weir/weir.h": header("WEIR_WEIR_H", "#include <stdint.h>\n"),
    "src/base/num.h": header("WEIR_BASE_NUM_H"),
    "src/base/clock.c": ESSAY + '#include "base/num.h"\n#include <time.h>\n',
    "src/core/rule.h": header("WEIR_CORE_RULE_H", '#include "base/num.h"\n'),
    "src/core/rule.c": ESSAY
    + '#include "core/rule.h"\n#include "base/num.h"\n'
    + '/* time() and malloc() in words are fine */\nconst char *a = "free(x)";\n',
    "src/io/conn.c": ESSAY + '#include "core/rule.h"\n#include <hiredis.h>\n#include <uv.h>\n',
    "src/api/open.c": ESSAY + '#include "weir/weir.h"\n#include "core/rule.h"\n#include <uv.h>\n',
    "src/api/table.c": ESSAY + "#include <ck_hs.h>\n",
    "src/meson.build": "# SPDX-License-Identifier: MIT\n"
    + "x = ['base/clock.c', 'core/rule.c', 'io/conn.c', 'api/open.c', 'api/table.c']\n",
    "tests/meson.build": "# SPDX-License-Identifier: MIT\nx = ['rule']\n",
    "tests/unit/test_rule.c": SPDX + "/* core/rule. */\n",
    "lua/token_bucket.lua": "-- SPDX-License-Identifier: MIT\n",
}

# (rule, file, text added at the end, or the whole new text of a file by itself)
FAULTS = [
    ("includes_go_down", "src/base/clock.c", '#include "core/rule.h"\n'),
    ("includes_go_down", "src/core/rule.c", '#include "io/conn.h"\n'),
    ("includes_go_down", "src/core/rule.c", '#include "api/open.h"\n'),
    ("includes_go_down", "src/io/conn.c", '#include "api/open.h"\n'),
    ("includes_go_down", "src/io/conn.c", '#  include <weir/weir.h>\n'),
    ("includes_go_down", "src/api/open.c", '#include "open.h"\n'),
    ("includes_go_down", "src/misc/a.h", header("WEIR_MISC_A_H", '#include "base/num.h"\n')),
    ("outside_headers_stay_in_their_place", "src/core/rule.c", "#include <uv.h>\n"),
    ("outside_headers_stay_in_their_place", "src/base/num.h", "#include <pthread.h>\n"),
    ("outside_headers_stay_in_their_place", "src/core/rule.h", "#include <time.h>\n"),
    ("outside_headers_stay_in_their_place", "src/api/table.c", "#include <hiredis/hiredis.h>\n"),
    ("outside_headers_stay_in_their_place", "src/api/open.c", "#include <ck_epoch.h>\n"),
    ("outside_headers_stay_in_their_place", "src/api/open.c", "#include <hiredis/async.h>\n"),
    ("core_is_pure", "src/core/rule.c", "void *f(void) { return malloc(3); }\n"),
    ("core_is_pure", "src/core/rule.c", "long f(void) { return (long)time (0); }\n"),
    ("core_is_pure", "src/core/rule.h", "static inline int f(void) { return rand(); }\n"),
    ("the_library_does_not_print", "src/api/open.c", 'void f(void) { fprintf(stderr, "x"); }\n'),
    ("public_header_includes_little", "include/weir/weir.h", "#include <uv.h>\n"),
    ("no_source_includes_a_source", "tests/unit/test_rule.c", '#include "core/rule.c"\n'),
    ("files_say_their_licence", "lua/other.lua", "return 1\n"),
    ("files_say_their_licence", "scripts/build", "#!/bin/sh\necho\n"),
    ("sources_open_with_an_essay", "src/api/table.c", None),
    ("headers_are_guarded", "src/core/other.h", header("CORE_OTHER_H")),
    ("files_are_short", "src/core/rule.c", "\n" * 600),
    ("functions_are_short", "src/core/rule.c", "void f(void)\n{\n" + "    g();\n" * 70 + "}\n"),
    ("lines_are_short", "src/core/rule.c", "/* " + "x" * 100 + " */\n"),
    ("nothing_is_left_undone", "src/core/rule.c", "/* TODO */\n"),
    ("everything_is_built", "src/core/forgotten.c", ESSAY),
    ("everything_is_built", "tests/unit/test_forgotten.c", SPDX + "/* x */\n"),
]


def broken_rules(lint, files):
    with tempfile.TemporaryDirectory() as root:
        for name, text in files.items():
            path = pathlib.Path(root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        command = [sys.executable, lint, root]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    rules = re.findall(r"^not ok \d+ - (\w+)", run.stdout, re.M)
    if (run.returncode != 0) != bool(rules):
        rules.append(f"exit code {run.returncode}: {run.stderr}")
    return rules


def breaks(lint, files, expected):
    got = broken_rules(lint, files)
    assert got == expected, f"expected {expected}, got {got}"


def every_rule_is_tried(lint):
    known = set(re.findall(r"^    (\w+),$", pathlib.Path(lint).read_text(encoding="utf-8"), re.M))
    untried = known - {rule for rule, _, _ in FAULTS}
    assert not untried, sorted(untried)


def main():
    lint = sys.argv[1]
    tests = [
        ("every rule is tried", lambda: every_rule_is_tried(lint)),
        ("a good tree", lambda: breaks(lint, GOOD, [])),
    ]
    for rule, name, text in FAULTS:
        whole = SPDX + "/* Short. */\n" if text is None else GOOD.get(name, "") + text
        tests.append((f"{rule}: {name}", partial(breaks, lint, {**GOOD, name: whole}, [rule])))
    return tap.run(tests)


sys.exit(main())
