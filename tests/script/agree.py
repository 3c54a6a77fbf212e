#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Random sequences as the reference model answers them: agree.py COUNT SEED

The model knows the token bucket.  One line of integers an ask: 1 when a new key begins, else 0; the store's clock;
the rule up to `initial`; the ask, without what has a meaning for other algorithms only; then what the model makes of
it: the grant up to `version`, whether a key is there, and if so its level, stamp, account up to n_prev, and expiry.
The order within is that of the structs in src/core (an expiry of 0: no key).  test_model holds C and Lua against it.
"""

import math
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "model"))

from model import FINAL, INT53_MAX, NO_WINDOW, Ask, Limit, script  # noqa: E402

STEPS = 25
TICKS = [1, 1000, 1000000]
DAY = 86400 * 10**6
HUGE = 2**52
CAPACITY_MOST = 10**9


def draw_limit(rng, version):
    tick = rng.choice(TICKS)
    a, b = rng.choice([(1, 1), (1, 1000), (3, 7), (1000, 1), (1, 86400), (1000003, 86400), (rng.randrange(1, 10**9), rng.randrange(1, 10**9))])
    common = math.gcd(a, b)
    a, b = a // common, b // common
    most = (INT53_MAX - a) // b
    capacity = min(most, CAPACITY_MOST, rng.choice([1, 2, 5, 10, 100, 10**6, most]))
    budget = min(capacity, rng.choice([0, 0, 1, 2, 5, capacity // 2, capacity]))
    window = rng.choice([10000, 100000, 1000000, 7777])
    max_wait = rng.choice([0, window, 60 * 10**6])
    initial = rng.choice([capacity, capacity, 0, rng.randrange(capacity + 1)])
    return Limit(a, b, capacity, budget, window, max_wait=max_wait, share=2, version=version, tick=tick, initial=initial, grain=1000)


def draw_step(rng, limit, key, grant, now):
    fill = min(2**50, limit.capacity * limit.b * limit.tick // limit.a)
    edges = [0, 0, 1, limit.tick, rng.randrange(2 * limit.tick), fill // 2, fill, limit.window // 2, 2 * limit.window]
    if grant:
        edges += [grant.retry_after, grant.retry_after - 1, grant.wait, grant.reset_after]
    if key:
        edges += [key.cur_end - now, key.cur_end - now - 1, key.cur_end + key.cur_life - now, key.expires - now, key.expires - now - 1]
    step = rng.choice([e for e in edges if 0 <= e < 400 * DAY])
    if rng.random() < 0.08:
        step = -rng.choice([1, limit.tick, limit.window, fill, fill + 1, rng.randrange(1, 3 * limit.window), DAY])
    return step


def draw_ask(rng, limit, key, windows):
    c, e = limit.capacity, limit.budget
    out = key.out_cur + key.out_prev if key else 0
    rows = []
    for _ in range(rng.choice([0, 0, 1, 2])):
        window = rng.choice(windows[:3] + [rng.randrange(HUGE)])
        if window != NO_WINDOW:
            rows.append((window, rng.choice([0, 1, out, out // 2, HUGE]), rng.choice([0, 1, out, out // 2, HUGE])))
    return Ask(
        limit,
        want=rng.choice([0, 1, e, e // 2, HUGE]),
        least=rng.choice([1, 1, 2, e // 16 + 1]),
        held=rng.choice([0, 0, 1, e, HUGE]),
        exact=rng.choice([0, 0, 1, c // 2, c, c + 1]),
        wait=rng.choice([0, limit.max_wait, HUGE]),
        settle=tuple(rows),
        refund=rng.choice([0, 0, 0, 1, c, HUGE]),
        heard=rng.choice(windows[:2]),
        peek=rng.random() < 0.1,
    )


def numbers(begins, now, ask, grant, key):
    limit = ask.limit
    rows = list(ask.settle) + [(NO_WINDOW, 0, 0)] * (2 - len(ask.settle))
    line = [begins, now]
    line += [limit.version, limit.tick, limit.a, limit.b, limit.capacity, limit.budget, limit.window, limit.max_wait, limit.initial]
    line += [int(ask.peek), ask.want, ask.least, ask.held, ask.exact, ask.wait, ask.refund, ask.heard, *rows[0], *rows[1]]
    line += [grant.lease, grant.exact, grant.wait, grant.window, grant.life, grant.remaining, grant.retry_after, grant.reset_after]
    line += [grant.processes, grant.refunded, grant.outstanding, grant.version]
    if key is None:
        return line + [0] * 14
    state = [1, key.level, key.stamp, int(key.account)]
    if key.account:
        state += [key.seen, key.cur, key.cur_end, key.cur_life, key.out_cur, key.prev, key.out_prev, key.n_cur, key.n_prev]
    else:
        state += [0] * 9
    return line + state + [key.expires]


def sequence(seed, write):
    rng = random.Random(seed)
    limit = draw_limit(rng, rng.randrange(1, 4))
    key, grant, now = None, None, 17 * 10**14 + rng.randrange(10**9)
    windows = [NO_WINDOW] * 3
    for step in range(STEPS):
        now = abs(now + draw_step(rng, limit, key, grant, now))
        if rng.random() < 0.12:
            limit = draw_limit(rng, max(1, limit.version + rng.choice([-1, 0, 1, 1, 2])))
        ask = draw_ask(rng, limit, key, windows)
        key, grant = script(key, ask, now, FINAL)
        write(" ".join(map(str, numbers(int(step == 0), now, ask, grant, key))) + "\n")
        if grant.window != windows[0]:
            windows.insert(0, grant.window)


def main():
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    for i in range(count):
        sequence(seed + i, sys.stdout.write)


main()
