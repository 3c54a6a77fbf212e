# SPDX-License-Identifier: MIT
"""What `weir check` says, in numbers and in words: test_check.py WEIR

The numbers are worked out here again, from the words of docs/protocol.md.
"""

import json
import math
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import tap  # noqa: E402

WEIR = sys.argv[1]
KEYS = {
    "text", "algorithm", "rate_tokens", "rate_period_us", "capacity", "budget",
    "worst_case_tokens_per_period", "tick_us", "bytes_per_key", "ttl_ms",
    "calls_per_second_per_process", "horizon_ms", "window_ms",
}  # fmt: skip
SECOND = 10**6
MONTH = 31 * 86400 * SECOND


def run(*arguments):
    return subprocess.run(
        [WEIR, *arguments], capture_output=True, text=True, timeout=10, check=False
    )


def report(text):
    done = run("check", text, "--json")
    assert done.returncode == 0 and done.stderr == "", done
    assert done.stdout.count("\n") == 1, done.stdout
    facts = json.loads(done.stdout)
    assert set(facts) == KEYS, set(facts) ^ KEYS
    return facts


def has(limit, /, **expected):
    facts = report(limit)
    for name, value in expected.items():
        assert facts[name] == value, (limit, name, facts[name], value)


def the_first_example():
    has(
        "10/min  burst=20",
        text="10/min burst=20",
        algorithm="token-bucket",
        rate_tokens=10,
        rate_period_us=60 * SECOND,
        capacity=20,
        budget=1,
        worst_case_tokens_per_period=20 + 10 + 1,
        tick_us=1,
        ttl_ms=120 * 1000 + 1000 + 1,  # filling, the longest wait, and one
        window_ms=400,
    )


def worst_cases():
    for text, worst in {
        "100/s burst=500 budget=0": 500 + 100,
        "100/s burst=500 budget=10%": 500 + 100 + 50,
        "100/s leaky burst=7": 7 + 100 + 1,
        "100/s leaky queue=50 budget=3": 100 + 1 + 1,
        "100/s leaky queue=50 budget=0": 100 + 1,
        "5 per 10s fixed-window": 2 * 5,
        "5/month fixed-window": 3 * 5,
        "100/min sliding-log budget=7": 100 + 7,
        "100/min sliding-counter budget=50": 2 * 100 - 1,
    }.items():
        has(text, worst_case_tokens_per_period=worst)


def periods_and_ticks():
    has("5/month fixed-window", rate_period_us=MONTH, capacity=5, tick_us=1)
    has("0.1/s", text="1 per 10s", rate_tokens=1, rate_period_us=10 * SECOND, capacity=1)
    has("1000003/day burst=1000000000", tick_us=SECOND)
    has("1/day burst=104250", tick_us=1000)


def keys_of_redis():
    """Names, level, stamp, rule, account, and what an algorithm has besides."""
    fixed = 5 + 16 + 59
    for text, size in {
        "10/min burst=20 budget=0": fixed + len(str(20 * 6000000)),
        "10/min burst=20": fixed + len(str(20 * 6000000)) + 53,
        "100/s fixed-window budget=0": fixed + 3,
        "100/s sliding-counter budget=0": fixed + 3 + 3,
        "100/s sliding-log budget=0": fixed + 3 + 12 * 100,
        "5000/s sliding-log budget=0": fixed + 4 + 12 * 257,
    }.items():
        has(text, bytes_per_key=size)


def times_to_live():
    for text, ttl_ms in {
        "10/s burst=10 wait=0s budget=0": 1000 + 1,
        "10/s burst=10 wait=5s budget=0": 6000 + 1,
        "10/s burst=10 wait=0s window=60s": 2 * 60000 + 1,
        "10/s burst=10 wait=0s budget=0 initial=0": 1000 + 10000 + 1,
        "1/s burst=100 wait=0s budget=0 initial=learn": 100000 + 100000 + 1,
        "10/s leaky queue=30": 3000 + 1,
        "10/min fixed-window": 60000 + 1,
        "10/month fixed-window": MONTH // 1000 + 1,
        "10/min sliding-log": 60000 + 1,
        "2000/min sliding-log": math.ceil((60 * SECOND + math.ceil(60 * SECOND / 256)) / 1000) + 1,
        "10/min sliding-counter": 120000 + 1,
    }.items():
        has(text, ttl_ms=ttl_ms)


