"""Fetch sessions: what is remembered between requests, and for how long."""

from __future__ import annotations

from itertools import count

from headrace.server.kafka.errors import Error
from headrace.server.kafka.fetch_session import FetchSession, FetchSessions
from headrace.wire.kafka.generated.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)


def sessions(sessions_max: int = 10, partitions_max: int = 100) -> FetchSessions:
    numbers = count(1)
    return FetchSessions(
        lambda: next(numbers), sessions_max=sessions_max, partitions_max=partitions_max
    )


def request(
    session_id: int, epoch: int, *indexes: int, forgotten: tuple[int, ...] = (), offset: int = 0
) -> FetchRequest:
    partitions = tuple(FetchPartition(index, fetch_offset=offset) for index in indexes)
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=(FetchTopic("orders", partitions=partitions),) if indexes else (),
        forgotten_topics_data=(ForgottenTopic("orders", partitions=forgotten),)
        if forgotten
        else (),
    )


def indexes_of(session: FetchSession | Error) -> list[int]:
    assert isinstance(session, FetchSession)
    return [index for _, _, index in session.wanted]


def begin(known: FetchSessions, *indexes: int) -> int:
    session = known.find(request(0, 0, *indexes))
    assert isinstance(session, FetchSession)
    return session.id


def test_without_a_session_nothing_is_remembered() -> None:
    known = sessions()
    session = known.find(request(0, -1, 0, 1))
    assert indexes_of(session) == [0, 1]
    assert isinstance(session, FetchSession)
    assert session.id == 0
    assert len(known) == 0


def test_a_session_remembers_what_later_requests_leave_out() -> None:
    known = sessions()
    session_id = begin(known, 0, 1)
    assert indexes_of(known.find(request(session_id, 1))) == [0, 1]


def test_a_request_adds_changes_and_forgets_partitions() -> None:
    known = sessions()
    session_id = begin(known, 0, 1)
    session = known.find(request(session_id, 1, 1, 2, forgotten=(0,), offset=7))
    assert indexes_of(session) == [1, 2]
    assert isinstance(session, FetchSession)
    assert {each.fetch_offset for each in session.wanted.values()} == {7}


def test_an_epoch_out_of_turn_is_refused_and_changes_nothing() -> None:
    known = sessions()
    session_id = begin(known, 0)
    assert known.find(request(session_id, 2, 5)) is Error.INVALID_FETCH_SESSION_EPOCH
    assert indexes_of(known.find(request(session_id, 1))) == [0]
    assert known.find(request(session_id, 1)) is Error.INVALID_FETCH_SESSION_EPOCH


def test_an_unknown_session_is_refused() -> None:
    assert sessions().find(request(99, 1)) is Error.FETCH_SESSION_ID_NOT_FOUND


def test_the_final_epoch_ends_the_session_and_is_answered_without_one() -> None:
    known = sessions()
    session_id = begin(known, 0)
    session = known.find(request(session_id, -1, 3))
    assert isinstance(session, FetchSession)
    assert session.id == 0
    assert known.find(request(session_id, 1)) is Error.FETCH_SESSION_ID_NOT_FOUND


def test_epoch_zero_with_an_id_replaces_that_session() -> None:
    known = sessions()
    session_id = begin(known, 0)
    session = known.find(request(session_id, 0, 4))
    assert isinstance(session, FetchSession)
    assert session.id not in (0, session_id)
    assert len(known) == 1


def test_the_epoch_after_the_largest_is_one() -> None:
    known = sessions()
    session_id = begin(known, 0)
    session = known.find(request(session_id, 1))
    assert isinstance(session, FetchSession)
    session.epoch = 2**31 - 1
    assert known.find(request(session_id, 2**31 - 1)) is session
    assert known.find(request(session_id, 1)) is session


def test_the_longest_idle_session_gives_way() -> None:
    known = sessions(sessions_max=2)
    first, second = begin(known, 0), begin(known, 0)
    known.find(request(first, 1))
    begin(known, 0)
    assert known.find(request(second, 1)) is Error.FETCH_SESSION_ID_NOT_FOUND
    assert indexes_of(known.find(request(first, 2))) == [0]


def test_partitions_of_all_sessions_together_are_bounded() -> None:
    known = sessions(partitions_max=5)
    first = begin(known, 0, 1, 2)
    second = begin(known, 0, 1)
    assert len(known) == 2
    known.find(request(second, 1, 2, 3))
    assert known.find(request(first, 1)) is Error.FETCH_SESSION_ID_NOT_FOUND
    assert len(known) == 1


def test_a_session_too_large_to_remember_is_answered_without_one() -> None:
    known = sessions(partitions_max=2)
    assert begin(known, 0, 1, 2) == 0
    assert len(known) == 0
