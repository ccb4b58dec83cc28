"""What every request carries from its door to the engine's calls: who asks, and until when.

    door    a connection's principal,       made once for each
            and the time that a request has
              |
    calls   Served.context                  in every call, whichever door it came by

Rejected: a context variable. It is copied for each task, looked up by name where it is needed,
and a call that forgot to set it would silently act for the request before it.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from headrace.core import limits

# A deadline that never comes.
NEVER: Final = math.inf
REQUEST_SECONDS_MAX: Final = limits.REQUEST_MS_MAX / 1000


class Principal(NamedTuple):
    """Who asks, in the words of Kafka's permissions."""

    kind: str
    name: str


# Who comes without a name, as everybody does for now.
ANONYMOUS: Final = Principal("User", "ANONYMOUS")
# What no client asked for: a grace that is over, a member that was not heard of. And the
# process of an embedded node, which has its directory.
NODE: Final = Principal("Node", "")


class RequestContext(NamedTuple):
    """One for a connection, or for a request that has a deadline or an id of its own."""

    principal: Principal
    # When whoever asked waits no more, in seconds of the event loop's clock, which nobody
    # sets. A call that is given NEVER has `limits.REQUEST_MS_MAX` from its beginning.
    deadline: float = NEVER
    # What the client knows its request by: a text, or the number of a frame.
    request_id: str | int = ""

    def until(self, deadline: float) -> RequestContext:
        return RequestContext(self.principal, deadline, self.request_id)


BY_ANYONE: Final = RequestContext(ANONYMOUS)
BY_NODE: Final = RequestContext(NODE)
