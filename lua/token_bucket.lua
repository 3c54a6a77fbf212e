-- SPDX-License-Identifier: MIT
--
-- The token bucket: tokens accrue at a rate, up to the capacity.  Part of the script that
-- lua/lease.lua describes; src/core/algorithms/token_bucket.c is the same in C.
--
--   s.level  in units, b of them a token; negative while tokens are reserved ahead
--   s.stamp  the level is as of then, and ticks are counted from it
--
-- Every number is an integer below 2^53, which a double holds exactly.  The floor and the ceiling
-- of a quotient x / a of two such numbers are exact too: a quotient that is no integer is at least
-- 1/a away from one, which is more than rounding can move it.  Three inequalities keep it so:
--
--   capacity * b + a < 2^53     level <= full     full - level < 2^53

local function token_bucket(s)
    -- Microseconds, in whole ticks, in which `units` accrue; for ever is 285 years.
    local function span(units)
        return min(INT53_MAX, ceil(units / s.a) * s.tick)
    end

    -- Microseconds from the stamp until the bucket is full: whole ticks, and of the last one only
    -- the part in which a flowing time would have filled it.
    local function fill_time()
        local missing = s.full - s.level
        local ticks = floor(missing / s.a)
        local rest = missing - ticks * s.a
        local part = s.tick - mul_div(s.a - rest, s.tick, s.a) -- rounded up
        return min(INT53_MAX, ticks * s.tick + part)
    end

    -- Without tokens: as if all along just as much had been used as the rate allows.
    local function create(tokens)
        s.level, s.stamp = (tokens or 0) * s.b, s.t
    end

    local function rewind()
        s.stamp = s.t
    end

    -- R0: whole ticks, until the bucket is full.  The stamp moves by what was counted, so no part
    -- of a tick is lost; and what a flowing time would have spilled over the rim within a tick is
    -- not brought again by the next one.
    local function refill()
        local gap = s.t - s.stamp
        if gap >= fill_time() then
            s.level, s.stamp = s.full, s.t
        else
            local ticks = floor(gap / s.tick)
            s.level, s.stamp = s.level + ticks * s.a, s.stamp + ticks * s.tick
        end
    end

    -- R11.  Reservations too deep for the new units keep the old rule until time has lifted the
    -- level.
    local function adopt(rule)
        local whole = floor(s.level / s.b)
        if -whole > floor((INT53_MAX - rule.full) / rule.b) then
            return false
        end
        if whole >= rule.capacity then
            s.level = rule.full
        elseif rule.b ~= s.b then
            s.level = whole * rule.b + mul_div(s.level - whole * s.b, rule.b, s.b)
        end
        if rule.tick ~= s.tick or rule.a ~= s.a or rule.b ~= s.b then
            s.stamp = s.t
        end
        return true
    end

    local function there()
        return floor(s.level / s.b)
    end

    -- By whole ticks, or because the bucket is full before.
    local function due(tokens)
        local short = tokens * s.b - s.level
        if short <= 0 then
            return 0
        end
        return min(span(short), fill_time()) - (s.t - s.stamp)
    end

    -- R12: what is not there yet may be reserved.
    local function exact(tokens, patience)
        local wait = due(tokens)
        local fits = tokens * s.b - s.level <= INT53_MAX - s.full
        return fits and wait <= patience and wait or nil
    end

    local function take(tokens)
        s.level = s.level - tokens * s.b
    end

    -- R12: while the level is reserved ahead only time lifts it, and what comes back is lost.
    local function give(tokens)
        if s.level < 0 then
            return 0
        end
        local units = min(tokens, s.capacity) * s.b
        s.level = units < s.full - s.level and s.level + units or s.full
        return tokens
    end

    local function fill()
        return fill_time() - (s.t - s.stamp)
    end

    s.span, s.start, s.edge = span(s.full), NO_WINDOW, INT53_MAX
    return {
        create = create, rewind = rewind, refill = refill, adopt = adopt, there = there,
        exact = exact, take = take, give = give, due = due, fill = fill,
    }
end
