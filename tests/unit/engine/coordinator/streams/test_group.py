"""Streams groups: members join with a topology, the broker shares out its tasks."""

from __future__ import annotations

import pytest
from tests.unit.engine.coordinator.streams.conftest import (
    AT_ONCE,
    COUNTING,
    REBALANCE_MS,
    SESSION_MS,
    StreamsTalk,
    catalog,
    statuses,
    talk_of,
    tasks,
    topics,
)

from headrace.engine.coordinator.rules import GroupRules
from headrace.engine.coordinator.streams.values import (
    NOTHING,
    Endpoint,
    Held,
    Status,
    StreamsAnswer,
    StreamsRequest,
)
from headrace.engine.coordinator.values import GroupError

EVERYTHING = tasks("0_0", "0_1", "1_0", "1_1")


# Joining and following.


def test_the_first_member_gets_everything_with_its_first_answer() -> None:
    talk = StreamsTalk()
    answer = talk.join("a")
    assert (answer.error, answer.member_epoch) == (GroupError.NONE, talk.group.group_epoch)
    assert answer.assignment == Held(EVERYTHING)
    assert answer.statuses == () and answer.missing == ()
    assert talk.group.state() == "Stable"


def test_an_assignment_that_did_not_change_is_not_sent() -> None:
    talk = talk_of("a")
    assert talk.beat("a").assignment is None
    assert talk.beat("a", owned=None).assignment is None


def test_a_task_is_granted_only_after_its_owner_let_go() -> None:
    talk = talk_of("a")
    newcomer = talk.join("b")
    assert newcomer.assignment == NOTHING
    asked = talk.beat("a", owned=None)
    assert asked.assignment is not None and len(asked.assignment.active) == 2
    assert asked.member_epoch < newcomer.member_epoch, "it keeps its epoch until it let go"
    assert talk.group.state() == "Reconciling"
    still_busy = talk.send(StreamsRequest("a", asked.member_epoch, owned=Held(EVERYTHING)))
    assert still_busy.member_epoch == asked.member_epoch
    assert talk.beat("b").assignment is None
    let_go = talk.send(StreamsRequest("a", asked.member_epoch, owned=asked.assignment))
    assert let_go.member_epoch == newcomer.member_epoch
    granted = talk.beat("b").assignment
    assert granted == Held(EVERYTHING - asked.assignment.active)
    assert talk.group.state() == "Stable"


def test_the_part_of_one_that_leaves_goes_to_the_others() -> None:
    talk = talk_of("a", "b")
    answer = talk.leave("b")
    assert (answer.error, answer.member_epoch) == (GroupError.NONE, -1)
    assert talk.group.state() == "Assigning"
    assert talk.beat("a").assignment == Held(EVERYTHING)


def test_a_member_that_is_silent_for_a_session_is_dropped() -> None:
    talk = talk_of("a", "b")
    talk.now_ms += SESSION_MS - 1
    talk.beat("a")
    assert talk.wait(1) == ["b"]
    assert talk.beat("a").assignment == Held(EVERYTHING)
    assert talk.group.next_deadline_ms() == talk.now_ms + SESSION_MS


def test_a_member_that_does_not_let_go_in_time_is_dropped() -> None:
    talk = talk_of("a")
    talk.join("b")
    talk.beat("a", owned=None)
    for _ in range(2):
        talk.now_ms += REBALANCE_MS // 2 - 1
        talk.send(StreamsRequest("a", talk.epochs["a"]))
        talk.beat("b")
    assert talk.wait(2) == ["a"]
    assert talk.beat("b").assignment == Held(EVERYTHING)


def test_a_member_may_join_again_and_is_told_everything_again() -> None:
    talk = talk_of("a")
    answer = talk.join("a")
    assert answer.assignment == Held(EVERYTHING)
    assert len(talk.group.describe().members) == 1


def test_new_partitions_are_new_tasks() -> None:
    talk = talk_of("a")
    talk.catalog = catalog(3)
    answer = talk.beat("a")
    assert answer.assignment == Held(EVERYTHING | tasks("0_2", "1_2"))


