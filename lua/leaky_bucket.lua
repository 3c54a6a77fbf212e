-- SPDX-License-Identifier: MIT
--
-- The leaky bucket: every admission pours a token in, the bucket leaks at the rate, and what does
-- not fit is refused.  Part of the script that lua/lease.lua describes;
-- src/core/algorithms/leaky_bucket.c is the same in C.
--
-- As a meter it is the token bucket with its level counted from the other end: water is full -
-- level.  It is GCRA too: the theoretical arrival time is t + fill.  So all but the queue is
-- lua/token_bucket.lua.
--
-- As a queue an admission is a slot, and slots leave at the rate.  The level is the slots free; one
-- that is taken leaves when all that were taken before it have.  A slot cannot be given back:
-- whoever came after it has been told its time already.

local QUEUE = 1 -- s.variant

local function leaky_bucket(s)
    local op = token_bucket(s)
    if s.variant ~= QUEUE then
        return op
    end
    local room_due, fill = op.due, op.fill

    function op.exact(tokens, patience)
        local wait = fill()
        return tokens * s.b <= s.level and wait <= patience and wait or nil
    end

    -- R11: who is in the queue leaves when it was told, so it is this time that is kept, and not
    -- the slots that are free; up to what the new units can hold.
    function op.adopt(rule)
        if rule.tick == s.tick and rule.a == s.a and rule.b == s.b then
            s.level = rule.full - (s.full - s.level)
            return true
        end
        local time = fill()
        local ticks = min(floor(time / rule.tick), floor((INT53_MAX - rule.full) / rule.a) - 1)
        local rest = min(time - ticks * rule.tick, rule.tick)
        s.level = rule.full - (ticks + 1) * rule.a + mul_div(rule.tick - rest, rule.a, rule.tick)
        s.stamp = s.t
        return true
    end

    function op.give()
        return 0
    end

    -- Until there is room in the queue, and it is short enough for the asker's patience.
    function op.due(tokens, patience)
        return max(room_due(tokens), fill() - patience)
    end

    s.slots = true
    return op
end
