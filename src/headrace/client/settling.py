"""From what a caller holds to the receipts that settle it.

    a message               its own receipt
    a receipt, as text      itself
    an id                   the lease that this consumer has on that message now
    a list of them          one call, one answer for each

In a list a bad element is an answer in its place; the rest is settled. Alone it
raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headrace.client.backend import Backend, Outcomes
from headrace.client.message import Ending, LeasedView
from headrace.client.outgoing import PublishedMessage
from headrace.client.views import RecordView
from headrace.core.errors import HeadraceError, InvalidArgument, StaleReceipt
from headrace.core.values import MessageId, Receipt

Settleable = LeasedView[Any] | MessageId | PublishedMessage | Receipt | str
# A list may mix them, which a type checker sees as a list of anything.
Settleables = Sequence[LeasedView[Any]] | list[Any]

_SINGLE = (LeasedView, MessageId, PublishedMessage, Receipt, str)

Act = Callable[[list[Receipt]], Outcomes]


def is_single(given: object) -> bool:
    """Whether this is one thing to settle and not a list. Ids are tuples."""
    return isinstance(given, _SINGLE)


def message_id_of(given: object) -> MessageId:
    """The id that a message, a publish's answer, an id or its text stands for."""
    if isinstance(given, MessageId):
        return given
    if isinstance(given, PublishedMessage | RecordView):
        return given.id
    if isinstance(given, str):
        return MessageId.parse(given)
    raise InvalidArgument(f"a message id looks like orders:0:42; {type(given).__name__} is not one")


def _is_leased(given: object) -> bool:
    return isinstance(given, LeasedView)


def _settle_leased(messages: list[LeasedView[Any]], act: Act, ending: Ending | None) -> Outcomes:
    """What nearly every caller settles: a list of messages and nothing else."""
    outcomes = act([message.proof() for message in messages]) if messages else []
    if ending is not None:
        for message, outcome in zip(messages, outcomes, strict=True):
            if outcome is None:
                message.on_settled(ending)
    return outcomes


class Settler:
    """Settles for one consumer of one queue group."""

    def __init__(self, group: str, consumer: str) -> None:
        self._group = group
        self._consumer = consumer

    def settle(
        self, backend: Backend, given: Any, act: Act, *, ending: Ending | None
    ) -> Outcomes | None:
        """`act` on the receipts of what was given. `ending`: what that makes
        of a lease, where it ends it."""
        if is_single(given):
            [outcome] = self._settle_all(backend, [given], act, ending)
            if outcome is not None:
                raise outcome
            return None
        if not isinstance(given, Iterable):
            raise InvalidArgument(
                f"settle a message, its receipt, its id or a list of them, not "
                f"{type(given).__name__}"
            )
        return self._settle_all(backend, list(given), act, ending)

    def _settle_all(
        self, backend: Backend, given: list[Any], act: Act, ending: Ending | None
    ) -> Outcomes:
        if all(map(_is_leased, given)):
            return _settle_leased(given, act, ending)
        proofs = self._proofs(backend, given)
        receipts = [proof for proof in proofs if isinstance(proof, Receipt)]
        answers = iter(act(receipts) if receipts else ())
        outcomes: Outcomes = []
        for item, proof in zip(given, proofs, strict=True):
            outcome = next(answers) if isinstance(proof, Receipt) else proof
            if outcome is None and ending is not None and isinstance(item, LeasedView):
                item.on_settled(ending)
            outcomes.append(outcome)
        return outcomes

    def _proofs(self, backend: Backend, given: list[Any]) -> list[Receipt | HeadraceError]:
        proofs: list[Receipt | HeadraceError] = []
        held: dict[tuple[str, int, int], Receipt] | None = None
        for item in given:
            if isinstance(item, LeasedView):
                proofs.append(item.proof())
                continue
            if isinstance(item, Receipt):
                proofs.append(item)
                continue
            try:
                # A receipt's text has no colon and an id's always does.
                if isinstance(item, str) and ":" not in item:
                    proofs.append(Receipt.parse(item))
                    continue
                place = message_id_of(item)
            except HeadraceError as error:
                proofs.append(error)
                continue
            if held is None:
                held = backend.held(self._group, self._consumer)
            receipt = held.get(place)
            proofs.append(receipt or self._not_held(place))
        return proofs

    def _not_held(self, place: MessageId) -> StaleReceipt:
        return StaleReceipt(
            f"this consumer, {self._consumer}, has no lease on {place} in group {self._group}"
        )
