# SPDX-License-Identifier: MIT
"""Runs the demo and the hot path's benchmark briefly: test_demo.py DEMO HOTPATH

Not how fast: that they end, say what they should, agree with themselves, and leave nothing behind.
"""

import glob
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import tap  # noqa: E402

DEMO, HOTPATH = sys.argv[1:3]
PATIENCE_S = 60
ALGORITHMS = ["token-bucket", "leaky-bucket", "fixed-window", "sliding-log", "sliding-counter"]
FIELDS = {
    "algorithm", "promise", "perfect", "period_s", "store_calls", "stranded",
    "offered", "admitted", "bound", "within_bound", "largest_excess", "record_error", "used_share",
    "decisions_per_store_call", "admitted_per_store_call", "seconds", "processes", "threads",
    "rate", "capacity", "budget", "disturbed", "allow_ns", "deny_ns", "redis_cpu_percent",
}  # fmt: skip


def run(*command, env=None):
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=env
    )


def run_demo(*options):
    """The JSON of a run, whose exit status must follow from it."""
    done = run(DEMO, "--json", *options)
    assert done.returncode in (0, 1, 3), f"exit status {done.returncode}: {done.stderr}"
    assert done.stdout, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert FIELDS <= set(report), FIELDS - set(report)
    used_well = report["used_share"] >= 0.97
    expected = 3 if report["disturbed"] else 0 if used_well else 1
    assert done.returncode == (expected if report["within_bound"] else 1), done.stdout
    return report


def left_behind():
    return set(glob.glob("/tmp/weir-redis-*"))


def expected_bounds(report):
    """What the promise allows for the whole run: one number, or where a run may begin anywhere in a
    period, one for each number of periods that it can have touched."""
    budget = report["budget"] + report["stranded"]
    if report["period_s"] is None:
        return [report["capacity"] + report["rate"] * report["seconds"] + budget]
    whole = int(report["seconds"] / report["period_s"])
    return [report["capacity"] * periods + budget for periods in (whole, whole + 1, whole + 2)]


def check_promise(report):
    assert report["within_bound"] is True, report
    rounding = 0 if report["period_s"] else report["rate"] / 1000 + 1
    bounds = expected_bounds(report)
    assert any(abs(report["bound"] - bound) <= rounding for bound in bounds), (bounds, report)
    assert report["admitted"] <= report["bound"] + report["record_error"], report
    allowed = report["budget"] + report["stranded"] + report["record_error"]
    assert report["largest_excess"] <= allowed, report
    assert abs(report["admitted"] / report["perfect"] - report["used_share"]) < 0.001, report
    budget = report["budget"] + report["stranded"]
    assert report["perfect"] <= report["bound"] - budget + 1, report
    assert report["record_error"] <= report["capacity"] / 10, report


def redis_keeps_the_promise():
    before = left_behind()
    report = run_demo("--seconds", "2", "--processes", "2", "--rate", "20000", "--burst", "20000")
    check_promise(report)
    assert report["record_error"] <= report["capacity"] / 100, report
    assert report["algorithm"] == "token-bucket" and "C + r*t + E" in report["promise"], report
    assert report["processes"] == 2 and report["threads"] == 2, report
    assert report["budget"] == 2000, report
    assert report["failed"] == 0, report
    calls = report["store_calls"]
    assert calls > 0, report
    assert abs(report["decisions_per_store_call"] - report["offered"] / calls) < 1, report
    # Ten at the least, whatever the machine: else there is no local tier.
    assert report["decisions_per_store_call"] > 10, report
    assert report["naive"]["offered"] > 0, report
    assert left_behind() == before


def memory_keeps_the_promise():
    report = run_demo("--seconds", "1", "--store", "memory", "--processes", "4", "--budget", "100")
    check_promise(report)
    assert report["processes"] == 1 and report["budget"] == 100, report
    assert report["decisions_per_store_call"] is None and "naive" not in report, report


def each_algorithm_keeps_its_promise():
    """Under twice the rate for four periods; in a window no burst is left over from before."""
    promises = set()
    for algorithm in ALGORITHMS:
        report = run_demo(
            "--algorithm", algorithm, "--seconds", "2", "--processes", "2", "--offered", "2",
            "--rate", "20000", "--burst", "10000",
        )  # fmt: skip
        check_promise(report)
        assert report["algorithm"] == algorithm, report
        assert report["period_s"] == (None if "bucket" in algorithm else 0.5), report
        # The machine may be busy; half of the limit is what no calm or busy one stays below.
        assert report["used_share"] > 0.5, report
        assert report["admitted_per_store_call"] > 10, report
        assert report["failed"] == 0, report
        promises.add(report["promise"])
    assert len(promises) == len(ALGORITHMS) - 1, promises  # both buckets say the same


def each_algorithm_works_in_memory():
    for algorithm in ALGORITHMS:
        report = run_demo("--algorithm", algorithm, "--seconds", "1", "--store", "memory")
        check_promise(report)
        assert report["admitted"] > 0, report


def a_load_below_the_limit_is_not_held_back():
    report = run_demo("--seconds", "1", "--store", "memory", "--offered", "0.5")
    assert report["admitted"] == report["offered"] > 0, report
    assert report["users_refused"] == 0 < report["users_offered"], report


def wrong_options_are_refused():
    done = run(DEMO, "--seconds", "soon")
    assert done.returncode == 2 and "--seconds" in done.stderr, done


def a_missing_store_is_said():
    done = run(DEMO, "--url", "unix:///nowhere/socket", "--seconds", "1")
    assert done.returncode == 1 and "no connection to the store" in done.stderr, done


def a_missing_server_is_said():
    env = {**os.environ, "PATH": "/nowhere"}
    for command in ([DEMO, "--seconds", "1"], [HOTPATH]):
        done = run(*command, env=env)
        assert done.returncode == 1 and "redis-server is not installed" in done.stderr, done


def a_signal_ends_it_and_leaves_nothing():
    before = left_behind()
    pipe = subprocess.PIPE
    with subprocess.Popen([DEMO], stdout=pipe, stderr=pipe, text=True) as demo:
        demo.stderr.readline()  # the first line of progress: all is running
        start = time.monotonic()
        demo.send_signal(signal.SIGTERM)
        _, said = demo.communicate(timeout=PATIENCE_S)
    assert time.monotonic() - start < 8, "it went on"  # the run has 9 s to go
    assert demo.returncode == 1 and "stopped" in said, (demo.returncode, said)
    assert left_behind() == before


def hotpath_measures():
    done = run(HOTPATH, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    for name in ("plain_decrement", "lock_xadd", "clock", "allow", "deny"):
        low, mid, high = (report[f"{name}{part}_ns"] for part in ("_min", "", "_max"))
        assert 0 < low <= mid <= high, (name, report)
    assert abs(report["allow_ratio"] - report["allow_ns"] / report["lock_xadd_ns"]) < 0.01, report
    assert report["runs"] >= 9, report


TESTS = [
    redis_keeps_the_promise,
    memory_keeps_the_promise,
    each_algorithm_keeps_its_promise,
    each_algorithm_works_in_memory,
    a_load_below_the_limit_is_not_held_back,
    wrong_options_are_refused,
    a_missing_store_is_said,
    a_missing_server_is_said,
    a_signal_ends_it_and_leaves_nothing,
    hotpath_measures,
]

sys.exit(tap.run(TESTS))
