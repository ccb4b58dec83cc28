"""Requests that are over: which of them are written down, and how."""

from __future__ import annotations

import logging
from time import perf_counter

import pytest

from headrace.server.kafka.answer_errors import error_codes, name_of
from headrace.server.metrics.counting import Counts
from headrace.server.requests import Requests, accepted_id
from headrace.wire.kafka.generated.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from headrace.wire.kafka.generated.heartbeat_response import HeartbeatResponse
from headrace.wire.kafka.generated.share_acknowledge_response import ShareAcknowledgeResponse


def ago(seconds: float) -> float:
    return perf_counter() - seconds


@pytest.fixture
def counts() -> Counts:
    return Counts()


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, object]]:
    return [vars(record) for record in caplog.records if vars(record)["event"] == event]


def test_a_slow_request_is_written_with_who_asked(
    counts: Counts, caplog: pytest.LogCaptureFixture
) -> None:
    requests = Requests(counts, slow_ms=500)
    endpoint = counts.endpoint("http", "GET /topics")
    requests.done(endpoint, ago(0.0), who={"request_id": "quick"})
    requests.done(endpoint, ago(60.0), who={"request_id": "slow"}, code="disk-full")
    (line,) = lines(caplog, "slow request")
    assert (line["door"], line["api"], line["request_id"]) == ("http", "GET /topics", "slow")
    assert line["code"] == "disk-full"
    assert float(str(line["ms"])) >= 60_000
    assert sum(endpoint.latency.counts) == 2
    assert endpoint.errors == {"disk-full": 1}


def test_who_has_looked_at_the_clock_is_believed(
    counts: Counts, caplog: pytest.LogCaptureFixture
) -> None:
    """Between two looks a poll that waited almost as long could become slow, of which nobody
    has said then who it was and what it had asked to wait."""
    requests = Requests(counts, slow_ms=500)
    requests.done(counts.endpoint("kafka", "Fetch"), ago(0.6), seconds=0.499)
    assert lines(caplog, "slow request") == []


def test_of_many_slow_requests_one_line_tells(
    counts: Counts, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("headrace.server.requests.perf_counter", lambda: now)
    requests = Requests(counts, slow_ms=500)
    endpoint = counts.endpoint("kafka", "Produce")
    for _ in range(3):
        requests.done(endpoint, now - 2.0)
    now = 102.0
    requests.done(endpoint, now - 2.0)
    assert [line["not_written_before"] for line in lines(caplog, "slow request")] == [0, 2]


def test_what_a_request_asked_to_wait_does_not_make_it_slow(
    counts: Counts, caplog: pytest.LogCaptureFixture
) -> None:
    requests = Requests(counts, slow_ms=500)
    requests.done(counts.endpoint("kafka", "Fetch"), ago(30.2), waited_ms=30_000)
    assert not lines(caplog, "slow request")


def test_no_request_is_slow_where_that_was_asked_for(
    counts: Counts, caplog: pytest.LogCaptureFixture
) -> None:
    Requests(counts, slow_ms=0).done(counts.endpoint("kafka", "Fetch"), ago(3600))
    assert not caplog.records


def test_every_request_is_written_where_that_was_asked_for(
    counts: Counts, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace.requests")
    requests = Requests(counts, access=True)
    endpoint = counts.endpoint("grpc", "Queues/Lease")
    for number in range(3):
        requests.done(endpoint, ago(0.0), who={"request_id": str(number)})
    assert [line["request_id"] for line in lines(caplog, "request")] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("abc-1", "abc-1"),
        ("", ""),
        ("ü", ""),
        ("x" * 128, "x" * 128),
        ("x" * 129, ""),
        ("a\nb", ""),
        ("a level=critical", ""),
        ('a","level":"critical', ""),
        ("00-4bf92f3577b34da6:1/x+y=@_.", "00-4bf92f3577b34da6:1/x+y=@_."),
    ],
)
def test_an_id_of_a_request_is_short_and_one_word(given: str, expected: str) -> None:
    assert accepted_id(given) == expected


def test_errors_are_found_wherever_an_answer_has_them() -> None:
    answer = FetchResponse(
        error_code=70,
        responses=(
            FetchableTopicResponse(
                "orders", bytes(16), (PartitionData(0), PartitionData(1, error_code=1))
            ),
            FetchableTopicResponse("refunds", bytes(16), (PartitionData(0, error_code=1),)),
        ),
    )
    assert sorted(error_codes(answer)) == [1, 1, 70]
    assert error_codes(FetchResponse()) == []
    assert error_codes(HeartbeatResponse(error_code=27)) == [27]
    assert error_codes(ShareAcknowledgeResponse(error_code=-1)) == [-1]


def test_an_error_goes_by_the_name_that_kafka_has_for_it() -> None:
    assert name_of(3) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert name_of(12345) == "12345"
