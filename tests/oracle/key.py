# SPDX-License-Identifier: MIT
"""One key under one limit, and what is wrong with an answer about it.

What is leased is not foretold: how much of what is there the store lends is not a matter of the algorithm.  A
lease is taken from the answer, must have been there, and counts as so many admissions.
"""

import copy
from dataclasses import dataclass

from algorithms import LEAKY, NEVER, QUEUE, kind, least

NO_ROWS = ((-1, 0, 0), (-1, 0, 0))
EXPIRY_SLACK = 2000  # the server counts whole milliseconds, from the one it is in


@dataclass(frozen=True)
class Ask:
    """struct weir__ask, in its order; rows of (window, spent, back)."""

    peek: bool = False
    reset: bool = False
    want: int = 0
    least: int = 1
    held: int = 0
    exact: int = 0
    wait: int = 0
    refund: int = 0
    since: int = -1
    heard: int = -1
    rows: tuple = NO_ROWS


@dataclass(frozen=True)
class Grant:
    """struct weir__grant, in its order, and what then is known of the key."""

    lease: int
    exact: int
    wait: int
    window: int
    life: int
    remaining: int
    retry_after: int
    reset_after: int
    processes: int
    refunded: int
    outstanding: int
    version: int
    first: int
    spread: int
    start: int
    exists: bool
    expires: int


def fresh(rule, t):
    return kind(rule).learned(rule, t) if rule.learn else kind(rule)(rule, t, rule.initial)


def in_line(rule):
    return (rule.algorithm, rule.variant) == (LEAKY, QUEUE)


class Key:
    def __init__(self):
        self.state = None
        self.expires = 0
        self.lent = False  # whether an account of leases may be there
        self.windows = [-1, -1]  # of the account, the one in force first

    def begin(self, t, rule, ask):
        """The state that the ask meets, under the limit in force."""
        if self.state is not None and t >= self.expires:
            self.state, self.lent = None, False
        state = copy.copy(self.state)
        if state is None:
            return fresh(rule, t)
        if rule.version > state.rule.version:
            if kind(rule) is kind(state.rule) and rule.variant == state.rule.variant:
                state.adopt(t, rule)
            else:
                state = kind(rule)(rule, t, min(max(state.there(t), 0), rule.capacity))
        return fresh(state.rule, t) if ask.reset else state

    def complaints(self, t, rule, ask, grant):
        """Runs one ask; yields (what, got, expected) for all that is not as it must be."""
        existed = self.state is not None and t < self.expires
        state = self.begin(t, rule, ask)
        rule = state.rule
        expect = {"exact": 0, "wait": 0, "refunded": 0, "version": rule.version, "start": state.start(t)}
        for window, _, back in ask.rows:
            if back > 0 and window in self.windows_after(grant):
                state.give_back(t, back, window)
        if ask.refund > 0:
            expect["refunded"] = state.give(t, ask.refund, ask.since)
        wait = state.wait(t, ask.exact, min(ask.wait, rule.max_wait)) if ask.exact <= rule.capacity else None
        granted = ask.exact > 0 and wait is not None and not ask.peek
        if granted:
            expect["exact"], expect["wait"] = ask.exact, wait
            state.take(t, ask.exact)
        yield from self.lease(t, state, ask, grant, expect)
        expect["remaining"] = max(0, state.there(t))
        if ask.exact > rule.capacity:
            expect["retry_after"] = NEVER
        else:
            expect["retry_after"] = 0 if granted or grant.lease > 0 else self.retry_after(t, state, ask)
        expect["reset_after"] = least(lambda d: state.full(t + d), state.full_by(t) - t)
        for what, value in expect.items():
            if getattr(grant, what) != value:
                yield what, getattr(grant, what), value
        yield from self.end(t, state, ask, grant, existed, expect["reset_after"])

    def windows_after(self, grant):
        return self.windows if grant.window == self.windows[0] else [grant.window, self.windows[0]]

    @staticmethod
    def lease(t, state, ask, grant, expect):
        there = 0 if ask.peek or state.rule.budget == 0 else max(0, state.there(t))
        if grant.lease != 0 and not ask.least <= grant.lease <= min(ask.want, there, state.rule.budget):
            yield "lease", grant.lease, f"{ask.least}..{min(ask.want, there, state.rule.budget)}, or 0"
        expect["first"] = 0
        if grant.lease > 0:
            if in_line(state.rule):
                expect["first"] = state.line(t)
            state.take(t, grant.lease)

    @staticmethod
    def retry_after(t, state, ask):
        """Until the tokens are there; in a queue, until it is short enough for the asker as well."""
        rule = state.rule
        need = min(rule.capacity, max(1, ask.least, ask.exact))
        patience = min(ask.wait, rule.max_wait)

        def there(d):
            if in_line(rule) and ask.exact > 0 and state.wait(t + d, ask.exact, patience) is None:
                return False
            return state.there(t + d) >= need

        return least(there, state.full_by(t) - t)

    def end(self, t, state, ask, grant, existed, reset_after):
        """Writes what a look does not, and sees that the key lives until it is full, and no longer."""
        if ask.peek:
            if grant.exists != existed or (existed and grant.expires != self.expires):
                yield "a look wrote", (grant.exists, grant.expires), (existed, self.expires)
            return
        self.state, self.expires, self.windows = state, grant.expires, self.windows_after(grant)
        self.lent |= state.rule.budget > 0
        if not grant.exists or grant.expires < t + reset_after:
            yield "expiry", grant.expires, f"at least {t + reset_after}"
        starts_full = state.rule.initial == state.rule.capacity and not state.rule.learn
        if starts_full and not self.lent and grant.expires > t + reset_after + EXPIRY_SLACK:
            yield "expiry", grant.expires, f"at most {t + reset_after + EXPIRY_SLACK}"
