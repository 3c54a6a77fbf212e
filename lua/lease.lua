-- SPDX-License-Identifier: MIT
--
-- One ask about one global bucket, decided in one step.  This is the store's half of the lease
-- protocol; docs/protocol.md has the rules (R0-R14) and the proof, and the numbers below are
-- theirs.  src/core/global.c is the same in C; tests hold the two together, bit for bit, so a
-- change here is a change there.
--
-- The files of lua/ are one script: lua/prelude.lua, the algorithms, and this file, in that order.
-- An algorithm knows how many tokens are there, and when more will be; everything else is here, the
-- same for all of them.
--
--   KEYS[1]  the bucket's key          ARGV[1]  the rule    ARGV[2]  the ask    (src/core/wire.h)
--                                      ARGV[3]  the time, in microseconds; absent: the server's
--
-- The key is one hash of at most five fields:
--
--   l  s.level, t  s.stamp, x  s.extra     as the algorithm has them
--   r  the rule in force, the very bytes of the ARGV[1] that brought it
--   a  the account of open leases, packed; absent or empty while budget and leases are 0
--
-- R1: all reads come first, then arithmetic that cannot fail, then one HSET with every field that
-- changes, then PEXPIRE.  Out of memory or a wrong type stop the script before anything is
-- written.  A hash that this script did not write (fields missing or of the wrong length) counts
-- as lost data: the bucket starts anew, a term of the promise, where an error would block the key
-- until someone came.

local algorithms = { token_bucket, leaky_bucket, fixed_window, sliding_log, sliding_counter }

local key, asked_rule = KEYS[1], ARGV[1]
if #KEYS ~= 1 or #ARGV < 2 or #asked_rule ~= RULE_BYTES or #ARGV[2] ~= ASK_BYTES then
    return redis.error_reply('WEIRARG needs one key, 59 bytes of rule and 120 bytes of ask')
end

local mode, want, least, held, exact_wanted, wait_wanted, refund, refund_since, heard,
    window_1, spent_1, back_1, window_2, spent_2, back_2 = struct_unpack(ASK, ARGV[2])
local looking = mode == LOOK
least = max(1, least)

-- What is there.

-- The rule in force and the state of the algorithm, in one table.
local function read_rule(bytes, level, stamp)
    local version, a, b, period, tick, capacity, budget, length, max_wait, initial, algorithm,
        variant, learn = struct_unpack(RULE, bytes)
    return {
        version = version, a = a, b = b, period = period, tick = tick, capacity = capacity,
        budget = budget, length = length, max_wait = max_wait, initial = initial,
        algorithm = algorithm, variant = variant, learn = learn, full = capacity * b,
        level = level, stamp = stamp, t = 0, span = 0, start = 0, edge = 0, extra = nil,
    }
end

local now
if ARGV[3] then
    now = tonumber(ARGV[3])
else
    local clock = redis.pcall('TIME')
    if clock.err then
        return redis.error_reply('WEIRTIME ' .. clock.err)
    end
    now = clock[1] * 1000000 + clock[2]
end

local stored = call('HMGET', key, 'l', 't', 'r', 'a', 'x')
local stored_rule, account, stored_extra = stored[3], stored[4], stored[5]
local account_bytes = account and #account or 0

local level, stamp = tonumber(stored[1]), tonumber(stored[2])
local known = level and stamp and stored_rule and #stored_rule == RULE_BYTES
    and (account_bytes == 0 or account_bytes == ACCOUNT_BYTES)
local rule_bytes = known and stored_rule or asked_rule
local s = read_rule(rule_bytes, level, stamp)
local algorithm = algorithms[s.algorithm]
local op = algorithm and algorithm(s)
if known and op and op.load and not op.load(stored_extra) then
    known, rule_bytes = false, asked_rule
    s = read_rule(rule_bytes)
    algorithm = algorithms[s.algorithm]
    op = algorithm and algorithm(s)
