# SPDX-License-Identifier: MIT
"""Hand-made schedules: the excess over the promise, in tokens, with one rule off and with all rules on.
Exits with 1 where a rule that is on breaks the promise, or one that is off does not."""
import sys
from dataclasses import replace
from model import FINAL, Ask, Client, Limit, Promise, script

L = Limit(1, 1, 10, 10, 1000)          # one token per microsecond, C = 10, E = 10, W = 1000 us


class Stage:
    def __init__(self, rules, limit=L):
        self.rules, self.limit, self.key, self.t, self.step = rules, limit, None, 10 ** 6, 0
        self.promise = Promise(limit, self.t)
        self.n = []

    def client(self, ppm=0):
        c = Client(self.rules); c.ppm = ppm; self.n.append(c); return c

    def clock(self, c): return self.t * (10 ** 6 + c.ppm) // 10 ** 6

    def at(self, t): self.t = 10 ** 6 + t

    def send(self, c, want=10 ** 6, limit=None, **kw):
        return c.ask(limit or self.limit, self.clock(c), 10 ** 9, want=want, **kw)

    def run(self, ask):
        self.key, g = script(self.key, ask, self.t + self.step, self.rules); return g

    def ask(self, c, want=10 ** 6, limit=None, **kw):
        a = self.send(c, want, limit, **kw); g = self.run(a); return c.answer(a, g, self.clock(c)), g

    def spend(self, c, loop_ran=True):
        n = sum(l.left for l in c.leases) if not loop_ran else (c.sweep(self.clock(c)), c.credit())[1]
        if n and c.take(n, self.clock(c), loop_ran): self.promise.admit(n, self.t)
        return n

    def burst(self):
        for c in self.n:
            self.spend(c)
            if c.flight is None: self.ask(c, 0)
        c = self.client()
        while self.ask(c)[1].lease: self.spend(c)


def margin(r):
    s = Stage(r); a, b, z = s.client(-10000), s.client(), s.client()
    s.at(0); s.ask(z, 0); s.at(999); s.ask(a); s.at(1000); s.ask(z, 0); s.at(2000); s.ask(b); s.at(2007); s.burst(); return s

def from_send(r):
    s = Stage(r); a, b, z = s.client(), s.client(), s.client()
    s.at(0); s.ask(z, 0); s.at(999); q = s.send(a); g = s.run(q); s.at(1000); s.ask(z, 0)
    s.at(1900); a.answer(q, g, s.clock(a)); s.at(2000); s.ask(b); s.at(2100); s.burst(); return s

def window_by_raw_clock(r):
    s = Stage(r); a, b, z = s.client(), s.client(), s.client()
    s.at(1); s.ask(a); s.step = -2; s.ask(z, 0); s.step = 0; s.ask(z, 0); s.step = -2; s.ask(z, 0); s.step = 0
    s.at(50); s.ask(b); s.at(90); s.burst(); return s

def ttl(r):
    s = Stage(r); a, b = s.client(), s.client()
    s.at(0); s.ask(a); s.at(20); s.ask(b); s.at(40); s.burst(); return s

def live_settle(r):
    s = Stage(r); a, b = s.client(), s.client()
    s.at(0); s.ask(a); q = s.send(a, 0, back=10); s.at(2500); s.ask(b); s.at(2600); s.burst(); s.run(q); s.burst(); return s

def settle_twice(r):
    s = Stage(r); a, b, c = s.client(), s.client(), s.client()
    s.at(0); s.ask(a); s.spend(a); s.at(20); s.run(s.send(a, 0)); a.unknown(s.clock(a)); s.ask(b); s.at(40); s.ask(a, 0); s.ask(c)
    s.at(80); s.burst(); return s

def paused(r):
    s = Stage(r); held = []
    for i in range(5):
        s.at(i * 2100); c = s.client(); s.ask(c); held.append(c)
    s.at(5 * 2100)
    for c in held: s.spend(c, loop_ran=False)
    s.burst(); return s

def refund(r):
    s = Stage(r); a, b = s.client(), s.client()
    s.at(0); s.ask(a); s.spend(a); s.ask(a, 0, least=1); s.ask(a, 1)
    s.at(20); s.ask(b)                                   # budget free again: b holds it
    s.at(40); n = a.refund(9, s.clock(a)); s.promise.refund(n, s.t); s.at(60); s.burst(); return s

