"""Leasing from a node elsewhere: in its line, and without losing an answer.

    lease, nonce 7 ---> node: leased under 7 ---x   the answer is lost
    give_back 7 ------> node: released, no attempt counted
    lease, nonce 8 ---> ...

A node keeps the leases of a client whose connection broke, for a while. So what was
leased and never heard of has to be given back, by the one thing that both know: the
nonce that the client chose. It stands in the node's log, so this works after a restart
of the node too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial

from headrace.client.backend import LeaseAnswered
from headrace.client.caller import Caller
from headrace.client.link import Pending
from headrace.client.waiting import new_nonce
from headrace.core.errors import Disconnected, HeadraceError
from headrace.core.values import Delivery, LeaseRequest
from headrace.wire.remote.codec import decode_answer, encode_request


class LeaseCaller(Caller):
    def lease(
        self,
        group: str,
        topics: Sequence[str],
        consumer: str,
        count: int,
        *,
        visibility_ms: int | None = None,
    ) -> list[Delivery]:
        return self.lease_in_line(LeaseRequest(group, topics, consumer, count, visibility_ms))

    def lease_in_line(self, wanted: LeaseRequest) -> list[Delivery]:
        retries = self._retries()
        while True:
            nonce = new_nonce()
            request = encode_request("lease", wanted._replace(nonce=nonce))
            pending = self._send(request, retries)
            try:
                return _leased(pending)
            except Disconnected:
                if self._closed.is_set() or not next(retries):
                    raise
                # What was leased and never heard of is held until we say so.
                self.give_back(wanted.group, wanted.consumer, [nonce])
            except HeadraceError:
                raise
            except BaseException:
                # Whoever waited was interrupted.
                with contextlib.suppress(HeadraceError):
                    self.give_back(wanted.group, wanted.consumer, [nonce])
                raise

    def begin_lease(self, wanted: LeaseRequest, on_answered: LeaseAnswered) -> None:
        request = encode_request("lease", wanted)
        self._send(request, self._retries(), lambda pending: on_answered(partial(_leased, pending)))

    def give_back(self, group: str, consumer: str, nonces: Sequence[int]) -> None:
        self._call("give_back", group, consumer, nonces)


def _leased(pending: Pending) -> list[Delivery]:
    leased: list[Delivery] = decode_answer("lease", pending.wait())
    return leased
