"""Turns: which requests of one connection may be under way together.

Kafka handles the requests of a connection one after the other, and a client that sends
several without waiting counts on it: what it asks behind its own write sees that write.
So a request starts when all before it are answered, with these exceptions:

    behind \\ under way    Produce    Fetch       ShareFetch    any other
    the same API          starts     starts      waits         waits
    any other API         waits      ends it     ends it       waits
    a call of our SDK     starts, whatever is under way; and nothing waits for it

Produce behind Produce: what they append is in the order of the requests, and one sync
serves them all. Their answers go out in that order. One that has to wait before it can
append, for the note of its transaction or for a thread that looks into its batches, or that
is appended in parts, keeps those behind it waiting until then.

Fetch behind Fetch: both only read. The earlier one may look again later, so its answer
may show more than that of the one behind it.

"Ends it": Kafka keeps the request behind a long poll waiting until the poll is over. Here
a poll that waits for data is answered with what there is, which the protocol allows at
any time, and the request behind it starts then. It is not done for the same API: two
polls would end each other for ever.

Calls of our SDK come from many threads over one link and start in the order in which
they arrive. A thread that waits for the answer to a call before it makes the next one
sees its own writes; calls that are under way together have no order.

Rejected: Kafka's own rule, one request at a time. A Produce would wait for the sync of
the one before it, and every sync would serve one request of a connection.
"""

from __future__ import annotations

from typing import Final

from headrace.wire.remote.methods import API_KEY

PRODUCE: Final = 0
FETCH: Final = 1
SHARE_FETCH: Final = 78

# Requests of these may be under way with others of the same API.
OVERLAPPING: Final = frozenset((PRODUCE, FETCH))
# Those that may wait for data, and end when a request of another API stands behind them.
POLLS: Final = frozenset((FETCH, SHARE_FETCH))


def may_start(key: int, under_way: int) -> bool:
    """Whether a request of API `key` may start while requests of API `under_way`, which
    came before it, are not answered."""
    return key == API_KEY or (key == under_way and key in OVERLAPPING)


def ends_polls(key: int, under_way: int) -> bool:
    """Whether the polls that are under way end because this request waits for them."""
    return under_way in POLLS and key != under_way
