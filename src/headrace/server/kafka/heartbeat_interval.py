"""How often members of a group with assignment by the broker call, which is ours to say.

A rebalance takes up to two such intervals (one in which the former owner hears of it, one in
which the next does), so while the node has few clients they call often, and more often still
in a rebalance. With many clients the interval grows, so that heartbeats do not become the
node's main work. Where an interval was chosen, for the group or for the node, it is that one.
"""

from __future__ import annotations

from headrace.server.kafka.door import Call

STABLE_INTERVAL_MS = 500
REBALANCE_INTERVAL_MS = 100
INTERVAL_MS_MAX = 5_000
# What every connection adds: at most 200 heartbeats a second for all of them, until
# the interval has grown to its maximum.
INTERVAL_MS_PER_CONNECTION = 5


def interval_ms(call: Call, name: str, config: str, chosen_ms: int, *, is_settled: bool) -> int:
    """For the group of this name; `config` is what the interval is called, and `chosen_ms`
    what it is where it was chosen."""
    if call.door.live.is_told(name, config):
        return chosen_ms
    wanted = len(call.door.connections) * INTERVAL_MS_PER_CONNECTION
    if wanted >= STABLE_INTERVAL_MS:
        return min(wanted, INTERVAL_MS_MAX)
    return max(STABLE_INTERVAL_MS if is_settled else REBALANCE_INTERVAL_MS, wanted)