end
if not op then
    return redis.error_reply('WEIRARG an algorithm that this script does not know')
end

if not known then
    s.t = now
    op.create(s.learn == 0 and s.initial or nil)
end

local has_account = known and account_bytes == ACCOUNT_BYTES
local seen, cur, cur_end, cur_life, out_cur = s.stamp, NO_WINDOW, 0, 0, 0
local prev, out_prev, n_cur, n_prev, ago = NO_WINDOW, 0, 0, 0, 0
if has_account then
    seen, cur, cur_end, prev, cur_life, out_cur, out_prev, n_cur, n_prev, ago =
        struct_unpack(ACCOUNT, account)
end

-- R2: time never goes back.  A stamp too far ahead comes from a clock that has since been set
-- back: it is brought to now without a refill, and the window starts over with what is out.

local t = max(now, s.stamp, seen)
if t - now > max(s.span, cur_life) then
    t = now
    s.t = t
    op.rewind()
    cur_end = t + min(cur_life, s.edge)
end
s.t = t
local period = s.stamp -- where the algorithm has periods: when the one in force began
op.refill()

-- R11: elapsed time has counted at the old rule; a higher version may now take over.  What is there
-- under one algorithm is there under the next.

if rule_bytes ~= asked_rule then
    local rule = read_rule(asked_rule, s.level, s.stamp)
    local change = algorithms[rule.algorithm]
    if rule.version > s.version and change then
        local tokens = max(0, min(op.there(), rule.capacity))
        -- who resets does not wait for reservations either
        local same = mode ~= RESET and rule.algorithm == s.algorithm
            and rule.variant == s.variant
        if not same or op.adopt(rule) then
            rule.t, rule.level, rule.stamp, rule.extra = t, s.level, s.stamp, s.extra
            s, rule_bytes, op = rule, asked_rule, change(rule)
            if not same then
                s.extra = nil
                op.create(tokens)
            end
            op.refill()
            cur_end = min(cur_end, t + s.edge)
        end
    end
end
local capacity, budget = s.capacity, s.budget

-- A caller wants the bucket to start anew.  What is leased out stays counted.
if mode == RESET then
    op.create(s.learn == 0 and s.initial or nil)
end

-- R3: the windows of the account.  None reaches beyond a period of the algorithm.

if has_account and t >= cur_end then
    if t >= cur_end + cur_life then -- every lease of cur is dead as well
        out_cur, n_cur = 0, 0
    end
    prev, out_prev, n_prev = cur, out_cur, n_cur
    ago = period == s.start and 0 or period == s.start - s.period and 1 or 2
    cur, cur_end, cur_life = max(t, cur + 1), t + min(max(cur_life, s.length), s.edge), s.length
    out_cur, n_cur = 0, 0
elseif budget > 0 and not has_account then
    has_account, cur, cur_end, cur_life = true, t, t + min(s.length, s.edge), s.length
end

-- The ask.  A look grants nothing and moves nothing.

local lease, exact, wait, start, spread, refunded = 0, 0, 0, 0, 0, 0
-- R6: two clocks may be apart, and a loop sweeps what is dead when it looks.
local life = max(0, floor(min(cur_life * 3 / 4, s.edge - max(s.edge / 32, EDGE_MARGIN))))
local patience = exact_wanted > 0 and min(wait_wanted, s.max_wait) or INT53_MAX

if not looking then
    -- R5: rows of live windows only; never more comes back than is out.
    local row, spent, back = window_1, spent_1, back_1
    for _ = 1, 2 do
        if row ~= NO_WINDOW then
            if row == cur then
                back = min(back, out_cur)
                out_cur = max(0, out_cur - back - spent)
                op.give(back, cur, 0)
            elseif row == prev then
                back = min(back, out_prev)
                out_prev = max(0, out_prev - back - spent)
                op.give(back, prev, ago)
            end
        end
        row, spent, back = window_2, spent_2, back_2
    end

    -- R10: admissions that were settled and not used after all.
    if refund > 0 then
        refunded = op.give(refund, s.start, refund_since == s.start and 0 or nil)
    end
