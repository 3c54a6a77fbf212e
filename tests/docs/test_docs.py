# SPDX-License-Identifier: MIT
"""Does what README.md and docs/*.md say: test_docs.py SOURCE_ROOT

In a copy of the tree, in the order of the text:

    ```sh    is run, each line a test.  Two are shortened, see SHORTER; what installs does so below a
             temporary folder.
    ```c     is compiled: a whole file where it includes something, else the inside of a function.

and further: the README's program is the file it says it is, its table has the lines that the demo
prints, what it shows of `weir check` is what that prints, and no link leads nowhere.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import tap  # noqa: E402

ROOT = pathlib.Path(sys.argv[1])
PATIENCE_S = 280

# scripts/test runs this very test, and its counts are not this test's.
SHORTER = {
    "scripts/demo": "scripts/demo --seconds 1",
    "scripts/test": "scripts/test lint",
}
# What they judge is not judged here: a second of demo on a busy machine, the tests of other parts.
MAY_END_WITH = {"scripts/demo": (0, 1, 3), "scripts/test": (0, 1)}
LAST_LINE = {
    "scripts/demo": r"The bound was kept in every interval\..*",
    "scripts/test": r"\d+ passed, \d+ failed, \d+ skipped",
}

# What statements without an include may use.
FRAGMENT = """
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>
void fragment(struct weir *weir, struct weir_limit *limit, struct weir_bucket *bucket, void *arg);
void on_answer(void *arg, const struct weir_result *result);
void fragment(struct weir *weir, struct weir_limit *limit, struct weir_bucket *bucket, void *arg)
{
    struct weir_result result;
    struct weir_error error;
    (void)weir, (void)limit, (void)bucket, (void)arg, (void)result, (void)error;
%s
}
"""

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(document):
    """(line number, language, text) of each fenced block."""
    language, start, lines = None, 0, []
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```") and language is None:
            language, start, lines = line[3:].strip(), number, []
        elif line.startswith("```"):
            yield start, language, "\n".join(lines) + "\n"
            language = None
        elif language is not None:
            lines.append(line)
    assert language is None, f"{document.name}:{start}: a block without an end"


def place(document, line):
    return f"{document.relative_to(ROOT)}:{line}"


class Copy:
    """The tree without what was built, and where things get installed."""

    def __init__(self, folder):
        self.root = folder / "weir"
        self.output = {}
        skip = shutil.ignore_patterns(".git", "build", "__pycache__")
        shutil.copytree(ROOT, self.root, ignore=skip, symlinks=True)
        target = folder / "installed"
        self.env = {
            **os.environ,
            "DESTDIR": str(target),
            "PKG_CONFIG_SYSROOT_DIR": str(target),
            "PKG_CONFIG_PATH": ":".join(
                f"{target}/usr/local/{lib}/pkgconfig"
                for lib in ("lib", f"lib/{os.uname().machine}-linux-gnu", "lib64")
            ),
        }
        # A compiler of a sanitized or cross build is not what a reader has.
        for name in ("CC", "CFLAGS", "LDFLAGS", "MESON_TESTTHREADS"):
            self.env.pop(name, None)

    def run(self, line):
        word = line.split()[0]
        command = SHORTER.get(line, line)
        done = subprocess.run(
            ["bash", "-ec", command],
            cwd=self.root, env=self.env, timeout=PATIENCE_S, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.output[line] = done.stdout
        expected = MAY_END_WITH.get(word, (0,))
        assert done.returncode in expected, f"exit status {done.returncode}\n{done.stdout[-3000:]}"
        last = ([""] + done.stdout.splitlines())[-1]
        assert re.fullmatch(LAST_LINE.get(word, ".*"), last), done.stdout[-3000:]

    def compile(self, text):
        source = text if "#include" in text else FRAGMENT % text
        with tempfile.NamedTemporaryFile("w", suffix=".c") as file:
            file.write(source)
            file.flush()
            command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
            done = subprocess.run(
                [*command, "-I", str(ROOT / "include"), file.name],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            )  # fmt: skip
        assert done.returncode == 0, done.stdout


def command_tests(copy):
    for document in DOCUMENTS:
        for start, language, text in blocks(document):
            if language == "sh":
                for number, line in enumerate(text.splitlines(), start + 1):
                    command = re.sub(r"\s+#.*", "", line).strip()
                    if command and not command.startswith("#"):
                        title = f"{place(document, number)}: {command}"
                        yield title, lambda command=command: copy.run(command)


def code_tests(copy):
    for document in DOCUMENTS:
        for start, language, text in blocks(document):
            if language == "c":
                yield f"{place(document, start)}: compiles", lambda text=text: copy.compile(text)


def no_command_hides():
    """What looks like a command stands in a block that is run."""
    for document in DOCUMENTS:
        for start, language, text in blocks(document):
            if language not in ("sh", "c"):
                for line in text.splitlines():
                    looks = re.match(r"\s*(\$ |scripts/|meson |ninja |cc |gcc |build/)", line)
                    assert not looks, f"{place(document, start)}: is not run: {line}"


def the_program_is_the_file():
    programs = [text for _, language, text in blocks(ROOT / "README.md") if language == "c"]
    assert programs, "README.md has no program"
    assert programs[0] == (ROOT / "examples/minimal.c").read_text(encoding="utf-8")


def named_tests_exist():
    """A row of docs/known-faults.md names its tests in its last column."""
    text = "\n".join(f.read_text(encoding="utf-8") for f in (ROOT / "tests").rglob("*.c"))
    faults = (ROOT / "docs/known-faults.md").read_text(encoding="utf-8")
    rows = [r for r in faults.split("## Not reached yet")[0].splitlines() if r.startswith("| B")]
    assert len(rows) > 30, f"{len(rows)} rows"
    for row in rows:
        names = re.findall(r"`(\w+)`", row.split("|")[-2])
        assert names, f"no test: {row}"
        for name in names:
            defined = re.search(rf"\bvoid {name}\(void \*\*state\)", text)
            assert defined, f"no such test: {name}"


def links_lead_somewhere():
    missing = []
    for document in DOCUMENTS:
        text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.S)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if "://" not in target and not (document.parent / target).exists():
                missing.append(f"{document.relative_to(ROOT)}: {target}")
    assert not missing, missing


def row_names(text):
    """The names of the rows of the demo's table: what stands before the first number or dash."""
    rows = re.findall(r"^  (\S.*?)  +-?\d[\d.]*( |$)", text, re.M)
    return {name for name, _ in rows}


