# SPDX-License-Identifier: MIT
"""Reference model of the lease protocol (docs/protocol.md): the store's script, the client, the promise.

Integers only; time in microseconds, handed in as an argument.  The level is kept in *units*: one tick adds
`a` units, one token is `b` units (rate = a/b tokens per tick, reduced).

What holds at every instant, and why the promise follows:

    LEVEL + UNSPENT + GIVEN-BACK-ON-THE-WIRE  <=  VIRTUAL bucket (rate r, capacity C+E)

(1) the level never passes C, (2) every token that can still be spent or given back is counted in
out_cur + out_prev <= E, (3) the sum only ever grows by the refill.  An admission takes the same from both
sides.

`Rules`: with every field True this is the protocol.  A field set to False is the naive reading of that rule;
adversary.py and handmade.py show the promise it breaks.  tests/script holds script() against the shipped Lua
and its twin in C.
"""
from dataclasses import dataclass, field, replace
from typing import Optional


@dataclass(frozen=True)
class Rules:
    spill: bool = True            # R0  a bucket that time has filled within a tick is full; the rest of the tick spills
    margin: bool = True           # R6  lifetime told to clients is 3/4 W, not W
    from_send: bool = True        # R6  lifetime counts from the moment the ask was sent
    check_on_take: bool = True    # R7  a take (or an equivalent fence) looks at the expiry, not only the loop
    window_outlives: bool = True  # R3  windows start when first needed; False: number = floor(t / W), sound as well if monotone
    monotone: bool = True         # R2  stored time never moves back, windows follow the stored time
    ttl_windows: bool = True      # R4  the key lives as long as its windows, not only as long as its filling
    live_settle: bool = True      # R5  settle and give-back only into cur or prev; else void
    settle_once: bool = True      # R8  amounts sent with an ask of unknown fate are never sent again
    fence_link: bool = True       # hygiene, not needed for the bound: settle only over the connection that granted
    fresh_ids: bool = True        # hygiene, not needed for the bound: window names unique over data loss
    exact_ages: bool = True       # R9  an exact grant is void when its reply is older than D
    refund_unsettled: bool = True # R10 refund goes back to credit only while unsettled; else through the store
    versioned: bool = True        # R11 the limit lives in the hash; elapsed time is refilled at the old rate
    keep_window: bool = True      # R11 a changed W starts with the next window, which lasts max(old, new)
    owing_waits: bool = True      # R12 while the level is negative nothing but time is credited
    wait_margin: bool = True      # R12 a reserved departure is waited for with the drift margin


FINAL = Rules()
INT53_MAX = 2 ** 53 - 1     # the largest number the store holds together with all smaller ones
NO_WINDOW = -1
STAY = 10 ** 7              # how long a key stays full at least that would start anew with less


@dataclass(frozen=True)
class Limit:
    a: int                 # units per tick
    b: int                 # units per token
    capacity: int          # C, tokens
    budget: int            # E, tokens
    window: int            # W, microseconds: window length and upper bound of a lease's life
    exact_age: int = 0     # D: an exact grant is void when its reply is older than this
    max_wait: int = 0      # longest reservation, microseconds; 0 = none
    share: int = 0         # 2: one process may hold at most half of what is still free (fair, no N needed); 0: off
    version: int = 1
    tick: int = 1          # microseconds; `a` units accrue each
    initial: Optional[int] = None   # tokens of a new key; None: capacity
    grain: int = 1         # the store's expiry counts these, in microseconds; Redis: 1000


@dataclass
class Ask:
    limit: Limit
    want: int = 0                  # lease tokens wished
    least: int = 1                 # smaller grants are useless
    held: int = 0                  # credit the client still holds (for the share rule)
    exact: int = 0                 # tokens for waiters, all or nothing, spent on arrival
    wait: int = 0                  # exact part may be reserved up to this far ahead
    settle: tuple = ()             # (window, spent, back) ...
    refund: int = 0                # tokens of settled admissions that were not used after all
    heard: int = NO_WINDOW         # window this process last heard of
    peek: bool = False             # a look: nothing is granted, moved or written


@dataclass
class Grant:
    lease: int
    exact: int                     # 0 or what was asked
    wait: int                      # exact part may be used this long after the script ran
    window: int
    life: int
    remaining: int
    retry_after: int               # -1: never
    reset_after: int               # until the bucket is full
    processes: int
    refunded: int
    outstanding: int               # out_cur + out_prev
    version: int                   # of the limit in force


def life_of(window, rules):
    """What the client is told (R6).  (1-p)/(1+p) of W with p = 1 % drift is 0.9802; three quarters leave
    a stalled loop a quarter of a window as well."""
    return 3 * window // 4 if rules.margin else window


