"""The error codes: complete, described, and what Kafka's client makes of them."""

from __future__ import annotations

from headrace.wire.kafka.errors import ErrorCode, error_code

# As Kafka's Java client of version 4.3 takes them.
REFRESH_AND_RETRY = {3, 5, 6, 9, 13, 56, 72, 74, 80, 83, 84, 100, 103}
RETRY = {2, 7, 14, 15, 16, 19, 20, 41, 51, 70, 71, 75, 78, 88, 89, 106, 122, 123, 133}


def test_every_code_from_the_first_to_the_last_has_a_name() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 134))


def test_what_may_be_tried_again_is_what_kafka_tries_again() -> None:
    assert {int(code) for code in ErrorCode if code.retriable} == REFRESH_AND_RETRY | RETRY


def test_every_code_is_described_in_a_sentence_of_its_own() -> None:
    descriptions = [code.description for code in ErrorCode]
    assert len(set(descriptions)) == len(descriptions)
    assert all(text[-1] == "." and len(text) < 80 for text in descriptions)


def test_a_code_from_a_newer_broker_is_an_unknown_error() -> None:
    assert error_code(16) is ErrorCode.NOT_COORDINATOR
    assert error_code(9_999) is ErrorCode.UNKNOWN_SERVER_ERROR
