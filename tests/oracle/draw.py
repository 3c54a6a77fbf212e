# SPDX-License-Identifier: MIT
"""Random limits and random asks, aimed at the places where answers change."""

import math
from dataclasses import replace

from algorithms import COUNTER, DAY, FIXED, LEAKY, LOG, MONTH, QUEUE, TOKEN, Queue, Rule, TokenBucket
from key import NO_ROWS, Ask

INT53 = 2**53
U32 = 2**32 - 1
SECOND = 10**6
KINDS = [(TOKEN, 0), (LEAKY, 0), (LEAKY, QUEUE), (FIXED, 0), (FIXED, MONTH), (LOG, 0), (COUNTER, 0)]
TICKS = [1, 1000, SECOND]
RATES = [(1, 1), (1, 1000), (3, 7), (1000, 1), (1, DAY), (1000003, DAY), (10, 60 * SECOND), (2, SECOND)]
CAPACITIES = [1, 2, 3, 5, 10, 100, 1023, 1024, 1025, 2500, 10**6, 10**9]
PERIODS = [1, 2, 15, 16, 17, 1000, SECOND, 60 * SECOND, 3600 * SECOND, DAY, 10**12]
FLOW_LONGEST = 2**50  # microseconds to fill: what comes later is cut, which is no matter of these tests


def draw_capacity(rng):
    return rng.choice(CAPACITIES + [rng.randrange(1, 50)] * 6 + [rng.randrange(1, 10**9)])


def draw_period(rng):
    return rng.choice(PERIODS + [rng.randrange(1, 10 ** rng.randrange(1, 13)), 10**12] * 3)


