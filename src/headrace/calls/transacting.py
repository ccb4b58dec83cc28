"""The three calls of a transaction as one, for who can block."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.calls.transactions import TransactionCalls
from headrace.core.values import Acknowledged, CursorMove, Publication, Published


class Transacting(TransactionCalls):
    def transact(
        self,
        publications: Sequence[Publication],
        moves: Sequence[CursorMove],
        acks: Sequence[Acknowledged],
    ) -> list[list[Published]]:
        """All of it or nothing: the places of what was published, in the order in
        which it was given, or the error for which all of it was aborted."""
        begun = self.begin_transaction(publications, moves, acks)
        try:
            published = self.write_transaction(begun, moves, acks)
        except BaseException:
            self.end_transaction(begun, commits=False)
            raise
        self.end_transaction(begun, commits=True)
        return published
