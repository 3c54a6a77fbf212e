# SPDX-License-Identifier: MIT
"""Runs the tests of a script and says so in TAP: sys.exit(tap.run(TESTS))"""


class Skip(Exception):
    """Raised by a test that cannot be run here, and why."""


def run(tests):
    """Runs each test, a function by its own name or a pair (title, function), and returns the exit
    status of the script.  A test fails by raising something."""
    tests = [test if isinstance(test, tuple) else (test.__name__, test) for test in tests]
    failed = False
    print(f"1..{len(tests)}", flush=True)
    for number, (title, test) in enumerate(tests, 1):
        try:
            test()
            print(f"ok {number} - {title}", flush=True)
        except Skip as reason:
            print(f"ok {number} - {title} # SKIP {reason}", flush=True)
        except Exception as error:  # one failed test is no reason not to run the others
            failed = True
            print(f"not ok {number} - {title}", flush=True)
            print(f"# {type(error).__name__}: {error}".rstrip().replace("\n", "\n# "), flush=True)
    return 1 if failed else 0