def test_a_catalog_that_changed_elsewhere_changes_nothing() -> None:
    talk = talk_of("a")
    epoch = talk.group.group_epoch
    talk.catalog = {**catalog(), **topics(unrelated=9)}
    assert talk.beat("a").assignment is None
    assert talk.group.group_epoch == epoch


# Lost answers.


def test_a_member_that_missed_an_answer_is_told_again() -> None:
    talk = talk_of("a", "b")
    before = talk.epochs["a"], talk.held["a"]
    talk.leave("b")
    lost = talk.beat("a")
    assert lost.assignment == Held(EVERYTHING)
    talk.epochs["a"], talk.held["a"] = before
    again = talk.beat("a")
    assert again.error is GroupError.NONE
    assert (again.member_epoch, again.assignment) == (lost.member_epoch, lost.assignment)


def test_a_member_that_missed_that_it_should_let_go_is_told_again() -> None:
    talk = talk_of("a")
    held = talk.held["a"]
    talk.join("b")
    lost = talk.beat("a", owned=None)
    assert lost.assignment is not None and lost.assignment != held
    talk.held["a"] = held
    assert talk.beat("a").assignment == lost.assignment


def test_an_older_epoch_with_tasks_that_were_given_up_is_fenced() -> None:
    talk = talk_of("a", "b")
    old = talk.epochs["a"]
    talk.leave("b")
    talk.beat("a")
    talk.settle("a")
    for request in (
        StreamsRequest("a", old, owned=None),
        StreamsRequest("a", old - 1, owned=NOTHING),
        StreamsRequest("a", talk.epochs["a"] + 1, owned=NOTHING),
    ):
        assert talk.send(request).error is GroupError.FENCED_MEMBER_EPOCH


# Topics.


def test_missing_source_topics_keep_the_group_from_working() -> None:
    talk = StreamsTalk({})
    answer = talk.join("a")
    assert statuses(answer) == [Status.MISSING_SOURCE_TOPICS]
    assert (answer.assignment, answer.missing) == (NOTHING, ())
    assert talk.group.state() == "NotReady" and talk.group.lacks_source_topics()
    talk.catalog = topics(orders=2)
    assert statuses(talk.beat("a")) == [Status.MISSING_INTERNAL_TOPICS]
    assert not talk.group.lacks_source_topics()


def test_internal_topics_are_asked_for_until_they_are_there() -> None:
    talk = StreamsTalk(topics(orders=2))
    first, second = talk.join("a"), talk.beat("a")
    assert statuses(first) == statuses(second) == [Status.MISSING_INTERNAL_TOPICS]
    names = ["app-by-region-repartition", "app-counts-changelog"]
    assert [each.name for each in first.missing] == [each.name for each in second.missing] == names
    talk.catalog = catalog()
    answer = talk.beat("a")
    assert (answer.statuses, answer.assignment) == ((), Held(EVERYTHING))


def test_topics_that_do_not_fit_keep_the_group_from_working() -> None:
    talk = StreamsTalk({**catalog(2), **topics(app_counts_changelog=5)})
    assert statuses(talk.join("a")) == [Status.INCORRECTLY_PARTITIONED_TOPICS]
    assert talk.group.state() == "NotReady"


def test_a_deleted_source_topic_takes_the_tasks_away() -> None:
    talk = talk_of("a")
    talk.catalog = topics(app_by_region_repartition=2, app_counts_changelog=2)
    answer = talk.beat("a")
    assert statuses(answer) == [Status.MISSING_SOURCE_TOPICS]
    assert answer.assignment == NOTHING
    talk.beat("a")
    talk.catalog = catalog()
    assert talk.beat("a").assignment == Held(EVERYTHING)


def test_a_topic_that_was_made_anew_with_fewer_partitions_fences_no_member() -> None:
    talk = talk_of("a", size=3)
    talk.catalog = {name: (b"new" + topic_id, 2) for name, (topic_id, _) in talk.catalog.items()}
    answer = talk.beat("a")
    assert (answer.error, answer.assignment) == (GroupError.NONE, Held(EVERYTHING))
    talk.settle("a")


