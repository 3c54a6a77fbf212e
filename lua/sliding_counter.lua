-- SPDX-License-Identifier: MIT
--
-- The sliding window counter: two counts, of this period and of the one before, and of the latter
-- only the part that a window of one period's length still covers, as if its admissions had been
-- spread evenly.  Part of the script that lua/lease.lua describes;
-- src/core/algorithms/sliding_counter.c is the same in C.
--
--   s.level  used in the period that began at s.stamp
--   s.extra  used in the one before
--
--   admitted while   extra * (period - e) / period + level + tokens <= capacity,   e = t - stamp
--
-- The first term is rounded up.  Periods are half-open and aligned to the epoch.

local function sliding_counter(s)
    local function load(text)
        s.extra = tonumber(text)
        return s.extra
    end

    -- The period that holds t.
    local function enter(rule)
        local e = s.t % rule.period
        s.start, s.edge = s.t - e, rule.period - e
    end

    -- Of the period before, what still counts.
    local function carried()
        return s.extra - mul_div(s.t - s.stamp, s.extra, s.period)
    end

    -- How far into a period all but `room` of the period before it has ceased to count.
    local function ebb(before, room)
        local at, rest = mul_div(before - room, s.period, before)
        return rest > 0 and at + 1 or at
    end

    -- Without tokens: as if all along just as much had been used as the rate allows.
    local function create(tokens)
        enter(s)
        s.stamp = s.start
        if tokens then
            s.level, s.extra = s.capacity - tokens, 0
        else
            s.level, s.extra = mul_div(s.t - s.stamp, s.capacity, s.period), s.capacity
        end
    end

    local function rewind()
        enter(s)
        s.stamp = s.start
    end

    local function refill()
        enter(s)
        if s.start > s.stamp then
            s.extra = s.start - s.stamp == s.period and s.level or 0
            s.level, s.stamp = 0, s.start
        end
    end

    -- R11: what was used stays used.
    local function adopt(rule)
        if rule.period ~= s.period then
            s.level, s.extra = s.level + carried(), 0
            enter(rule)
            s.stamp = s.start
        end
        return true
    end

    local function there()
        return s.capacity - s.level - carried()
    end

    local function exact(tokens)
        return tokens <= there() and 0 or nil
    end

    local function take(tokens)
        s.level = s.level + tokens
    end

    -- Only into the period that it came from.
    local function give(tokens, _, ago)
        if ago == 0 then
            s.level = max(0, s.level - tokens)
        elseif ago == 1 then
            s.extra = max(0, s.extra - tokens)
        else
            return 0
        end
        return tokens
    end

    local function due(tokens)
        if tokens <= there() then
            return 0
        end
        local room = s.capacity - tokens
        local at = s.level <= room and ebb(s.extra, room - s.level)
            or s.period + ebb(s.level, room)
        return s.stamp + at - s.t
    end

    local function fill()
        local at = s.level > 0 and 2 * s.period or s.extra > 0 and s.period or 0
        return at > 0 and s.stamp + at - s.t or 0
    end

    s.span = 2 * s.period
    return {
        load = load, create = create, rewind = rewind, refill = refill, adopt = adopt,
        there = there, exact = exact, take = take, give = give, due = due, fill = fill,
    }
end