@dataclass
class Key:
    """One hash in the store: a few small integers, O(1) whatever the number of processes.  The account of
    open leases (seen .. n_prev) is there while E > 0 or something is out."""
    limit: Limit
    level: int             # units; negative = reserved ahead
    stamp: int             # level is as of then; moves by whole ticks, never back
    account: bool = False
    seen: int = 0          # store time of the last call; stamp may lag behind it by less than a tick
    cur: int = NO_WINDOW   # name of the current window
    cur_end: int = 0       # it takes no grant at or after this time
    cur_life: int = 0      # window length in force for leases of cur
    out_cur: int = 0
    prev: int = NO_WINDOW
    out_prev: int = 0
    n_cur: int = 0
    n_prev: int = 0
    expires: int = 0


def create(limit, now):
    tokens = limit.capacity if limit.initial is None else limit.initial
    return Key(limit, tokens * limit.b, now)


def up(x, y):
    return -(-x // y)


def span(limit, units):
    """Microseconds, in whole ticks, in which `units` accrue."""
    return min(INT53_MAX, up(units, limit.a) * limit.tick)


def fill_time(key, limit, rules):
    """Microseconds from the stamp until the bucket is full, to the microsecond: a time that flows would have
    filled it within a tick, and a tick must not bring again what had spilled over by then."""
    ticks, rest = divmod(limit.capacity * limit.b - key.level, limit.a)
    part = up(rest * limit.tick, limit.a)
    if rest and not rules.spill:
        part = limit.tick
    return min(INT53_MAX, ticks * limit.tick + part)


def due(key, t, units, rules):
    """From t until `units` more are there: by whole ticks, or since the bucket is full before."""
    return max(0, min(span(key.limit, units), fill_time(key, key.limit, rules)) - (t - key.stamp))


def tell_time(key, now, rules):
    """R2.  A stored time far ahead is a clock that was set back since: it is brought back without a refill,
    and the window starts over with what is out."""
    if not rules.monotone:
        return now
    t = max(now, key.stamp, key.seen)
    if t - now > max(span(key.limit, key.limit.capacity * key.limit.b), key.cur_life):
        key.stamp = t = now
        if key.account:
            key.cur_end = now + key.cur_life
    return t


def refill(key, limit, t, rules):
    """R0.  Whole ticks only, until the bucket is full."""
    if t - key.stamp >= fill_time(key, limit, rules):
        key.level, key.stamp = limit.capacity * limit.b, t
    else:
        ticks = max(0, (t - key.stamp) // limit.tick)
        key.level += ticks * limit.a
        key.stamp += ticks * limit.tick


def adopt(key, new, t, rules):
    """R11.  After the refill at the old rate; not while reservations are too deep for the new units."""
    old = key.limit
    whole, rest = divmod(key.level, old.b)
    if rules.versioned and (new.version <= old.version or -whole > (INT53_MAX - new.capacity * new.b) // new.b):
        return
    key.level = min(new.capacity * new.b, whole * new.b + rest * new.b // old.b)
    if (new.tick, new.a, new.b) != (old.tick, old.a, old.b):
        key.stamp = t
    if not rules.keep_window:
        key.cur_life = new.window
    key.limit = new


def turn_window(key, t, now, rules):
    """R3."""
    lim = key.limit
    if not key.account and lim.budget > 0:
        name = t if rules.fresh_ids else now // lim.window
        key.account, key.cur, key.cur_end, key.cur_life = True, name, t + lim.window, lim.window
    if key.account and not rules.window_outlives:
        number = (t if rules.monotone else now) // lim.window
        if number != key.cur:
            keep = number == key.cur + 1 if rules.monotone else abs(number - key.cur) == 1
            key.prev, key.out_prev = key.cur, key.out_cur if keep else 0
            key.cur, key.out_cur, key.cur_end = number, 0, (number + 1) * lim.window
        key.cur_life = lim.window
    elif key.account and t >= key.cur_end:
        gone = t >= key.cur_end + key.cur_life            # every lease of cur is dead as well
        key.prev, key.out_prev, key.n_prev = key.cur, 0 if gone else key.out_cur, 0 if gone else key.n_cur
        longest = max(key.cur_life, lim.window) if rules.keep_window else lim.window
        name = t if rules.fresh_ids else t // lim.window
        key.cur, key.out_cur, key.n_cur = max(name, key.cur + 1), 0, 0
        key.cur_end, key.cur_life = t + longest, lim.window


def take_back(key, ask, rules):
    """R5, R10.  Only into live windows; while a reservation is pending only time lifts the level (R12)."""
    lim = key.limit
    full = lim.capacity * lim.b
    owing = key.level < 0 and rules.owing_waits
    for window, spent, back in ask.settle:
        if key.account and window == key.cur:
            back = min(back, key.out_cur)                        # never re-credit what is not out
            key.out_cur = max(0, key.out_cur - spent - back)
        elif key.account and window == key.prev:
            back = min(back, key.out_prev)
            key.out_prev = max(0, key.out_prev - spent - back)
        elif rules.live_settle:
            continue
        if not owing:
            key.level = min(full, key.level + back * lim.b)
    refunded = 0 if owing else ask.refund
    key.level = min(full, key.level + refunded * lim.b)
    return refunded


def grant_exact(key, ask, t, rules):
    """R9, R12.  The waiters' part, outside the budget: now, or reserved ahead."""
    lim = key.limit
    short = ask.exact * lim.b - key.level
    wait = due(key, t, short, rules) if short > 0 else 0
    if not 0 < ask.exact <= lim.capacity:
        return 0, 0
    if short > 0 and (wait > min(ask.wait, lim.max_wait) or short > INT53_MAX - lim.capacity * lim.b):
        return 0, 0
    key.level -= ask.exact * lim.b
    return ask.exact, wait


def grant_lease(key, ask):
    """R3, R14.  Never past the budget."""
    lim = key.limit
    least = max(1, ask.least)
    room = lim.budget - key.out_cur - key.out_prev
    if lim.share:
        room = min(room, max((room - ask.held) // lim.share, least))
    lease = min(ask.want, key.level // lim.b, room)
    if lease < least:
        return 0
    key.level -= lease * lim.b
    key.out_cur += lease
    return lease


def script(key: Optional[Key], ask: Ask, now: int, rules: Rules):
    """What the store does with one ask, atomically.  Returns (key, grant).  A look runs on a copy."""
    before = key
    if key is not None and key.expires and now >= key.expires:
        before = key = None
    key = create(ask.limit, now) if key is None else replace(key) if ask.peek else key

    t = tell_time(key, now, rules)
    refill(key, key.limit if rules.versioned else ask.limit, t, rules)
    if ask.limit != key.limit:
        adopt(key, ask.limit, t, rules)
    turn_window(key, t, now, rules)
    lim, full = key.limit, key.limit.capacity * key.limit.b

    refunded = exact = wait = lease = 0
    if not ask.peek:
        refunded = take_back(key, ask, rules)
    refill(key, lim, t, rules)          # what came back, or a lower capacity, may have filled it within a tick
    if not ask.peek:
        exact, wait = grant_exact(key, ask, t, rules)
        lease = grant_lease(key, ask)
        # R13: who is here (over-counts by one for each reply a process did not hear)
        key.n_cur += key.account and ask.heard != key.cur
    if lim.budget == 0 and key.out_cur + key.out_prev == 0:
        key = Key(key.limit, key.level, key.stamp, expires=key.expires)
    if key.account:
        key.seen = t

    # R4: the key outlives its filling and its windows; where the store counts coarsely, by one grain more
    ahead = t - now if rules.monotone else max(0, key.stamp - now)
    fill = due(key, t, full - key.level, rules)
    hold = max(0, key.cur_end - t + key.cur_life) if rules.ttl_windows else 0
    # a key that would start anew with less than it holds when full stays on for a while
    less = lim.initial is not None and lim.initial < lim.capacity
    stay = max(span(lim, full), STAY) if less else 0
    life = min(INT53_MAX, max(1, fill + stay, hold) + ahead)
    key.expires = now + (up(life, lim.grain) + (lim.grain > 1)) * lim.grain

    retry = 0
    short = min(lim.capacity, max(1, ask.least, ask.exact)) * lim.b - key.level
    if ask.exact > lim.capacity:
        retry = -1
    elif not lease and not exact and short > 0:
        retry = min(INT53_MAX, due(key, t, short, rules) + ahead)
    reset = min(INT53_MAX, fill + ahead) if fill else 0
    grant = Grant(lease, exact, wait, key.cur, life_of(key.cur_life, rules), max(0, key.level // lim.b), retry, reset,
                  max(key.n_cur, key.n_prev), refunded, key.out_cur + key.out_prev, lim.version)
    return (before if ask.peek else key), grant


@dataclass
class Lease:
    window: int
    left: int              # unspent
    spent: int             # spent, not settled
    expires: int           # client's clock
    link: int


@dataclass
class Client:
    """One bucket in one process.  Takes are attributed to the oldest lease (FIFO)."""
    rules: Rules
    leases: list = field(default_factory=list)
    flight: Optional[tuple] = None      # (ask, sent, deadline, link): at most one
    link: int = 0                       # generation of the connection
    heard: int = NO_WINDOW
    unsent: list = field(default_factory=list)   # only for the settle_once mutant
    refunds: int = 0                    # to be sent
    granted: int = 0
    spent: int = 0
    back: int = 0
    expired: int = 0
    refunded: int = 0

    def credit(self):
        return sum(l.left for l in self.leases)

    def sweep(self, now):
        """The loop's turn: what is past its time is void."""
        for l in self.leases:
            if now >= l.expires and l.left:
                self.expired += l.left
                l.left = 0

    def take(self, n, now, loop_ran=True):
        """A caller's take. With check_on_take the expiry binds even when the loop has not run."""
        if loop_ran or self.rules.check_on_take:
            self.sweep(now)
        if self.credit() < n:
            return False
        self.spent += n
        for l in self.leases:
            k = min(n, l.left)
            l.left -= k
            l.spent += k
            n -= k
        return True

    def refund(self, n, now):
        """Up to n tokens of earlier admissions were not used.  Returns what became credit again at once."""
        self.sweep(now)
        again = 0
        for l in reversed(self.leases):
            if now >= l.expires:
                continue
            if self.rules.refund_unsettled:
                k = min(n, l.spent)
                l.spent -= k
            else:
                k = min(n, self.spent)         # naive: credit += n, whatever has been settled meanwhile
                l.spent -= min(k, l.spent)
            l.left += k
            again += k
            n -= k
        self.spent -= again
        self.refunded += n
        self.refunds += n
        return again

    def ask(self, limit, now, deadline, want=0, least=1, exact=0, wait=0, back=0):
        """Builds the ask; from here on the settled and given-back amounts are gone, whatever the reply."""
        assert self.flight is None
        self.sweep(now)
        settle = {}
        for l in reversed(self.leases):                 # newest credit goes back last: it lives longest
            if self.rules.fence_link and l.link != self.link:
                l.spent = 0                             # never settled: the store's window forgets it
                continue
            settle.setdefault(l.window, [0, 0])[0] += l.spent
            l.spent = 0
        for l in self.leases:
            if l.left and back and not (self.rules.fence_link and l.link != self.link):
                k = min(back, l.left)
                l.left -= k
                back -= k
                self.back += k
                settle.setdefault(l.window, [0, 0])[1] += k
        self.leases = [l for l in self.leases if l.left or now < l.expires]
        rows = [(w, s, g) for w, (s, g) in settle.items() if s or g] + self.unsent
        self.unsent = []
        a = Ask(limit, want, least, self.credit(), exact, wait, tuple(rows), self.refunds, self.heard)
        self.refunds = 0
        self.flight = (a, now, now + deadline, self.link)
        return a

    def answer(self, ask, grant, now):
        """The reply.  Returns (tokens of the exact part that may be used, after this many us of our clock)."""
        if self.flight is None or self.flight[0] is not ask:
            return 0, 0                                 # late: lost
        _, sent, _, link = self.flight
        self.flight = None
        self.heard = grant.window
        start = sent if self.rules.from_send else now
        if grant.lease:
            self.granted += grant.lease
            self.leases.append(Lease(grant.window, grant.lease, 0, start + grant.life, link))
        if grant.exact and (now - sent <= ask.limit.exact_age or not self.rules.exact_ages):
            wait = grant.wait + (grant.wait // 32 + 1 if grant.wait and self.rules.wait_margin else 0)
            return grant.exact, wait
        return 0, 0

    def unknown(self, now):
        """Time-out, EOF, reset: the grant is lost, and so are the amounts sent."""
        if self.flight and not self.rules.settle_once:
            self.unsent = list(self.flight[0].settle)
        self.flight = None

    def reconnected(self):
        self.link += 1
        self.flight = None


class Promise:
    """Every interval at once: a bucket of rate r and capacity C + E that each admission is taken from.
    `worst` is the largest excess over C + r*t + E of any interval, in units."""

    def __init__(self, limit, now):
        self.a, self.b = limit.a, limit.b * limit.tick         # time flows, whatever the tick
        self.cap = (limit.capacity + limit.budget) * self.b
        self.v, self.at, self.worst, self.admitted = self.cap, now, 0, 0

    def advance(self, now):
        if now > self.at:
            self.v = min(self.cap, self.v + (now - self.at) * self.a)
            self.at = now

    def admit(self, n, now):
        self.advance(now)
        self.v -= n * self.b
        self.admitted += n
        self.worst = max(self.worst, -self.v)

    def refund(self, n, now):
        self.advance(now)
        self.v = min(self.cap, self.v + n * self.b)
        self.admitted -= n

    def excess(self):
        return -(-self.worst // self.b)
