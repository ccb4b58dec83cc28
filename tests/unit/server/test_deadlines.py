"""What waits for the disk ends by the deadline of its request, in the words of its protocol;
what was begun goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.server import connected
from tests.unit.server.connected import Producing
from tests.unit.server.test_loop_calls import GROUP, TOPIC, Served, let_others_run, on_a_loop
from tests.unit.server.test_produce_runs import batch_of

from headrace.calls import Face
from headrace.core.errors import DeadlineExceeded, Disconnected
from headrace.core.request_context import ANONYMOUS, NODE, REQUEST_SECONDS_MAX, RequestContext
from headrace.core.values import Outgoing
from headrace.server.grpc.statuses import status_of as grpc_status_of
from headrace.server.http.problems import status_of as http_status_of
from headrace.server.kafka import request_time
from headrace.server.kafka.errors import Error
from headrace.server.loop_calls import Calls
from headrace.server.service import Service
from headrace.wire.kafka.api import decode_response, encode_request
from headrace.wire.kafka.frame import decode_response_header, encode_request_frame
from headrace.wire.kafka.generated.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.wire.kafka.generated.create_topics_request import CreatableTopic, CreateTopicsRequest
from headrace.wire.kafka.generated.delete_topics_request import DeleteTopicsRequest
from headrace.wire.kafka.generated.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.remote.codec import error_of
from headrace.wire.remote.methods import refusal_of


class Held:
    """A disk whose syncs are over when the test says so."""

    def __init__(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        self._waiting: list[Callable[[], None]] = []
        self._is_held = True
        threads: Any = service.commits._threads
        sync = threads.sync

        def hold(*args: Any) -> None:
            if self._is_held:
                self._waiting.append(lambda: sync(*args))
            else:
                sync(*args)

        monkeypatch.setattr(threads, "sync", hold)

    def let_go(self) -> None:
        self._is_held = False
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        # A node does not close before its disk is done.
        self.let_go()


def asked(calls: Calls, seconds: float) -> Calls:
    deadline = calls.service.loop.time() + seconds
    return calls.asked_by(RequestContext(ANONYMOUS, deadline, "request-1"))


def test_a_call_ends_by_its_deadline_and_what_it_wrote_is_there_when_the_disk_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        waiting = asyncio.ensure_future(served.wait_for_lease())
        await let_others_run()
        with Held(served.service, monkeypatch) as disk:
            with pytest.raises(DeadlineExceeded):
                await asked(served.calls, 0.01).run(Face.publish, TOPIC, [Outgoing(b"late")])
            assert not waiting.done()
            disk.let_go()
            [delivery] = await waiting
            assert delivery.value == b"late"

    on_a_loop(scenario)


def test_what_a_call_would_have_told_others_they_are_told_when_the_disk_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        told = asyncio.Event()
        served.service.watch(told.set)
        with Held(served.service, monkeypatch) as disk:
            with pytest.raises(DeadlineExceeded):
                await asked(served.calls, 0.01).run(Face.delete_topic, TOPIC)
            assert not told.is_set()
            disk.let_go()
            await told.wait()

    on_a_loop(scenario)


def test_calls_that_are_done_in_time_share_one_timer() -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        calls = [asked(served.calls, 60 + number) for number in range(20)]
        publishing = [each.run(Face.publish, TOPIC, [Outgoing(b"x")]) for each in calls]
        await asyncio.gather(*publishing)
        loop: Any = served.service.loop
        left = [each for each in loop._scheduled if not each.cancelled()]
        assert sum("_end_late" in repr(each) for each in left) == 1

    on_a_loop(scenario)


def test_who_has_more_time_waits_on_when_another_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        with Held(served.service, monkeypatch) as disk:
            patient = asyncio.ensure_future(
                asked(served.calls, 60).run(Face.publish, TOPIC, [Outgoing(b"one")])
            )
            hasty = [
                asked(served.calls, seconds).run(Face.publish, TOPIC, [Outgoing(b"two")])
                for seconds in (0.02, 0.01)
            ]
            outcomes = await asyncio.gather(*hasty, return_exceptions=True)
            assert [type(each) for each in outcomes] == [DeadlineExceeded] * 2
            assert not patient.done()
            disk.let_go()
            await patient

    on_a_loop(scenario)


def test_a_call_knows_who_asks_and_until_when() -> None:
    async def scenario(served: Served) -> None:
        now = served.service.loop.time()
        context = RequestContext(ANONYMOUS, now + 5, "request-1")
        assert await served.calls.asked_by(context).run(lambda face: face.context) == context
        # Without a deadline of its own it has the longest.
        ours = await served.calls.run(lambda face: face.context)
        assert ours.principal == NODE
        assert 0 <= ours.deadline - now - REQUEST_SECONDS_MAX < 5

    on_a_loop(scenario)


def test_calls_in_steps_keep_their_own_context_while_others_are_carried_out_between() -> None:
    async def scenario(served: Served) -> None:
        calls = served.calls.asked_by(RequestContext(ANONYMOUS, request_id="steps"))

        def steps(face: Face) -> Any:
            seen = [face.context.request_id]
            yield
            seen.append(face.context.request_id)
            return seen

        going = asyncio.ensure_future(calls.run_in_slices(steps))
        await served.run(Face.topics)
        assert await going == ["steps", "steps"]

    on_a_loop(scenario)


def test_every_protocol_has_its_own_word_for_it() -> None:
    error = DeadlineExceeded("late")
    assert http_status_of(error) == 504
    assert grpc_status_of(error).name == "DEADLINE_EXCEEDED"
    assert error.retriable


@pytest.mark.parametrize("count", [1, 3], ids=["alone", "a run"])
def test_a_produce_request_is_answered_when_its_time_is_over_and_its_records_are_kept(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(bench: Producing) -> None:
        # The first of them teaches the door what a run has in common.
        bench.send(bench.request(batch_of(b"safe"), timeout_ms=10))
        assert (await bench.answers(1))[0][1] in (0, Error.REQUEST_TIMED_OUT)
        with Held(bench.service, monkeypatch) as disk:
            requests = [bench.request(batch_of(b"late"), timeout_ms=10) for _ in range(count)]
            bench.send(b"".join(requests))
            codes = [code for _, code, _ in await bench.answers(count)]
            assert codes == [Error.REQUEST_TIMED_OUT] * count
            disk.let_go()
            await bench.service.finish(bench.service.commit())
            assert bench.stored() == [b"safe"] + [b"late"] * count

    connected.play(partial(Producing), scenario)


def test_a_patient_produce_request_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: Producing) -> None:
        with Held(bench.service, monkeypatch) as disk:
            # A client that says nothing sensible has the time of any request.
            bench.send(bench.request(batch_of(b"one"), timeout_ms=-1))
            await let_others_run()
            assert not bench.line.sent
            disk.let_go()
            assert [code for _, code, _ in await bench.answers(1)] == [0]

    connected.play(partial(Producing), scenario)


def test_a_request_of_kafkas_door_carries_who_asks_and_when_its_client_gives_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []

    async def scenario(bench: Producing) -> None:
        handlers = bench.door.handlers

        def note(call: Any, _: Any) -> None:
            seen.append((call.context, bench.service.loop.time()))

        bench.door.handlers = {**handlers, 0: note}
        bench.connection.context = RequestContext(ANONYMOUS._replace(name="alice"))
        bench.send(bench.request(batch_of(b"x"), timeout_ms=7_000))
        bench.send(bench.request(batch_of(b"x"), timeout_ms=10**9))

    connected.play(partial(Producing), scenario)
    [(first, now), (second, _)] = seen
    assert (first.principal.name, first.request_id, second.request_id) == ("alice", 1, 2)
    assert 6 < first.deadline - now <= 7
    # No client has the node wait for longer than any request may.
    assert first.deadline < second.deadline <= now + REQUEST_SECONDS_MAX + 1


def test_a_call_of_grpc_has_the_deadline_that_its_client_set() -> None:
    from headrace.core.node_settings import NodeSettings
    from headrace.server.grpc.measured import Measured
    from headrace.server.grpc.places import Places

    async def scenario(served: Served) -> None:
        service = served.service
        measured = Measured(service, Places(service, NodeSettings()), "Queues/Lease")
        context = SimpleNamespace(
            invocation_metadata=tuple,
            peer=lambda: "ipv4:10.0.0.1:5000",
            time_remaining=lambda: 7.0,
        )
        now = service.loop.time()
        call = measured.call(context).calls.context
        assert call.principal == ANONYMOUS
        assert 6 < call.deadline - now < 8
        context.time_remaining = lambda: 10**6
        assert measured.call(context).calls.context.deadline <= now + REQUEST_SECONDS_MAX + 1

    on_a_loop(scenario)


def test_an_ack_whose_caller_had_no_patience_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        await served.publish(b"one")
        [delivery] = await served.lease()
        with Held(served.service, monkeypatch) as disk:
            with pytest.raises(DeadlineExceeded):
                await asked(served.calls, 0.01).run(Face.ack, GROUP, [delivery.receipt])
            disk.let_go()
            await served.publish(b"two")
            await served.run(Face.nack, GROUP, [delivery.receipt])
            assert [each.value for each in await served.lease()] == [b"two"]

    on_a_loop(scenario)


def test_a_client_of_ours_takes_it_for_what_it_is_an_unknown_outcome() -> None:
    assert isinstance(error_of(refusal_of(DeadlineExceeded("late"))), Disconnected)


CREATE, DELETE, GROW, CONFIGS = 19, 20, 37, 44
LATE: dict[int, tuple[int, Any]] = {
    CREATE: (
        7,
        CreateTopicsRequest((CreatableTopic("made", 1, 1, (), ()),), timeout_ms=10),
    ),
    DELETE: (5, DeleteTopicsRequest(topic_names=("orders",), timeout_ms=10)),
    GROW: (3, CreatePartitionsRequest((CreatePartitionsTopic("orders", 3, None),), timeout_ms=10)),
}


def asked_of_kafka(key: int, version: int, request: Any) -> bytes:
    body = encode_request(key, version, request)
    return b"".join(encode_request_frame(key, version, 1, "admin", body))


@pytest.mark.parametrize("key", LATE, ids=["create", "delete", "grow"])
def test_what_an_admin_client_gives_up_waiting_for_is_told_as_late_and_done_all_the_same(
    key: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    version, request = LATE[key]

    async def scenario(bench: Producing) -> None:
        with Held(bench.service, monkeypatch) as disk:
            bench.send(asked_of_kafka(key, version, request))
            async with asyncio.timeout(connected.PATIENCE_SECONDS):
                while not (frames := bench.line.frames()):
                    await asyncio.sleep(0)
            answer: Any = decode_response(
                key, version, frames[0], decode_response_header(key, version, frames[0])[1]
            )
            [result] = next(each for each in answer if isinstance(each, (list, tuple)))
            assert result.error_code == Error.REQUEST_TIMED_OUT
            disk.let_go()
            await bench.service.finish(bench.service.commit())
            found = {
                name: each.partitions for name, each in bench.broker.topics.catalog.topics.items()
            }
            expected = {CREATE: {"orders": 2, "made": 1}, DELETE: {}, GROW: {"orders": 3}}[key]
            assert {name: each for name, each in found.items() if name[0] != "_"} == expected

    connected.play(partial(Producing), scenario)


def test_an_answer_without_a_word_for_it_ends_the_connection_and_is_no_fault_of_ours(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(request_time, "REQUEST_SECONDS_MAX", 0.01)
    config = AlterableConfig("retention.ms", 0, "1000")
    resource = AlterConfigsResource(2, "orders", (config,))

    async def scenario(bench: Producing) -> None:
        with Held(bench.service, monkeypatch) as disk:
            bench.send(asked_of_kafka(CONFIGS, 1, IncrementalAlterConfigsRequest((resource,))))
            async with asyncio.timeout(connected.PATIENCE_SECONDS):
                while bench.line.ended is None:
                    await asyncio.sleep(0)
            disk.let_go()

    connected.play(partial(Producing), scenario)
    assert not [each for each in caplog.records if each.levelname == "ERROR"]
