#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Asks a store about random keys, and judges its answers: oracle.py COUNT SEED

LANES keys are asked about side by side.  It writes an ask as one line of integers: the lane; 1 when a new key
begins there, else 0; store time; the rule; the ask; in the order of the structs in src/core.  After one for each
lane it writes `?` and reads the answers: the grant, 1 when the key is there, and when it expires.  The first
answer that is wrong ends it with a line `wrong ...`, and `done` says that none was.

What is right is in algorithms.py, written from the words of the documentation and from nothing else.
"""

import random
import sys

from algorithms import COUNTER, DAY, FIXED, LEAKY, LOG, MONTH, QUEUE, TOKEN, Rule
from draw import KINDS, SECOND, Client
from key import Ask, Grant, Key

LANES = 32  # as in judge.h
STEPS = 20
CROWD = 500  # every so many sequences one is a crowd at a sliding log
CROWD_STEPS = 1500


class Wrong(Exception):
    pass


def line_of(lane, begins, now, rule, ask):
    numbers = [lane, begins, now, *vars(rule).values()]
    numbers += [value for name, value in vars(ask).items() if name != "rows"]
    numbers += [value for row in ask.rows for value in row]
    return " ".join(str(int(number)) for number in numbers)


def judged(key, begins, now, rule, ask):
    """One ask and the judgement of its answer."""
    grant = yield begins, now, rule, ask
    wrong = list(key.complaints(now, rule, ask, grant))
    if wrong:
        told = "; ".join(f"{what} is {got}, expected {expected}" for what, got, expected in wrong)
        raise Wrong(f"{told}: {rule} {ask} at {now}: {grant}")
    return grant


def rule_of(algorithm, capacity, rate=(1, 1), period=0, variant=0, max_wait=0):
    return Rule(1, 1, *rate, capacity, 0, 10000, max_wait, capacity, period, algorithm, variant, False)


def date(day):
    """So many days after 2024-01-01."""
    return (19723 + day) * DAY


S = SECOND
NOON = 1700000000 * S
FEBRUARY = date(31)

# Worked out by hand: the limit, its first moment, and asks as (after, cost, granted).
KNOWN = [
    (rule_of(COUNTER, 1, period=10 * S), NOON, [(0, 1, 1), (3 * S, 1, 0), (12 * S, 1, 0), (20 * S, 1, 1)]),
    (rule_of(LOG, 2, period=4 * S), NOON, [(s * S, 1, s % 4 < 2) for s in range(16)]),
    # two a second: what was taken at 1.5 s is there again at 2 s
    (
        rule_of(TOKEN, 10, rate=(1, S // 2)),
        NOON,
        [(3 * S // 2, 1, 1)] + [(2 * S, 1, 1)] * 10 + [(2 * S, 1, 0), (5 * S // 2 - 1, 1, 0), (5 * S // 2, 1, 1)],
    ),
    (rule_of(LEAKY, 2, rate=(1, S)), NOON, [(0, 2, 1), (0, 1, 0), (S - 1, 1, 0), (S, 1, 1), (3 * S, 2, 1)]),
    # ten a minute at the end of one minute, and ten more at the begin of the next
    (
        rule_of(FIXED, 10, period=60 * S),
        28333333 * 60 * S,
        [(60 * S - 1, 10, 1), (60 * S - 1, 1, 0), (60 * S, 10, 1), (60 * S, 1, 0)],
    ),
    # February of a leap year has 29 days
    (
        rule_of(FIXED, 1, period=31 * DAY, variant=MONTH),
        FEBRUARY,
        [(0, 1, 1), (29 * DAY - 1, 1, 0), (29 * DAY, 1, 1), (60 * DAY - 1, 1, 0), (60 * DAY, 1, 1)],
    ),
]
# A queue of three at one a second: when an ask comes, and how long it waits (None: refused).
KNOWN_QUEUE = (
    rule_of(LEAKY, 3, rate=(1, S), variant=QUEUE, max_wait=3 * S),
    [(0, 0), (0, S), (0, 2 * S), (0, None), (S - 1, None), (S, 2 * S), (9 * S, 0)],
)


def known(rule, first, asks):
    key = Key()
    for i, (after, cost, granted) in enumerate(asks):
        grant = yield from judged(key, i == 0, first + after, rule, Ask(exact=cost))
        if grant.exact != cost * granted:
            raise Wrong(f"ask {i} of {rule}: {grant}")


def known_queue(rule, asks):
    key = Key()
    for i, (after, wait) in enumerate(asks):
        grant = yield from judged(key, i == 0, NOON + after, rule, Ask(exact=1, wait=3 * S))
        if (grant.wait if grant.exact else None) != wait:
            raise Wrong(f"ask {i} of {rule}: {grant}")


def crowd(seed):
    """One token at a time until the log is as long as it can be, and then until all of it is old."""
    rng = random.Random(seed)
    capacity = [1024, 1025, 3000][seed // CROWD % 3]
    rule = rule_of(LOG, capacity, period=rng.randrange(10**6, 10**9))
    key, now = Key(), 17 * 10**14
    for step in range(CROWD_STEPS):
        part = rule.period // (1024 if capacity == 1024 else 256)
        now += part - rng.randrange(part // 4) if step < 1200 else 5 * part
        ask = Ask(exact=1, refund=int(rng.random() < 0.05), since=now - now % rule.period)
        yield from judged(key, step == 0, now, rule, ask)


def drawn(seed):
    rng = random.Random(seed)
    client = Client(rng, KINDS[seed % len(KINDS)], lends=seed // len(KINDS) % 3 == 0)
    key = Key()
    for step in range(STEPS):
        now, rule, ask = client.next(key)
        client.heard((yield from judged(key, step == 0, now, rule, ask)))


def sequences(count, first):
    """(name, generator of asks)"""
    for i, case in enumerate(KNOWN):
        yield f"known {i}", known(*case)
    yield "known queue", known_queue(*KNOWN_QUEUE)
    for seed in range(first, first + count):
        yield f"seed {seed}", crowd(seed) if seed % CROWD == 0 else drawn(seed)


def ask_all(lanes, waiting):
    """One ask in each lane, and its answer.  Lanes that have ended take the next sequence that waits."""
    for number, lane in enumerate(lanes):
        while lane is not None:
            name, sequence, answer = lane
            try:
                question = sequence.send(answer)
            except StopIteration:
                lane = lanes[number] = next(waiting, None)
                continue
            except Wrong as wrong:
                raise Wrong(f"{name}: {wrong}") from wrong
            print(line_of(number, *question))
            break
    print("?", flush=True)
    for number, lane in enumerate(lanes):
        if lane is not None:
            answer = sys.stdin.readline().split()
            if not answer:
                sys.exit(1)  # whoever answered has given up
            lanes[number] = (*lane[:2], Grant(*map(int, answer)))


def main():
    count, first = int(sys.argv[1]), int(sys.argv[2])
    waiting = ((name, sequence, None) for name, sequence in sequences(count, first))
    lanes = [next(waiting, None) for _ in range(LANES)]
    try:
        while any(lanes):
            ask_all(lanes, waiting)
    except Wrong as wrong:
        print(f"wrong, {wrong}", flush=True)
        return 1
    print("done", flush=True)
    return 0


sys.exit(main())
