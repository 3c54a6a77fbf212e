# SPDX-License-Identifier: MIT
"""The five algorithms as anybody would write them down who had no store to fit them in.

Integers of any size, plain lists of what happened, and questions about the future answered by looking at the
future: "when?" is always the least moment at which it is so.  Nothing here is fast and nothing is clever.

Every state answers, at a time t that never goes back:

    there(t)                 whole tokens, below 0 when more was used than there is
    wait(t, n, patience)     how long until n tokens taken now may be used, None: longer than patience
    take(t, n)
    give(t, n, since)        n admissions of the period that began at `since` come back: n, or 0 when they cannot
    give_back(t, n, window)  so do n of a lease that was granted then or later in the same period
    full(t)                  whether it is as a new full one
    full_by(t)               a time by which it is, if nothing happens
    adopt(t, rule)           another limit of the same algorithm
    start(t)                 when the period in force began, -1: no periods
"""

import calendar
import functools
import math
from dataclasses import dataclass
from datetime import datetime, timedelta

TOKEN, LEAKY, FIXED, LOG, COUNTER = 1, 2, 3, 4, 5
QUEUE = MONTH = 1
NEVER = -1
NO_PERIOD = -1

DAY = 86400 * 10**6
EPOCH = datetime(1970, 1, 1)  # no zone: UTC, which is what all of it is in


@dataclass(frozen=True)
class Rule:
    """struct weir__rule, in its order."""

    version: int
    tick: int
    a: int
    b: int
    capacity: int
    budget: int
    window: int
    max_wait: int
    initial: int
    period: int
    algorithm: int
    variant: int
    learn: bool


