"""Patterns from clients are bounded: counted in visits of states, never by a clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.engine.coordinator.conftest import ConsumerTalk, topic_id, topics

from headrace.core import limits
from headrace.core.errors import InvalidArgument
from headrace.engine.coordinator.topic_pattern import TopicPattern
from headrace.engine.coordinator.values import GroupError

SESSION_MS = 45_000
# Nearly as many states as there may be, and all of them are reached all the time.
HEAVY = "(.*)" * 120 + "x"
LONG_NAMES = [f"{'a' * 200}{number}" for number in range(30)]


class Counted:
    def __init__(self) -> None:
        self.visits = 0

    def take(self) -> int:
        visits, self.visits = self.visits, 0
        return visits


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    """Every state that any pattern visits."""
    count = Counted()
    spread = TopicPattern._spread

    def counting(self: TopicPattern, *arguments: object) -> set[int]:
        reached: set[int] = spread(self, *arguments)  # type: ignore[arg-type]
        count.visits += len(reached)
        return reached

    monkeypatch.setattr(TopicPattern, "_spread", counting)
    yield count


def test_a_heartbeat_or_tick_does_a_bounded_amount_of_matching(counted: Counted) -> None:
    talk = ConsumerTalk(topics(**dict.fromkeys([*LONG_NAMES, "aax"], 1)))
    joined = talk.join("a", "none", subscribed_topic_regex=HEAVY)
    assert joined.error is GroupError.NONE
    turns = [counted.take()]
    catalog = dict(talk.catalog)
    assert talk.group.state() == "Assigning"
    while talk.group.is_behind():
        talk.group.tick(talk.now_ms, catalog)
        turns.append(counted.take())
    assert max(turns) < limits.TOPIC_PATTERN_VISITS_PER_TURN + 2 * limits.TOPIC_PATTERN_STATES_MAX
    assert sum(turns) > 100 * limits.TOPIC_PATTERN_VISITS_PER_TURN
    talk.beat("a")
    assert talk.owned["a"] == ((topic_id("aax"), (0,)),)
    assert talk.group.state() == "Stable"


def test_a_name_is_matched_once_and_only_new_names_are_work(counted: Counted) -> None:
    talk = ConsumerTalk(topics(orders_eu=1, orders_us=1))
    talk.join("a", "none", subscribed_topic_regex="orders_.*")
    assert counted.take()
    talk.beat("a")
    assert not counted.take()
    talk.catalog.update(topics(orders_jp=1))
    talk.beat("a")
    assert 0 < counted.take() < 10 * len("orders_jp")
    assert len(talk.owned["a"]) == 3


def test_topics_that_matched_stay_assigned_while_new_ones_are_matched() -> None:
    talk = ConsumerTalk(topics(aax=1))
    talk.join("a", "none", subscribed_topic_regex=HEAVY)
    assert talk.owned["a"] == ((topic_id("aax"), (0,)),)
    talk.catalog.update(topics(**dict.fromkeys(LONG_NAMES, 1)))
    talk.beat("a")
    assert talk.group.is_behind()
    assert talk.owned["a"] == ((topic_id("aax"), (0,)),)


def test_a_pattern_that_takes_too_long_is_refused_and_says_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "TOPIC_PATTERN_VISITS_MAX", 100_000)
    talk = ConsumerTalk(topics(orders=1, **dict.fromkeys(LONG_NAMES, 1)))
    talk.join("b", "orders")
    talk.join("a", "none", subscribed_topic_regex=HEAVY)
    catalog = dict(talk.catalog)
    while talk.group.is_behind():
        talk.group.tick(talk.now_ms, catalog)
    for answer in (
        talk.beat("a"),
        talk.beat("a", subscribed_topic_regex=HEAVY),
        talk.join("c", "none", subscribed_topic_regex=HEAVY),
    ):
        assert answer.error is GroupError.INVALID_REGULAR_EXPRESSION
        assert "100000 steps" in (answer.message or "")
    assert talk.beat("b").error is GroupError.NONE, "the others go on"
    talk.now_ms += SESSION_MS - 1
    assert talk.beat("b").error is GroupError.NONE
    assert talk.wait(1) == ["a"], "it was not heard"


def test_a_member_whose_pattern_took_too_long_may_come_with_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "TOPIC_PATTERN_VISITS_MAX", 1_000)
    talk = ConsumerTalk(topics(orders=1, **{"a" * 200: 1}))
    talk.join("a", "none", subscribed_topic_regex=HEAVY)
    while talk.group.is_behind():
        talk.beat("a")
    assert talk.beat("a").error is GroupError.INVALID_REGULAR_EXPRESSION
    assert talk.beat("a", subscribed_topic_regex="ord.*").error is GroupError.NONE
    talk.settle("a")
    assert talk.owned["a"] == ((topic_id("orders"), (0,)),)


def test_the_patterns_of_a_group_are_counted() -> None:
    talk = ConsumerTalk(topics(orders=1))
    for number in range(limits.GROUP_PATTERNS_MAX):
        assert not talk.join(f"m{number}", subscribed_topic_regex=f"x{number}").error
    refused = talk.join("one more", subscribed_topic_regex="y")
    assert refused.error is GroupError.INVALID_REGULAR_EXPRESSION
    assert f"at most {limits.GROUP_PATTERNS_MAX} patterns" in (refused.message or "")
    assert not talk.join("the same", subscribed_topic_regex="x1").error


def test_names_that_patterns_were_matched_against_count_as_memory_of_the_group() -> None:
    talk = ConsumerTalk(topics(orders=1, payments=1))
    talk.join("a")
    before = talk.group.assigned_bytes()
    talk.join("b", subscribed_topic_regex="x")
    assert talk.group.assigned_bytes() == before + 200
    talk.leave("b")
    assert talk.group.assigned_bytes() == before


def test_one_step_of_matching_is_small_and_all_of_them_are_counted(counted: Counted) -> None:
    judged: dict[str, bool] = {}
    told = list(TopicPattern(HEAVY).match_all(["a" * 249], judged))
    assert judged == {"a" * 249: False}
    assert max(told) < 2 * limits.TOPIC_PATTERN_STATES_MAX
    assert abs(sum(told) - counted.visits) <= limits.TOPIC_PATTERN_STATES_MAX


@pytest.mark.parametrize("pattern", ["((a{0}){9999}){9999}", "(((a{0,0}){999}){999}){999}"])
def test_repeating_nothing_meets_the_limit_of_states(pattern: str) -> None:
    # Without a limit, this would be built for hours.
    with pytest.raises(InvalidArgument, match=f"at most {limits.TOPIC_PATTERN_STATES_MAX} states"):
        TopicPattern(pattern)


def test_nothing_is_matched_by_a_repetition_of_none() -> None:
    assert TopicPattern("ab{0}c").matches("ac")
    assert not TopicPattern("ab{0}c").matches("abc")