def the_table_is_what_the_demo_prints(copy):
    tables = [t for _, _, t in blocks(ROOT / "README.md") if "decisions per store call" in t]
    assert len(tables) == 1, "README.md has no table of the demo, or two"
    shown, printed = row_names(tables[0]), row_names(copy.output.get("scripts/demo", ""))
    assert len(shown) > 8 and shown == printed, f"shown {shown - printed}, new {printed - shown}"


def the_check_is_what_the_tool_prints(copy):
    lines = [line for line in copy.output if line.startswith("build/tools/weir check ")]
    assert lines, "README.md does not show the tool"
    shown = [text for _, language, text in blocks(ROOT / "README.md") if language == "text"]
    for line in lines:
        assert copy.output[line] in shown, f"{line} prints\n{copy.output[line]}"


def main():
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(pathlib.Path(folder))
        tests = [
            *command_tests(copy),
            *code_tests(copy),
            ("no command hides in a block that is not run", no_command_hides),
            ("the README's program is examples/minimal.c", the_program_is_the_file),
            ("links lead somewhere", links_lead_somewhere),
            ("the tests that close a known fault exist", named_tests_exist),
            (
                "the README's table has the lines of the demo's",
                lambda: the_table_is_what_the_demo_prints(copy),
            ),
            (
                "what the README shows of weir check is what it prints",
                lambda: the_check_is_what_the_tool_prints(copy),
            ),
        ]
        return tap.run(tests)


sys.exit(main())
