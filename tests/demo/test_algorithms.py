# SPDX-License-Identifier: MIT
"""Checks what docs/algorithms.md is made of: test_algorithms.py ALGORITHMS

What is worked out (courses, worst cases) against the promise of each algorithm; of what is
measured, that it is there.
"""

import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import tap  # noqa: E402

ALGORITHMS = sys.argv[1]
PATIENCE_S = 120
NAMES = [
    "token-bucket", "leaky-meter", "leaky-queue", "fixed-window", "sliding-log", "sliding-counter",
]  # fmt: skip
SLOTS_A_PERIOD, TOKENS = 20, 100


def run(*words):
    return subprocess.run(
        [ALGORITHMS, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def objects(word):
    done = run(word)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def course(name):
    """(offered, admitted) of each slot."""
    done = run("course", name)
    assert done.returncode == 0, done.stderr
    return [tuple(map(int, line.split()[1:])) for line in done.stdout.splitlines()]


def most(admitted, slots):
    return max(sum(admitted[i : i + slots]) for i in range(len(admitted) - slots + 1))


def courses_keep_the_promises():
    offered = None
    for name in NAMES:
        slots = course(name)
        assert offered in (None, [o for o, _ in slots]), f"{name}: another load"
        offered = [o for o, _ in slots]
        admitted = [a for _, a in slots]
        assert 0 < sum(admitted) < sum(offered), (name, sum(admitted))
        for length in (1, 5, 20, 40):
            refill = TOKENS * length // SLOTS_A_PERIOD
            bound = {
                "leaky-queue": refill + 1,
                "fixed-window": TOKENS * (2 + length // SLOTS_A_PERIOD),
                "sliding-log": TOKENS * -(-length // SLOTS_A_PERIOD),
            }.get(name, TOKENS + refill)
            assert most(admitted, length) <= bound, (name, length, most(admitted, length), bound)
        if name in ("fixed-window", "sliding-counter"):
            periods = range(0, len(admitted), SLOTS_A_PERIOD)
            fullest = max(sum(admitted[i : i + SLOTS_A_PERIOD]) for i in periods)
            assert TOKENS - 1 <= fullest <= TOKENS, (name, fullest)  # a counter rounds up


def courses_differ_where_they_should():
    admitted = {name: [a for _, a in course(name)] for name in NAMES}
    assert admitted["token-bucket"] == admitted["leaky-meter"]
    across = slice(36, 44)  # the burst across an edge
    assert sum(admitted["fixed-window"][across]) == 2 * TOKENS
    assert sum(admitted["sliding-log"][across]) == TOKENS
    assert TOKENS < sum(admitted["sliding-counter"][across]) < 1.5 * TOKENS
    assert max(admitted["leaky-queue"]) == TOKENS // SLOTS_A_PERIOD


def worst_cases_reach_the_bounds():
    """In units of the capacity: what is proved, and that it comes within a percent of it."""
    worst = {one["name"]: one for one in objects("worst")}
    assert list(worst) == NAMES
    bounds = {  # in a period, in a hundredth of one, and what leases add
        "token-bucket": (2, 1.01, 0.1, 0.1),
        "leaky-meter": (2, 1.01, 0.1, 0.1),
        "leaky-queue": (1.001, 0.011, 0, 0),
        "fixed-window": (2, 2, 0, 0),
        "sliding-log": (1, 1, 0.1, 0.1),
        "sliding-counter": (2, 1.01, 0, 0),
    }
    for name, (period, short, period_more, short_more) in bounds.items():
        one, unit = worst[name], worst[name]["capacity"]
        assert period - 0.01 <= one["period"] / unit <= period, one
        assert short - 0.01 <= one["short"] / unit <= short, one
        assert one["period"] <= one["period_leased"] <= (period + period_more) * unit, one
        assert one["short"] <= one["short_leased"] <= (short + short_more) * unit, one
    for name in ("token-bucket", "sliding-log"):
        assert worst[name]["period_leased"] == worst[name]["period"] + worst[name]["budget"], name


def memory_is_counted():
    sizes = objects("memory")
    assert [one["name"] for one in sizes] == NAMES
    for one in sizes:
        for size in (one["bytes"], one["bytes_alone"]):
            # A sanitizer has a heap of its own, of which the C library says nothing.
            assert size == 0 or 500 < size < 5000, one


def wrong_words_are_refused():
    for words in ([], ["best"], ["course"], ["course", "best"], ["worst", "of", "all"]):
        done = run(*words)
        assert done.returncode == 2 and "sliding-log" in done.stderr, (words, done)


TESTS = [
    courses_keep_the_promises,
    courses_differ_where_they_should,
    worst_cases_reach_the_bounds,
    memory_is_counted,
    wrong_words_are_refused,
]

sys.exit(tap.run(TESTS))