def draw_rate(rng, ticks, most_wait):
    """(tick, a, b, capacity, max_wait) that fit in a store of doubles."""
    while True:
        p, q = rng.choice(RATES + [(rng.randrange(1, 10**9), rng.randrange(1, 10**9))])
        tick = rng.choice(ticks)
        common = math.gcd(p * tick, q)
        a, b = p * tick // common, q // common
        capacity = draw_capacity(rng)
        wait = rng.choice([0, 1, 1000, rng.randrange(60 * SECOND), most_wait or 0])
        wait = min(wait, capacity * b * tick // a + 1, most_wait)
        if capacity * b + a * (wait // tick + 2) < INT53 and capacity * b * tick // a < FLOW_LONGEST:
            return tick, a, b, capacity, wait


def draw_rule(rng, kind, version, lends):
    algorithm, variant = kind
    period = 0
    if algorithm == TOKEN:
        tick, a, b, capacity, wait = draw_rate(rng, TICKS, rng.choice([0, 60 * SECOND]))
    elif algorithm == LEAKY:
        tick, a, b, capacity, wait = draw_rate(rng, TICKS, U32 if variant == QUEUE else 0)
    else:
        period = 31 * DAY if variant == MONTH else draw_period(rng)
        capacity, tick, wait = draw_capacity(rng), 1, 0
        common = math.gcd(capacity, period)
        a, b = capacity // common, period // common
    budget = rng.choice([1, 2, capacity // 2, capacity, rng.randrange(capacity + 1)]) if lends else 0
    learn = rng.random() < 0.2
    initial = capacity if learn else rng.choice([capacity] * 4 + [0, rng.randrange(capacity + 1)])
    window = rng.choice([10000, 100000, 777777, 60 * SECOND])
    return Rule(version, tick, a, b, capacity, min(budget, capacity), window, wait, initial, period, *kind, learn)


def next_rule(rng, rule, lends, mixed):
    """Another definition: now and then only the capacity or the rate differs, or it is an older one."""
    version = max(1, rule.version + rng.choice([-1, 0, 1, 1, 1, 2]))
    kind = rng.choice(KINDS) if mixed else (rule.algorithm, rule.variant)
    drawn = draw_rule(rng, kind, version, lends)
    if kind != (rule.algorithm, rule.variant) or rng.random() < 0.5:
        return drawn
    capacity = max(1, rng.choice([rule.capacity // 2, rule.capacity - 1, rng.randrange(1, rule.capacity + 1)]))
    values = dict(vars(rule), version=version, capacity=capacity, initial=capacity, budget=min(rule.budget, capacity))
    return Rule(**values)


def too_deep(state, rule, now):
    """Whether what is reserved under the old limit is too much for the numbers of the new one (R11), or would take
    it so long that times are cut."""
    if isinstance(state, TokenBucket) and rule.algorithm == TOKEN:
        units = -state.level * rule.b // state.rule.b
    elif isinstance(state, Queue) and rule.algorithm == LEAKY:
        units = state.line(now) * rule.a // rule.tick + rule.a
    else:
        return False
    return rule.capacity * rule.b + units + rule.b >= INT53 or units // rule.a * rule.tick > FLOW_LONGEST


class Client:
    """One process that asks about one key."""

    def __init__(self, rng, kind, lends):
        self.rng, self.lends = rng, lends
        self.mixed = rng.random() < 0.15
        self.rule = draw_rule(rng, kind, rng.randrange(1, 4), lends)
        self.now = rng.choice([17 * 10**14 + rng.randrange(10**14), rng.randrange(10**13, 4 * 10**15)])
        if self.rule.period > 0 and rng.random() < 0.5:
            self.now -= self.now % self.rule.period
            self.now += rng.choice([0, 1, self.rule.period // 2, self.rule.period // 3, self.rule.period - 1])
        self.last, self.last_ask = None, None
        self.leases = {}  # unsettled tokens by window
        self.live = {}  # until when a row about a window counts for sure
        self.changed = 0  # when the limit was

    def edges(self, key):
        """Times from now at which something changes, or nearly."""
        state, now = key.state, self.now
        edges = [0, 0, 1, self.rule.tick, self.rng.randrange(2 * self.rule.tick), self.rule.window]
        if state is None:
            return edges
        full_by = state.full_by(now) - now
        edges += [full_by, full_by // 2, full_by // 3, self.rng.randrange(full_by + 1)]
        edges += [key.expires - now, key.expires - now - 1]
        if self.rule.period > 0:
            period = self.rule.period
            into = now - state.start(now) if state.start(now) >= 0 else 0
            edges += [period, period - 1, period - into, period - into - 1, period - into + 1, 2 * period - into]
            edges += [self.rng.randrange(period), self.rng.randrange(period) // 10]
        grant = self.last
        edges += [grant.retry_after, grant.retry_after - 1, grant.reset_after, grant.reset_after - 1, grant.wait]
        return edges

    def amount(self, key):
        c = self.rule.capacity
        there = max(0, key.state.there(self.now)) if key.state is not None else c
        rng = self.rng
        near = [there, there, there + 1, there // 2, c // 2, c, c + 1, rng.randrange(c + 1)]
        return rng.choice([0, 1, 1, 1, 2, 3] + near)

    def rows(self):
        rows = []
        for window in self.rng.sample(sorted(self.leases), min(2, len(self.leases))):
            if self.rng.random() < 0.5:
                continue
            tokens = self.leases.pop(window)
            back = 0
            if self.now < self.live.get(window, 0):
                back = self.rng.randrange(tokens + 1)
            rows.append((window, tokens - back, back))
        return (*rows, *NO_ROWS)[:2]

    def next(self, key):
        """(time, rule, ask)"""
        rng = self.rng
        retried = self.last is not None and self.last.retry_after > 0 and rng.random() < 0.3
        if retried:
            self.now += self.last.retry_after - rng.choice([0, 1])
            self.last_ask = replace(self.last_ask, rows=NO_ROWS)  # what was settled is never sent again
            return self.now, self.rule, self.last_ask
        self.now += rng.choice([e for e in self.edges(key) if 0 <= e < 400 * DAY])
        if rng.random() < (0.3 if self.mixed else 0.08):
            rule = next_rule(rng, self.rule, self.lends, self.mixed)
            if not too_deep(key.state, rule, self.now):
                self.rule = rule
                self.live, self.changed = {}, self.now
        return self.now, self.rule, self.draw_ask(key)

    def draw_ask(self, key):
        rng = self.rng
        peek = rng.random() < 0.1
        values = {"peek": peek, "reset": not peek and rng.random() < 0.03, "exact": self.amount(key)}
        if values["exact"] > 0:
            values["wait"] = rng.choice([0, self.rule.max_wait, rng.randrange(self.rule.max_wait + 1), U32])
        if not peek and rng.random() < 0.15:
            values["refund"] = max(1, self.amount(key))
            start = self.last.start if self.last is not None else -1
            others = [max(-1, start - self.rule.period), max(-1, start - 1), -1]
            values["since"] = rng.choice([start, start, start] + others)
        if self.lends and not peek:
            values["want"] = rng.choice([0, self.amount(key), self.rule.budget, 10**9])
            values["least"] = rng.choice([1, 1, 1, 2, self.rule.budget // 16 + 1]) if values["exact"] == 0 else 1
            values["held"] = sum(self.leases.values())
            values["heard"] = self.last.window if self.last is not None else -1
            values["rows"] = self.rows()
        self.last_ask = Ask(**values)
        return self.last_ask

    def heard(self, grant):
        self.last = grant
        if grant.lease > 0:
            self.leases[grant.window] = self.leases.get(grant.window, 0) + grant.lease
            if grant.window >= self.changed:  # an older window may have begun in another period
                self.live[grant.window] = grant.window + grant.life * 4 // 3