end

op.refill() -- what came back, or a lower capacity, may have filled it within a tick

if not looking then
    -- R9, R12: the waiters' part, all or nothing and outside the budget; now, or reserved ahead.
    if exact_wanted > 0 and exact_wanted <= capacity then
        local later = op.exact(exact_wanted, patience)
        if later then
            exact, wait = exact_wanted, later
            op.take(exact)
        end
    end

    -- R3, R14: the lease, inside the budget, and at most half of what is free of it; none that
    -- would be dead on arrival.
    local room = budget - out_cur - out_prev
    room = min(room, max(floor((room - held) / 2), least))
    lease = min(want, op.there(), room)
    if lease < least or s.edge < EDGE_MARGIN + LIFE_LEAST then
        lease = 0
    end
    if s.slots and lease > 0 then
        start = op.fill()
        local before = lease - 1 -- slots, before its last
        op.take(before)
        while lease >= least and op.fill() > life do -- the last would come too late
            lease = floor(lease / 2)
            local fewer = max(0, lease - 1)
            op.take(fewer - before)
            before = fewer
        end
        if lease >= least then
            op.take(1)
            spread = max(1, op.fill() - start)
        else
            op.take(-before)
            lease, start = 0, 0
        end
    else
        op.take(lease)
    end
    out_cur = out_cur + lease

    -- R13: who is here; a hint.
    if heard ~= cur then
        n_cur = n_cur + 1
    end
end

if budget == 0 and out_cur + out_prev == 0 then
    has_account, cur, cur_end, cur_life, n_cur, n_prev = false, NO_WINDOW, 0, 0, 0, 0
    life = 0
end

-- How long until what.  A stored time ahead of the clock has to pass first.

local ahead = t - now
local fill = op.fill()

local retry = 0
if exact_wanted > capacity then
    retry = -1
elseif lease == 0 and exact == 0 then
    retry = op.due(min(max(least, exact_wanted), capacity), patience)
    retry = retry > 0 and min(INT53_MAX, retry + ahead) or 0
end

-- R1, R4: write.  The expiry outlives the filling and both windows; in whole milliseconds,
-- rounded up, with one more since the server counts from the millisecond it is in.  A key that
-- would start anew with less than it holds when full stays on for a while: who asks as rarely as it
-- fills must find it.

if not looking then
    if has_account then
        account = struct_pack(ACCOUNT,
            t, cur, cur_end, prev, cur_life, out_cur, out_prev, n_cur, n_prev, ago)
    else
        account = account_bytes > 0 and '' or nil
    end
    local extra = s.extra or stored_extra and ''
    if rule_bytes ~= stored_rule then
        call('HSET', key, 'l', s.level, 't', s.stamp, 'a', account or '', 'x', extra or '',
            'r', rule_bytes)
    elseif extra then
        call('HSET', key, 'l', s.level, 't', s.stamp, 'a', account or '', 'x', extra)
    elseif account then
        call('HSET', key, 'l', s.level, 't', s.stamp, 'a', account)
    else
        call('HSET', key, 'l', s.level, 't', s.stamp)
    end
    local anew = s.initial < capacity or s.learn ~= 0
    local stay = anew and max(s.span, STAY) or 0
    local stays = min(INT53_MAX, max(1, fill + stay, cur_end + cur_life - t) + ahead)
    call('PEXPIRE', key, ceil(stays / 1000) + 1)
end

return {
    lease, exact, wait, cur, life,
    max(0, op.there()), retry, fill > 0 and min(INT53_MAX, fill + ahead) or 0,
    max(n_cur, n_prev), refunded, out_cur + out_prev, s.version,
    start, spread, s.start,
}