# Topologies.


def test_a_member_with_an_older_topology_is_told_so() -> None:
    talk = StreamsTalk()
    talk.join("a", topology=COUNTING._replace(epoch=2))
    answer = talk.join("b", topology=COUNTING._replace(epoch=1))
    assert statuses(answer) == [Status.STALE_TOPOLOGY]
    assert "epoch 1" in answer.statuses[0][1] and "epoch 2" in answer.statuses[0][1]
    assert statuses(talk.beat("b")) == [Status.STALE_TOPOLOGY]
    assert statuses(talk.beat("a")) == []


@pytest.mark.parametrize("epoch", [0, 1])
def test_another_topology_is_refused_while_members_have_the_first(epoch: int) -> None:
    talk = talk_of("a")
    other = COUNTING._replace(epoch=epoch, subtopologies=COUNTING.subtopologies[:1])
    answer = talk.join("b", topology=other)
    assert answer.error is GroupError.INVALID_REQUEST
    assert len(talk.group.describe().members) == 1


def test_a_group_without_members_takes_another_topology() -> None:
    talk = talk_of("a")
    talk.leave("a")
    plain = COUNTING._replace(subtopologies=COUNTING.subtopologies[:1])
    assert talk.join("b", topology=plain).assignment == Held(tasks("0_0", "0_1"))


def test_the_only_member_may_come_back_with_another_topology() -> None:
    talk = talk_of("a", rules=AT_ONCE._replace(streams_assignment_interval_ms=1_000))
    plain = COUNTING._replace(subtopologies=COUNTING.subtopologies[:1])
    answer = talk.join("a", topology=plain)
    assert answer.assignment == NOTHING, "tasks of the old one mean nothing to it"
    talk.now_ms += 1_000
    assert talk.beat("a").assignment == Held(tasks("0_0", "0_1"))


# Waiting before assigning.


def test_a_new_group_waits_for_more_members() -> None:
    talk = StreamsTalk(rules=GroupRules(streams_rebalance_delay_ms=3_000))
    first = talk.join("a")
    assert statuses(first) == [Status.ASSIGNMENT_DELAYED]
    assert first.member_epoch > 0, "0 would mean that it has to join"
    assert (first.assignment, talk.group.state()) == (NOTHING, "Assigning")
    talk.now_ms += 2_999
    assert statuses(talk.join("b")) == [Status.ASSIGNMENT_DELAYED]
    talk.now_ms += 1
    for member in ("a", "b"):
        answer = talk.beat(member)
        assert answer.assignment is not None and len(answer.assignment.active) == 2
        assert answer.statuses == ()


def test_there_is_an_interval_between_two_assignments() -> None:
    talk = StreamsTalk(rules=AT_ONCE._replace(streams_assignment_interval_ms=1_000))
    talk.join("a")
    talk.now_ms += 999
    newcomer = talk.join("b")
    assert statuses(newcomer) == [Status.ASSIGNMENT_DELAYED]
    busy = talk.beat("a")
    assert busy.statuses == (), "it would stop processing what it has"
    assert busy.assignment is None
    talk.now_ms += 1
    talk.settle("a", "b")
    assert len(talk.held["b"].active) == 2


def test_a_group_whose_topics_come_does_not_wait_for_the_interval() -> None:
    talk = StreamsTalk(topics(orders=2), AT_ONCE._replace(streams_assignment_interval_ms=1_000))
    talk.join("a")
    talk.catalog = catalog()
    assert talk.beat("a").assignment == Held(EVERYTHING)


# Standby tasks.


def with_standby(*members: str) -> StreamsTalk:
    return talk_of(*members, rules=AT_ONCE._replace(streams_standby_replicas=1))


def test_standby_tasks_are_given_to_another_process() -> None:
    talk = with_standby("a", "b")
    for member, other in (("a", "b"), ("b", "a")):
        assert talk.held[member].standby == {
            task for task in talk.held[other].active if task[0] == "1"
        }