def store_calls():
    # h = E / 2r, between two round trips of a millisecond and 50 ms; then one call an h
    has("1000/s budget=50", horizon_ms=25, calls_per_second_per_process=40)
    has("1000/s budget=100%", horizon_ms=50, calls_per_second_per_process=20)
    has("1000/s budget=4", horizon_ms=2, calls_per_second_per_process=500)
    # every decision is a call where nothing is leased, or could be
    has("1000/s budget=0", calls_per_second_per_process=1000)
    has("1000/s budget=2", calls_per_second_per_process=1000)
    has("2/s", calls_per_second_per_process=2)


def words_say_the_same():
    for text, lines in {
        "10/min burst=20": [
            "10/min burst=20",
            "algorithm     token-bucket: tokens accrue at the rate, up to the burst",
            "rate          10 each min: 0.166667 a second, in ticks of 1 us, exactly",
            "burst         20",
            "worst case    31 in any 1 min: burst 20, rate 10, budget 1",
            "budget        1: leased and not yet spent, over all processes",
        ],
        "100/s leaky queue=50": [
            "queue         50",
            "worst case    102 in any 1 s: rate 100, first slot 1, a leased one used late 1",
        ],
        "100/month fixed-window": [
            "rate          100 each month of UTC",
            "worst case    300 in any 31 days: the end of January, February, the begin of March",
            "              100 in each window, as it is aligned",
        ],
        "1 per 12345us": [
            "rate          1 each 12.345 ms: 81.0045 a second, in ticks of 1 us, exactly",
        ],
        "1000/s budget=0": ["store calls   one a decision: nothing is leased, everything is exact"],
    }.items():
        done = run("check", text)
        assert done.returncode == 0 and done.stderr == "", done
        for line in lines:
            assert line in done.stdout.split("\n"), (line, done.stdout)


def a_caret_stands_under_the_fault():
    for text, message, caret in [
        ("10 x/s", "character 4: 'x': expected '/' or 'per'", 3),
        ("10/s brust=5", "character 6: 'brust=5': expected token-bucket", 5),
        ("10/s burst=", "character 12: the end: expected a whole number", 11),
        ("", "character 1: the end: expected a number", 0),
        ("10/s burst=\u00e9", "character 12: '\\xc3\\xa9': expected a whole number", 11),
        ("\u00e9", "character 1: '\\xc3\\xa9': expected a number", 0),
    ]:
        done = run("check", text)
        assert done.returncode == 1 and done.stdout == "", done
        said, shown, under = done.stderr.split("\n")[:3]
        assert said.startswith(f"weir: {message}"), done.stderr
        assert shown == f"  {text}" and under == f"  {' ' * caret}^", done.stderr


def a_field_is_named_without_a_caret():
    for text, field in {
        "10/s queue=5": "queue_tokens: 5:",
        "10/s burst=5 budget=6": "budget_tokens: 6:",
        "2000000000/s": "rate_tokens: 2000000000",
    }.items():
        done = run("check", "--json", text)
        assert done.returncode == 1 and done.stdout == "", done
        assert done.stderr.startswith(f"weir: {field}") and done.stderr.count("\n") == 1, done


def wrong_use_is_answered_with_the_usage():
    for arguments in [
        [],
        ["chec", "1/s"],
        ["check"],
        ["check", "--json"],
        ["check", "1/s", "2/s"],
        ["check", "10/min", "burst=20"],
        ["check", "1/s", "--jason"],
        ["--json", "check", "1/s"],
    ]:
        done = run(*arguments)
        assert done.returncode == 2 and done.stdout == "", (arguments, done)
        assert done.stderr.startswith("usage: weir check TEXT [--json]\n"), done


TESTS = [
    the_first_example,
    worst_cases,
    periods_and_ticks,
    keys_of_redis,
    times_to_live,
    store_calls,
    words_say_the_same,
    a_caret_stands_under_the_fault,
    a_field_is_named_without_a_caret,
    wrong_use_is_answered_with_the_usage,
]

sys.exit(tap.run(TESTS))
