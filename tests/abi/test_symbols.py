# SPDX-License-Identifier: MIT
"""The shared library exports the functions that weir/weir.h declares, no more and no fewer, and the
version map lists the same.  test_symbols.py LIBRARY HEADER MAP"""

import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import tap  # noqa: E402


def declared(header):
    text = pathlib.Path(header).read_text(encoding="utf-8")
    return set(re.findall(r"^WEIR_API\b[^;(]*?\b(weir_\w+)\(", text, re.M))


def listed(version_map):
    text = pathlib.Path(version_map).read_text(encoding="utf-8")
    return set(re.findall(r"^\s+(\w+);", text, re.M))


def exported(library):
    run = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    )
    symbols = [line.split()[1:] for line in run.stdout.splitlines()]
    # The node of the version map is itself an absolute symbol, kind A.
    return {name.split("@")[0] for kind, name in symbols if kind != "A"}


def soname(library):
    run = subprocess.run(["objdump", "-p", library], capture_output=True, text=True, check=True)
    return re.search(r"SONAME\s+(\S+)", run.stdout)[1]


def are_the_same(one, other):
    assert one == other, f"only on one side: {' '.join(sorted(one ^ other))}"


def there_are(functions):
    assert functions


def main():
    library, header, version_map = sys.argv[1:]
    functions = declared(header)
    tests = [
        ("the header declares functions", lambda: there_are(functions)),
        (
            "exported and declared are the same",
            lambda: are_the_same(exported(library), functions),
        ),
        (
            "listed in the map and declared are the same",
            lambda: are_the_same(listed(version_map), functions),
        ),
        ("the soname is libweir.so.0", lambda: are_the_same({soname(library)}, {"libweir.so.0"})),
    ]
    return tap.run(tests)


sys.exit(main())
