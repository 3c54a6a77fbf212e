# SPDX-License-Identifier: MIT
"""A hostile scheduler for model.py.   python3 adversary.py [seeds] [first]

Random schedules of clients, one key and a bad network.  The promise is checked at every admission; after
every event the lemma (unspent <= out_cur + out_prev), conservation, and the invariant of the proof: where
it is broken everybody spends at once, to see whether the promise breaks as well."""
import copy, heapq, random, sys, time
from dataclasses import replace
from model import FINAL, Client, Limit, Promise, Rules, create, script

MILLION = 10 ** 6


class World:
    def __init__(self, seed, rules=FINAL, kinds=frozenset()):
        self.rng = rng = random.Random(seed)
        self.rules, self.kinds = rules, kinds
        self.now = 0
        W = rng.choice([200, 1000, 1000, 5000])
        C = rng.choice([1, 5, 10, 20, 50])
        E = rng.choice([0, 1, 2, 5, C // 2, C])
        per_window = rng.choice([0.2, 1, 3, 10, 40])                # tokens refilled in one W
        a = max(1, int(per_window * 1000000 / W)); b = 1000000
        D = rng.choice([0, W // 8, W // 2]) if 'exact' in kinds else 0
        wait = rng.choice([0, W, 4 * W]) if 'reserve' in kinds and D else 0
        if 'ttl' in kinds:
            a *= 50                                                  # fills long before a window is over
        self.limit = Limit(a, b, C, E, W, D, wait, rng.choice([0, 0, 2]))
        if 'ticks' in kinds:                                         # the same rate in coarse steps
            tick = rng.choice([7, 100, 1000])
            self.limit = replace(self.limit, a=a * tick, tick=tick)
        self.drift = rng.choice([0, 10000]) if 'drift' in kinds else 0
        self.ppm = rng.choice([-1, 0, 1]) * self.drift
        self.step = 0
        self.base = 10 ** 9
        self.key = None
        self.history = []                                            # (real time, copy of key) for failover
        self.clients = []
        self.net = []
        self.seq = 0
        self.link = 0
        self.promise = Promise(self.limit, self.smooth())
        self.version, self.in_force, self.budgets = 1, self.limit, []
        self.term = 0                                                # units documented as extra
        self.trace = []
        self.lost_exact = 0
        self.granted = 0
        self.log = None
        self.bursting = False
        self.max_over = 0
        self.clean = not (kinds & {'forward', 'loss', 'failover'})
        # swarm testing: every seed has its own temperament
        pick = rng.choice
        self.w = dict(ask=pick([1, 4, 4]), take=pick([0, 0, .1, .5, 3]), pause=pick([0, .1, 1]), crash=pick([0, .05, .3]),
                      refund=pick([.1, 1, 2]), join=pick([0, .2, 1]), fault=pick([.1, .5, 2]), burst=pick([.02, .1, .5]))
        for k in ('pause', 'crash', 'refund'):
            if k not in kinds:
                self.w[k] = 0
        if not kinds & {'back', 'forward', 'loss', 'failover', 'limit'}:
            self.w['fault'] = 0
        self.hoard = pick([.2, .8, 1])                               # how often an ask wants everything
        self.swift = pick([.3, .8, 1])                               # how often the network takes no time
        self.lossy = pick([0, 0, .1, .4])                            # request or reply lost
        self.giver = pick([.1, .1, .6])                              # how often an ask gives back
        self.slow = pick([1, 1, 4])
        self.edgy = pick([.2, .6, .95])                              # how often time moves to an edge
        for _ in range(rng.choice([1, 2, 3, 6])):
            self.join()

    # clocks
    def smooth(self):
        return self.base + self.now * (MILLION + self.ppm) // MILLION

    def store_now(self):
        return self.smooth() + self.step

    def clock(self, c):
        return (self.now + c.born) * (MILLION + c.ppm) // MILLION

    def join(self):
        c = Client(self.rules)
        c.ppm = self.rng.choice([-1, 0, 1]) * self.drift
        c.born = self.rng.randrange(10 ** 6)
        c.paused = 0
        c.link = self.link
        self.clients.append(c)
        return c

    def say(self, *words):
        if self.log is not None:
            self.log.append((self.now,) + words)

    # store
    def execute(self, ask):
        born = self.key is None or (self.key.expires and self.store_now() >= self.key.expires)
        self.key, g = script(self.key, ask, self.store_now(), self.rules)
        if self.key.limit.version != self.version:                   # a changed limit is in force from now on
            old, new = self.in_force, self.key.limit
            if self.rules.versioned:
                self.version, self.in_force = new.version, new
                self.promise.advance(self.smooth())
                self.promise.a = new.a
                if born:                                             # a key that had been full and forgotten starts full again
                    self.promise.cap += max(0, new.capacity - old.capacity) * self.promise.b
                    self.promise.v += max(0, new.capacity - old.capacity) * self.promise.b
                self.budgets = [x for x in self.budgets if x[1] > self.smooth()]
                self.budgets.append((old.budget, self.smooth() + 2 * 5000 + 2))   # the longest W in use
        if self.budgets:
            self.budgets = [x for x in self.budgets if x[1] > self.smooth()]
            self.promise.advance(self.smooth())
            self.promise.cap = (self.in_force.capacity + max([self.in_force.budget] + [e for e, _ in self.budgets])) * self.promise.b
            self.promise.v = min(self.promise.v, self.promise.cap)
        if g.refunded:
            self.promise.refund(g.refunded, self.smooth())
        self.granted += g.lease
        self.say('script', ask.want, ask.exact, 'settle', ask.settle, '->', g.lease, g.exact, g.wait, 'lvl',
                 self.key.level / self.key.limit.b, 'out', self.key.out_cur, self.key.out_prev, 'win', g.window)
        if 'failover' in self.kinds:
            self.history.append((self.now, copy.copy(self.key), g.lease + g.exact))
        return g

    def admit(self, n):
        if n:
            self.promise.admit(n, self.smooth())
            self.say('admit', n, 'v', self.promise.v / self.promise.b)

    # messages
    def post(self, at, what, *rest):
        self.seq += 1
        heapq.heappush(self.net, (at, self.seq, what, rest))

    def send(self, c, delay, **kw):
        W = self.limit.window
        deadline = self.rng.choice([W // 4, W, 3 * W])
        ask = c.ask(self.limit, self.clock(c), deadline, **kw)
        self.say('ask', self.clients.index(c), kw)
        if delay is None:
            return                                                   # request lost
        if delay == 0:
            self.arrive(c, ask)
        else:
            self.post(self.now + delay, 'request', c, ask, self.link)

    def arrive(self, c, ask):
        g = self.execute(ask)
        d = self.delay()
        if d is None:
            return                                                   # reply lost
        if d == 0:
            self.reply(c, ask, g)
        else:
            self.post(self.now + d, 'reply', c, ask, g)

    def reply(self, c, ask, g):
        if c not in self.clients:
            return
        self.timeouts(c)
        use, wait = c.answer(ask, g, self.clock(c))
        if use and wait == 0:
            self.admit(use)
        elif use:                                                    # our own clock says when
            real = -(-wait * MILLION // (MILLION + c.ppm))
            self.post(self.now + real, 'due', use)

    def delay(self):
        W, r = self.limit.window, self.rng.random()
        if self.rng.random() < self.lossy:
            return None
        if self.rng.random() < self.swift:
            return 0
        if self.slow > 1 and r < .5:
            return self.rng.randrange(2 * W, 5 * W)
        if r < .3:
            return self.rng.randrange(1, W // 8)
        if r < .8:
            return self.rng.randrange(1, 2 * W)
        if r < .9:
            return self.rng.randrange(1, 5 * W)
        return None

    def timeouts(self, c):
        if c.flight and self.clock(c) >= c.flight[2]:
            c.unknown(self.clock(c))

    # time
    def run_to(self, t):
        while self.net and self.net[0][0] <= t:
            at, _, what, rest = heapq.heappop(self.net)
            self.now = max(self.now, at)
            if what == 'request':
                c, ask, link = rest
                if link == self.link:                                # else: to a server that is gone
                    self.arrive(c, ask)
            elif what == 'reply':
                self.reply(*rest)
            else:
                self.admit(rest[0])
            self.lemma()
        self.now = max(self.now, t)

    def next_time(self):
        rng, W = self.rng, self.limit.window
        r = rng.random()
        if rng.random() < .3:
            return self.now
        if rng.random() < self.edgy:                                 # an edge: expiry, window end, message
            edges = [e for e, *_ in self.net[:4]]
            if self.key:
                for s in (self.key.cur_end, self.key.cur_end + self.key.cur_life,
                          (self.store_now() // W + 1) * W, (self.store_now() // W + 2) * W):
                    edges.append((s - self.step - self.base) * MILLION // (MILLION + self.ppm))
            for c in self.clients:
                for l in c.leases:
                    edges.append(l.expires * MILLION // (MILLION + c.ppm) - c.born)
            edges += [c.flight[2] * MILLION // (MILLION + c.ppm) - c.born for c in self.clients if c.flight]
            edges = [e for e in edges if e > self.now]
            if edges:
                e = min(edges) if rng.random() < .5 else rng.choice(edges)
                return max(self.now, e + rng.choice([-2, -1, 0, 1, 2]))
        if r < .4:
            return self.now + rng.randrange(1, W // 4)
        if r < .95:
            return self.now + rng.randrange(1, 2 * W)
        return self.now + rng.randrange(1, 6 * W)

    # the attack
    def burst(self, resume=False):
        self.say('BURST')
        for c in self.clients:
            if resume and c.paused:                                  # callers run before the loop does
                c.paused = 0
                n = sum(l.left for l in c.leases)
                if n and c.take(n, self.clock(c), loop_ran=False):
                    self.admit(n)
            if c.paused <= self.now:
                self.timeouts(c)
                c.sweep(self.clock(c))
                n = c.credit()
                if n and c.take(n, self.clock(c)):
                    self.admit(n)
        free = [c for c in self.clients if c.paused <= self.now and c.flight is None]
        if not free:
            free = [self.join()]
        got = True
        while got:                                                   # everybody settles, asks and spends until all is dry
            got = False
            for c in free:
                exact = 1 if self.limit.exact_age and (self.limit.budget == 0 or self.rng.random() < .3) else 0
                ask = c.ask(self.limit, self.clock(c), 10 ** 9, want=0 if exact else 10 ** 6, exact=exact)
                g = self.execute(ask)
                use, _ = c.answer(ask, g, self.clock(c))
                n = c.credit()
                if n:
                    c.take(n, self.clock(c))
                self.admit(use + n)
                got = got or use + n > 0

    def lemma(self):
        """The inductive invariant, and a look ahead: could a burst now break the promise?  If so, burst."""
        for c in self.clients:
            assert c.granted == c.spent + c.credit() + c.back + c.expired, 'conservation'
        k = self.key
        if k is None:
            return
        live = {}
        for c in self.clients:
            stale = c.paused and not self.rules.check_on_take
            for l in c.leases:
                if l.left and (stale or self.clock(c) < l.expires):
                    live[l.window] = live.get(l.window, 0) + l.left
        if self.clean:
            over = (live.pop(k.cur, 0) > k.out_cur) + (live.pop(k.prev, 0) > k.out_prev)
            t = max(self.store_now(), k.stamp)
            over += any(live.values()) and t < k.cur_end             # windows roll lazily: void once cur_end is past
            self.max_over = max(self.max_over, over)
        unspent = sum(l.left for c in self.clients for l in c.leases
                      if (c.paused and not self.rules.check_on_take) or self.clock(c) < l.expires)
        L = k.limit
        gone = k.expires and self.store_now() >= k.expires
        t = max(self.store_now(), k.stamp)
        level = L.capacity * L.b if gone else min(L.capacity * L.b, k.level + max(0, (t - k.stamp) // L.tick) * L.a)
        self.promise.advance(self.smooth())
        if (level + unspent * L.b) * L.tick > self.promise.v + self.allowed() and not self.bursting:
            self.bursting = True
            self.burst(resume=True)
            self.bursting = False

    def act(self):
        rng, W = self.rng, self.limit.window
        c = rng.choice(self.clients)
        r = rng.random()
        if c.paused > self.now:
            return
        if c.paused:                                                 # just resumed: callers run before the loop
            c.paused = 0
            n = sum(l.left for l in c.leases)
            if n and c.take(n, self.clock(c), loop_ran=False):
                self.admit(n)
            return
        self.timeouts(c)
        what = rng.choices(list(self.w), list(self.w.values()))[0]
        if what == 'ask':
            if c.flight is None:
                hoard = rng.random() < self.hoard
                want = 10 ** 6 if hoard else rng.choice([0, 1, 2, self.limit.budget])
                back = rng.choice([1, c.credit(), c.credit()]) if rng.random() < self.giver else 0
                exact = rng.choice([0, 1, 2, self.limit.capacity]) if 'exact' in self.kinds else 0
                wait = rng.choice([0, self.limit.max_wait])
                self.send(c, self.delay(), want=want, least=1, exact=exact, wait=wait, back=back)
        elif what == 'take':
            n = c.credit()
            n = rng.choice([1, n, n, n // 2 or 1]) if n else 0
            if n and c.take(n, self.clock(c)):
                self.admit(n)
        elif what == 'pause':
            c.paused = self.now + rng.randrange(1, 4 * W)
        elif what == 'crash':
            self.clients.remove(c)
            self.join()
        elif what == 'refund':
            n = min(rng.choice([1, 2, 5, c.spent]), c.spent)
            if n:
                self.promise.refund(c.refund(n, self.clock(c)), self.smooth())
        elif what == 'join' and len(self.clients) < 12:
            self.join()
        elif what == 'fault':
            self.fault()
        elif what == 'burst':
            self.burst()

    def fault(self):
        rng, L = self.rng, self.limit
        W = L.window
        kind = rng.choice(sorted(self.kinds & {'back', 'forward', 'loss', 'failover', 'limit'}) or ['none'])
        fill = L.capacity * L.b * L.tick // L.a + 1
        if kind == 'back':
            self.step -= rng.choice([1, W // 2, W, 3 * W, fill + 10 * W])
            self.say('clock back', self.step)
        elif kind == 'forward':
            d = rng.choice([1, W // 2, W, 3 * W])
            self.step += d
            self.term += min(d * L.a, L.capacity * self.promise.b) + L.budget * self.promise.b
            self.say('clock forward', d)
        elif kind == 'loss':
            self.key = None
            if rng.random() < .5:
                self.new_link()
            self.term += L.capacity * self.promise.b
            self.say('data lost')
        elif kind == 'failover' and self.key:
            d = rng.choice([0, W // 2, W, 3 * W])
            lost = sum(n for t, k, n in self.history if t > self.now - d)
            keep = [k for t, k, n in self.history if t <= self.now - d]
            self.key = copy.copy(keep[-1]) if keep else None
            self.history = [h for h in self.history if h[0] <= self.now - d]
            self.new_link()
            self.term += (min(lost, L.capacity + L.budget) if keep else L.capacity) * self.promise.b
            self.say('failover', d, lost)
        elif kind == 'limit':
            f = rng.choice([.3, 1, 3])
            C = rng.choice([1, 5, 10, 20, 50])
            E = min(C, rng.choice([0, 1, 2, 5, 20]))
            W2 = rng.choice([100, 200, 1000, 5000])
            self.limit = replace(L, a=max(1, int(L.a * f)), capacity=C, budget=E, window=W2, version=L.version + 1)

    def new_link(self):
        self.link += 1
        for c in self.clients:
            c.reconnected()

    def allowed(self):
        L = self.limit
        late = L.exact_age * (MILLION + 2 * self.drift) // MILLION + 3 + (L.max_wait // 16 if L.max_wait else 0)
        return self.term + (L.a * late if 'exact' in self.kinds else 0)

    def run(self, steps=120):
        for _ in range(steps):
            self.run_to(self.next_time())
            self.act()
            self.lemma()
        self.burst()
        return self


def hunt(rules, kinds, seeds, first=0, want=1, seconds=60):
    """-> (seeds run, violating seeds, worst excess in tokens beyond what is allowed, first seed)"""
    bad, worst, at, t0 = 0, 0, None, time.time()
    hunt.lemma = 0
    n = 0
    for s in range(first, first + seeds):
        n += 1
        w = World(s, rules, frozenset(kinds)).run()
        over = w.promise.worst - w.allowed()
        hunt.lemma += w.max_over > 0
        if over > 0:
            bad += 1
            at = s if at is None else at
            worst = max(worst, -(-over // w.promise.b))
            if want and bad >= want:
                break
        if time.time() - t0 > seconds:
            break
    return n, bad, worst, at


SETS = {
    'plain':            {'drift', 'crash', 'pause'},
    'clock back':       {'drift', 'crash', 'pause', 'back'},
    'clock forward':    {'drift', 'crash', 'pause', 'back', 'forward'},
    'data loss':        {'drift', 'crash', 'pause', 'loss'},
    'failover':         {'drift', 'crash', 'pause', 'failover'},
    'exact':            {'drift', 'crash', 'pause', 'exact'},
    'exact + reserve':  {'drift', 'crash', 'pause', 'exact', 'reserve'},
    'refund':           {'drift', 'crash', 'pause', 'refund'},
    'limit change':     {'drift', 'crash', 'pause', 'limit'},
    'short fill':       {'drift', 'crash', 'pause', 'ttl'},
    'coarse ticks':     {'drift', 'crash', 'pause', 'back', 'refund', 'limit', 'ticks'},
    'everything':       {'drift', 'crash', 'pause', 'back', 'forward', 'loss', 'failover', 'exact', 'reserve', 'refund'},
}

if __name__ == '__main__':
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    failed = False
    for name, kinds in SETS.items():
        t = time.time()
        n, bad, worst, at = hunt(FINAL, kinds, seeds, first, want=0, seconds=600)
        print(f'{name:16} seeds {n:6} bad {bad:5} lemma {hunt.lemma:5} worst {worst:4} first {at}  {time.time()-t:.1f}s', flush=True)
        failed |= bad > 0
    sys.exit(failed)