def early_departure(r):
    l = replace(L, exact_age=1, max_wait=4000); s = Stage(r, l); c = s.client(10000); due = []
    s.at(0)
    while True:
        (n, w), g = s.ask(c, 0, exact=10, wait=4000)
        if not n: break
        due.append((w * 10 ** 6 // (10 ** 6 + c.ppm), n))
    for t, n in sorted(due): s.at(t); s.promise.admit(n, s.t)
    return s

def shorter_window(r):
    s = Stage(r); a, b, z = s.client(), s.client(), s.client(); l2 = replace(L, window=100, version=2)
    s.at(0); s.ask(a); s.at(20); s.ask(z, 0, l2); s.at(130); s.ask(z, 0, l2); s.at(260); s.ask(z, 0, l2); s.ask(b, limit=l2)
    s.at(300); s.limit = l2; s.burst(); return s

def spill(r):
    s = Stage(r, Limit(3, 1, 5, 0, 10 ** 5, exact_age=1, tick=1000)); c = s.client()
    for t, cost in (0, 5), (1900, 3), (2000, 3):         # full again at 1667; the tick at 2000 must not bring 3 more
        s.at(t); (n, _), _ = s.ask(c, 0, exact=cost); s.promise.admit(n, s.t)
    return s

def duplicated_request(r):
    s = Stage(r); a, b, c = s.client(), s.client(), s.client()
    s.at(0); s.ask(a, 5); s.ask(b, 5); q = s.send(a, 0, back=5); s.run(q); s.run(q); s.ask(c); s.at(40); s.burst(); return s

def data_loss(r, spent_first):
    s = Stage(r); a, b, c = s.client(), s.client(), s.client()
    s.at(0); s.ask(a)
    if spent_first: s.spend(a)
    s.key = None; s.at(1); s.ask(b)
    if spent_first: s.ask(a, 0); s.ask(c)
    s.at(30); s.burst(); return s

def forward(r):
    s = Stage(r); a, b = s.client(), s.client()
    s.at(0); s.ask(a); s.step = 5000; s.ask(b); s.at(30); s.burst(); return s

CASES = [('margin', margin), ('from_send', from_send), ('monotone+window_outlives', window_by_raw_clock), ('ttl_windows', ttl),
         ('live_settle', live_settle), ('settle_once', settle_twice), ('check_on_take', paused), ('refund_unsettled', refund),
         ('wait_margin', early_departure), ('spill', spill), ('keep_window+window_outlives', shorter_window)]
if __name__ == '__main__':
    failed = False
    for flag, f in CASES:
        off = f(replace(FINAL, **{x: False for x in flag.split('+')})).promise.excess()
        on = f(FINAL).promise.excess()
        failed |= on != 0 or off == 0
        print(f'{f.__name__:22} without {flag:26} +{off}   with +{on}')
    print('duplicated request (a proxy that retries)  +%d' % duplicated_request(FINAL).promise.excess())
    print('data loss, lease unspent +%d; spent and then settled: with fresh ids +%d, without +%d  (term: max(C,E) = 10)' % (
        data_loss(FINAL, False).promise.excess(), data_loss(FINAL, True).promise.excess(),
        data_loss(replace(FINAL, fresh_ids=False, fence_link=False), True).promise.excess()))
    print('clock forward +%d (term: max(min(rD,C),E) = 10)' % forward(FINAL).promise.excess())
    # two versions of a limit side by side
    for v in (False, True):
        r = replace(FINAL, versioned=v); old = Limit(100000, 10 ** 6, 100, 10, 1000); new = replace(old, a=1000, capacity=100, version=2)
        s = Stage(r, old); a, b = s.client(), s.client(); s.ask(a, 0); s.ask(b, 0, new); got = 0
        for t in range(10, 100000, 10):
            s.at(t); got += s.ask(a, limit=old)[1].lease; a.sweep(s.clock(a)); n = a.credit(); n and a.take(n, s.clock(a)); s.ask(b, 0, new)
        print('rate lowered 0.1 -> 0.001/us, one old process left: admitted in 100 ms', got, '(new rate gives', 100 + 100, ')' , 'versioned' if v else 'params of the caller')
    sys.exit(failed)