def test_a_group_that_is_told_to_have_standby_tasks_gets_them() -> None:
    talk = talk_of("a", "b")
    assert not talk.held["a"].standby
    talk.group.obey(AT_ONCE._replace(streams_standby_replicas=1))
    talk.settle("a", "b")
    assert talk.held["a"].standby or talk.held["b"].standby
    epoch = talk.group.group_epoch
    talk.settle("a", "b")
    assert talk.group.group_epoch == epoch


def test_a_thread_gets_no_task_whose_copy_another_thread_of_its_process_still_has() -> None:
    talk = StreamsTalk(rules=AT_ONCE._replace(streams_standby_replicas=1))
    talk.join("p1", process_id="p")
    talk.join("q1", process_id="q")
    talk.settle("p1", "q1")
    copies = talk.held["p1"].standby
    assert copies
    talk.join("p2", process_id="p")
    talk.leave("q1")
    for _ in range(3):
        talk.send(StreamsRequest("p1", talk.epochs["p1"]))
        talk.beat("p2")
        assert not talk.held["p2"].active & copies
    talk.settle("p1", "p2")
    assert talk.held["p1"].active | talk.held["p2"].active == EVERYTHING


# Endpoints.


def endpoints_of(answer: StreamsAnswer) -> dict[str, tuple[object, object]]:
    assert answer.endpoints is not None
    return {each.endpoint.host: (each.active, each.standby) for each in answer.endpoints}


def test_members_are_told_where_the_state_of_each_partition_is() -> None:
    talk = StreamsTalk()
    first = talk.join("a", endpoint=Endpoint("host-a", 1))
    everything = (("app-by-region-repartition", (0, 1)), ("orders", (0, 1)))
    assert endpoints_of(first) == {"host-a": (everything, ())}
    assert talk.beat("a", endpoint_epoch=first.endpoint_epoch).endpoints is None
    talk.join("b", endpoint=Endpoint("host-b", 2))
    told = talk.beat("a", endpoint_epoch=first.endpoint_epoch)
    assert set(endpoints_of(told)) == {"host-a", "host-b"}
    assert told.endpoint_epoch > first.endpoint_epoch


def test_members_are_told_when_an_endpoint_goes() -> None:
    talk = StreamsTalk()
    talk.join("a")
    talk.join("b", endpoint=Endpoint("host-b", 2))
    talk.settle("a", "b")
    epoch = talk.beat("a").endpoint_epoch
    talk.leave("b")
    assert talk.beat("a", endpoint_epoch=epoch).endpoints == ()


def test_a_topic_with_fewer_partitions_than_tasks_is_shown_with_those_it_has() -> None:
    talk = StreamsTalk(topics(orders=1, more=2))
    both = COUNTING._replace(
        subtopologies=(COUNTING.subtopologies[0]._replace(source_topics=("orders", "more")),)
    )
    answer = talk.join("a", topology=both, endpoint=Endpoint("h", 1))
    assert endpoints_of(answer) == {"h": ((("more", (0, 1)), ("orders", (0,))), ())}
    member = talk.group.describe().members[0]
    assert talk.group.partitions_read(member.assignment) == (("more", (0, 1)), ("orders", (0,)))


# Shutting down together.


def test_one_member_can_shut_the_application_down() -> None:
    talk = talk_of("a", "b")
    assert statuses(talk.beat("a", shuts_down=True)) == [Status.SHUTDOWN_APPLICATION]
    told = talk.beat("b", shuts_down=True)
    assert statuses(told) == [Status.SHUTDOWN_APPLICATION]
    assert "member a" in told.statuses[0][1], "the first to say so"


def test_a_shutdown_is_forgotten_when_all_are_gone() -> None:
    talk = talk_of("a", "b")
    talk.leave("a", shuts_down=True)
    assert statuses(talk.beat("b")) == [Status.SHUTDOWN_APPLICATION]
    talk.leave("b")
    assert statuses(talk.join("c")) == []
