"""All calls as one face: the words that every door and the SDK have in common."""

from __future__ import annotations

from headrace.calls.batches import BatchCalls
from headrace.calls.groups import GroupCalls
from headrace.calls.letters import LetterCalls
from headrace.calls.looking import LookingCalls
from headrace.calls.overviews import OverviewCalls
from headrace.calls.queues import QueueCalls
from headrace.calls.streams import StreamCalls
from headrace.calls.topics import TopicCalls
from headrace.calls.tracing import TraceCalls
from headrace.calls.transactions import TransactionCalls


class Face(
    TopicCalls,
    BatchCalls,
    StreamCalls,
    QueueCalls,
    GroupCalls,
    LetterCalls,
    TransactionCalls,
    OverviewCalls,
    LookingCalls,
    TraceCalls,
):
    """Put together with an implementation of `Served`, which comes first among
    the bases."""