def ceil_div(x, y):
    return -(-x // y)


def least(holds, most):
    """The least d in 0..most for which it holds, where it goes on holding once it does."""
    assert holds(most)
    if holds(0):
        return 0
    if not holds(most - 1):
        return most
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


@functools.cache
def month_of(day):
    """The month that holds a day, counted from the epoch: from, to, in microseconds."""
    date = EPOCH + timedelta(days=day)
    first = date.replace(day=1) - EPOCH
    return first.days * DAY, (first.days + calendar.monthrange(date.year, date.month)[1]) * DAY


class TokenBucket:
    """Level in parts of a token (b of them make one); time counts in whole ticks since the stamp."""

    def __init__(self, rule, t, tokens):
        self.rule, self.level, self.stamp = rule, tokens * rule.b, t

    @classmethod
    def learned(cls, rule, t):
        return cls(rule, t, 0)

    def moved(self, t):
        rule = self.rule
        top, elapsed = rule.capacity * rule.b, t - self.stamp
        if self.level * rule.tick + rule.a * elapsed >= top * rule.tick:
            return top, t
        ticks = elapsed // rule.tick
        return self.level + ticks * rule.a, self.stamp + ticks * rule.tick

    def move(self, t):
        self.level, self.stamp = self.moved(t)

    def there(self, t):
        return self.moved(t)[0] // self.rule.b

    def wait(self, t, n, patience):
        far = self.full_by(t) - t
        wait = least(lambda d: self.there(t + d) >= n, far)
        return wait if wait <= patience else None

    def take(self, t, n):
        self.move(t)
        self.level -= n * self.rule.b

    def give(self, t, n, since):
        self.move(t)
        if self.level < 0:
            return 0
        self.level += n * self.rule.b
        self.move(t)
        return n

    def give_back(self, t, n, window):
        self.give(t, n, NO_PERIOD)

    def full(self, t):
        return self.moved(t)[0] == self.rule.capacity * self.rule.b

    def full_by(self, t):
        rule = self.rule
        return t + ceil_div(max(0, rule.capacity * rule.b - self.level), rule.a) * rule.tick

    def adopt(self, t, rule):
        self.move(t)
        old, self.rule = self.rule, rule
        if (old.tick, old.a, old.b) != (rule.tick, rule.a, rule.b):
            self.level, self.stamp = self.level * rule.b // old.b, t
        self.level = min(self.level, rule.capacity * rule.b)
        self.move(t)

    def start(self, t):
        return NO_PERIOD


class Water:
    """What was poured in and has not leaked away, in parts of a token.  It leaks by whole ticks since the stamp,
    except that what a flowing leak would have emptied within a tick is empty."""

    def __init__(self, rule, t, tokens):
        self.rule, self.water, self.stamp = rule, (rule.capacity - tokens) * rule.b, t

    @classmethod
    def learned(cls, rule, t):
        return cls(rule, t, 0)

    def moved(self, t):
        rule, elapsed = self.rule, t - self.stamp
        if self.water * rule.tick <= rule.a * elapsed:
            return 0, t
        ticks = elapsed // rule.tick
        return self.water - ticks * rule.a, self.stamp + ticks * rule.tick

    def move(self, t):
        self.water, self.stamp = self.moved(t)

    def left(self, t):
        return self.moved(t)[0]

    def there(self, t):
        return (self.rule.capacity * self.rule.b - self.left(t)) // self.rule.b

    def take(self, t, n):
        self.move(t)
        self.water += n * self.rule.b

    def full(self, t):
        return self.left(t) == 0

    def full_by(self, t):
        return t + ceil_div(self.left(t), self.rule.a) * self.rule.tick

    def changed(self, t, rule, water):
        if (self.rule.tick, self.rule.a, self.rule.b) != (rule.tick, rule.a, rule.b):
            self.stamp = t
        self.rule, self.water = rule, water
        self.move(t)

    def start(self, t):
        return NO_PERIOD


class Meter(Water):
    """A leaky bucket that refuses what would run over.  It knows what still fits in."""

    def wait(self, t, n, patience):
        return 0 if n <= self.there(t) else None

    def give(self, t, n, since):
        self.move(t)
        self.water = max(0, self.water - n * self.rule.b)
        self.move(t)
        return n

    def give_back(self, t, n, window):
        self.give(t, n, NO_PERIOD)

    def adopt(self, t, rule):
        self.move(t)
        room = (self.rule.capacity * self.rule.b - self.water) * rule.b // self.rule.b
        self.changed(t, rule, max(0, rule.capacity * rule.b - room))


class Queue(Water):
    """A leaky bucket that lets one out at a time: who comes in waits until the water before it has gone."""

    def line(self, t):
        """How long until the water that is there now has gone."""
        return least(lambda d: self.left(t + d) == 0, self.full_by(t) - t)

    def wait(self, t, n, patience):
        wait = self.line(t)
        return wait if n <= self.there(t) and wait <= patience else None

    def give(self, t, n, since):
        return 0

    def give_back(self, t, n, window):
        pass

    def adopt(self, t, rule):
        """Who is in the queue leaves when it was told."""
        self.move(t)
        water = self.water
        if (self.rule.tick, self.rule.a, self.rule.b) != (rule.tick, rule.a, rule.b):
            water = ceil_div(self.line(t) * rule.a, rule.tick)
        self.changed(t, rule, water)


class Windows:
    """Admissions with their times."""

    def __init__(self, rule, t, tokens):
        self.rule, self.events = rule, []
        self.take(t, rule.capacity - tokens)

    def take(self, t, n):
        if n > 0:
            self.events = self.events + [(t, n)]

    def there(self, t):
        return self.rule.capacity - self.used(t)

    def wait(self, t, n, patience):
        return 0 if n <= self.there(t) else None

    def full(self, t):
        return self.used(t) == 0

    def start(self, t):
        return t - t % self.rule.period

    def lessen(self, n, since, until=math.inf):
        """What was admitted in since..until, the oldest first."""
        left, kept = n, []
        for at, count in sorted(self.events):
            gone = min(left, count) if since <= at < until else 0
            left -= gone
            kept.append((at, count - gone))
        self.events = [(at, count) for at, count in kept if count > 0]

    def give(self, t, n, since):
        if since != self.start(t):
            return 0
        self.lessen(n, since)
        return n


class FixedWindow(Windows):
    def start(self, t):
        return month_of(t // DAY)[0] if self.rule.variant == MONTH else super().start(t)

    def end(self, t):
        return month_of(t // DAY)[1] if self.rule.variant == MONTH else self.start(t) + self.rule.period

    @classmethod
    def learned(cls, rule, t):
        new = cls(rule, t, rule.capacity)
        length = new.end(t) - new.start(t)
        new.take(t, rule.capacity - rule.capacity * (new.end(t) - t) // length)
        return new

    def used(self, t):
        start, end = self.start(t), self.end(t)
        return sum(count for at, count in self.events if start <= at < end)

    def full_by(self, t):
        return self.end(t)

    def give_back(self, t, n, window):
        self.give(t, n, self.start(window))

    def adopt(self, t, rule):
        used = self.used(t)
        self.rule, self.events = rule, []
        self.take(t, used)


class SlidingLog(Windows):
    STEPS = 16

    def take(self, t, n):
        grain = ceil_div(self.rule.period, 256) if self.rule.capacity > 1024 else 1
        self.forget(t)
        # never older than one before it, which a limit with coarser moments may have moved ahead
        newest = max([at for at, _ in self.events], default=0)
        super().take(max(ceil_div(t, grain) * grain, newest), n)

    def forget(self, t):
        self.events = [(at, count) for at, count in self.events if at > t - self.rule.period]

    @classmethod
    def learned(cls, rule, t):
        new = cls(rule, t, rule.capacity)
        before = 0
        for i in range(1, cls.STEPS + 1):
            used = rule.capacity * i // cls.STEPS
            at = t - rule.period + ceil_div(rule.period * i, cls.STEPS)
            new.events = new.events + [(at, used - before)]
            before = used
        return new

    def used(self, t):
        return sum(count for at, count in self.events if at > t - self.rule.period)

    def give_back(self, t, n, window):
        """Not once some of what was granted since then may have been forgotten."""
        if window > t - self.rule.period:
            self.lessen(n, window)

    def full_by(self, t):
        return max([t] + [at + self.rule.period for at, _ in self.events])

    def adopt(self, t, rule):
        self.forget(t)
        self.rule = rule


class SlidingCounter(Windows):
    @classmethod
    def learned(cls, rule, t):
        new = cls(rule, t, rule.capacity)
        start = new.start(t)
        new.take(start - rule.period, rule.capacity)
        new.take(t, rule.capacity * (t - start) // rule.period)
        return new

    def used(self, t):
        period, start = self.rule.period, self.start(t)
        cur = sum(count for at, count in self.events if at >= start)
        prev = sum(count for at, count in self.events if start - period <= at < start)
        return cur + ceil_div(prev * (period - (t - start)), period)

    def give_back(self, t, n, window):
        start = self.start(window)
        self.lessen(n, start, start + self.rule.period)

    def full_by(self, t):
        return self.start(t) + 2 * self.rule.period

    def adopt(self, t, rule):
        if rule.period != self.rule.period:
            used, self.events = self.used(t), []
            self.take(t, used)
        self.rule = rule


def kind(rule):
    if rule.algorithm == LEAKY:
        return Queue if rule.variant == QUEUE else Meter
    return {TOKEN: TokenBucket, FIXED: FixedWindow, LOG: SlidingLog, COUNTER: SlidingCounter}[rule.algorithm]
