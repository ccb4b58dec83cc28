"""When a fetch waits for data, and when there is nothing to wait for."""

from __future__ import annotations

from tests.unit.server.asking import Asking, run

from headrace.core.settings import TopicSettings
from headrace.platform.memory_disk import MemoryDisk
from headrace.wire.kafka.generated.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)

FETCH, VERSION = 1, 12
FINAL_EPOCH = -1


def fetch(session_id: int, epoch: int, *, is_of_orders: bool) -> FetchRequest:
    orders = FetchTopic("orders", partitions=(FetchPartition(0, partition_max_bytes=10**6),))
    return FetchRequest(
        max_wait_ms=30_000,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=(orders,) if is_of_orders else (),
    )


async def waiting_session(asking: Asking) -> int:
    """A session with an empty partition; its id."""
    asking.broker.topics.create("orders", 1, TopicSettings(), 0)
    opened = fetch(0, 0, is_of_orders=True)._replace(max_wait_ms=0)
    session_id = (await asking.ask(FETCH, VERSION, opened)).session_id
    assert session_id
    return int(session_id)


def test_the_fetch_with_which_a_closing_client_ends_its_session_is_answered_at_once() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        session_id = await waiting_session(asking)
        # Time stands still here: an answer that waits for it never comes.
        answer = await asking.ask(
            FETCH, VERSION, fetch(session_id, FINAL_EPOCH, is_of_orders=False)
        )
        assert (answer.error_code, answer.session_id, answer.responses) == (0, 0, ())

    run(scenario)


def test_a_session_without_partitions_is_answered_at_once() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        session_id = await waiting_session(asking)
        forgetting = fetch(session_id, 1, is_of_orders=False)._replace(
            forgotten_topics_data=(ForgottenTopic("orders", partitions=(0,)),)
        )
        answer = await asking.ask(FETCH, VERSION, forgetting)
        assert (answer.error_code, answer.session_id, answer.responses) == (0, session_id, ())

    run(scenario)


def test_a_session_with_partitions_waits_although_the_request_names_none() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        session_id = await waiting_session(asking)
        asked = asking.begin(FETCH, VERSION, fetch(session_id, 1, is_of_orders=False))
        await asking.skip(29)
        assert not asked.done()
        await asking.skip(1)
        assert (await asked).responses == ()

    run(scenario)
