# SPDX-License-Identifier: MIT
"""Each header compiles alone: the public one as every C and C++ that weir promises, each private one as
C11.  test_headers.py SOURCE_ROOT"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
from functools import partial

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import tap  # noqa: E402

PUBLIC = [
    ("c", "c11"),
    ("c", "c17"),
    ("c++", "c++11"),
    ("c++", "c++20"),
]
STRICT = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
PRIVATE = ["-Wall", "-Wextra", "-Werror", "-std=c11", "-D_GNU_SOURCE", "-x", "c"]
NEEDED_BY_PRIVATE = ["libuv", "hiredis"]  # what may lie outside the compiler's own folders
COMPILERS = {"gcc": ["gcc", "g++"], "clang": ["clang", "clang++"]}


def compiles_alone(command, header):
    """When it is all there is of a source, twice."""
    if shutil.which(command[0]) is None:
        raise tap.Skip(f"{command[0]} is missing")
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "alone.c")
        source.write_text(f'#include "{header}"\n#include "{header}"\n', encoding="ascii")
        run = subprocess.run(
            [*command, "-fsyntax-only", str(source)], capture_output=True, text=True, check=False
        )
    assert run.returncode == 0, run.stderr


def public_cases(root):
    for family, (c_compiler, cxx_compiler) in COMPILERS.items():
        for language, standard in PUBLIC:
            compiler = c_compiler if language == "c" else cxx_compiler
            title = f"weir/weir.h as {standard} by {family}"
            command = [compiler, "-x", language, f"-std={standard}", *STRICT, f"-I{root}/include"]
            yield title, command, "weir/weir.h"


def private_cases(root):
    flags = subprocess.run(
        ["pkg-config", "--cflags", *NEEDED_BY_PRIVATE], capture_output=True, text=True, check=True
    ).stdout.split()
    for header in sorted((root / "src").rglob("*.h")):
        name = header.relative_to(root / "src").as_posix()
        command = ["gcc", *PRIVATE, f"-I{root}/src", f"-I{root}/include", *flags]
        yield f"{name} by gcc", command, name


root = pathlib.Path(sys.argv[1])
cases = [*public_cases(root), *private_cases(root)]
sys.exit(tap.run((title, partial(compiles_alone, *case)) for title, *case in cases))
