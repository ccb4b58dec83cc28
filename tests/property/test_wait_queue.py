"""The line of those who wait for messages of a group, with consumers of all kinds.

Greedy ones that come back at once, slow ones, some that cannot take anything for a while,
arriving and leaving at any time, on partitions that overlap as they like. Against a plain
list: whoever stands before another, and could take from the same partition, goes first.
"""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from headrace.server.wait_queue import Waiter, WaitQueue

PARTITIONS = range(3)

arrivals = st.tuples(
    st.just("arrive"),
    st.frozensets(st.sampled_from(PARTITIONS), min_size=1),
    # How many it takes at most; whether it comes back as soon as it had something.
    st.sampled_from([1, 5, 1_000]),
    st.booleans(),
)
steps = st.one_of(
    arrivals,
    st.tuples(st.just("leave"), st.integers(0, 9)),
    st.tuples(st.just("publish"), st.sampled_from(PARTITIONS), st.integers(1, 30)),
    st.tuples(st.just("hinder"), st.integers(0, 9)),
    st.tuples(st.just("turn")),
    st.tuples(st.just("leave in its turn")),
)


class Consumer:
    def __init__(self, name: int, wants: frozenset[int], most: int, comes_back: bool) -> None:
        self.name = name
        self.wants = wants
        self.most = most
        self.comes_back = comes_back
        self.is_hindered = False
        # Turns of others in which they took something, since there is something for it.
        self.passed_by = 0
        self.ahead = 0
        self.waiter: Waiter[int]


class Line:
    def __init__(self) -> None:
        self.queue: WaitQueue[int] = WaitQueue()
        self.ready = dict.fromkeys(PARTITIONS, 0)
        # In the order in which they came: the naive twin.
        self.consumers: list[Consumer] = []
        self.served: list[int] = []
        self.names = count()

    def arrive(
        self, wants: frozenset[int], most: int, comes_back: bool, name: int | None = None
    ) -> None:
        name = next(self.names) if name is None else name
        consumer = Consumer(name, wants, most, comes_back)
        consumer.waiter = self.queue.join(wants)
        consumer.ahead = len(self.consumers)
        self.consumers.append(consumer)

    def leave(self, number: int) -> None:
        if self.consumers:
            consumer = self.consumers.pop(number % len(self.consumers))
            self.queue.leave(consumer.waiter)

    def publish(self, partition: int, messages: int) -> None:
        self.ready[partition] += messages
        self.queue.on_news([partition])

    def hinder(self, number: int) -> None:
        if self.consumers:
            consumer = self.consumers[number % len(self.consumers)]
            consumer.is_hindered = not consumer.is_hindered
            # What frees it again is news too: it has settled something.
            self.queue.on_news(consumer.wants)

    def turn(self, *, leaves: bool = False) -> bool:
        turn = self.queue.begin_turn()
        if turn is None:
            return False
        [consumer] = [each for each in self.consumers if each.waiter is turn.waiter]
        if leaves:
            self.consumers.remove(consumer)
            self.queue.leave(consumer.waiter)
            return True
        if consumer.is_hindered:
            self.queue.end_turn("unable")
            return True
        sources = [each for each in consumer.wants if self.ready[each]]
        there = sum(self.ready[each] for each in sources)
        if not there:
            self.queue.end_turn("nothing")
            return True
        rivals = [each for each in self.consumers if each.wants & consumer.wants]
        assert 1 <= turn.among <= len(rivals)
        for each in self.consumers:
            if each is consumer:
                break
            assert each.is_hindered or each.wants.isdisjoint(sources), "it was passed"
        left = min(consumer.most, -(-there // turn.among))
        for source in sources:
            taken = min(left, self.ready[source])
            self.ready[source] -= taken
            left -= taken
        for each in self.consumers:
            if each is not consumer and not each.wants.isdisjoint(sources):
                each.passed_by += 1
                assert each.is_hindered or each.passed_by <= each.ahead
        self.served.append(consumer.name)
        self.consumers.remove(consumer)
        self.queue.leave(consumer.waiter)
        if consumer.comes_back:
            self.arrive(consumer.wants, consumer.most, True, consumer.name)
        return True


@given(st.lists(steps, max_size=60))
def test_nobody_is_passed_by_one_that_came_later(history: list[tuple[object, ...]]) -> None:
    line = Line()
    for word, *arguments in history:
        if word == "leave in its turn":
            line.turn(leaves=True)
        else:
            getattr(line, str(word))(*arguments)
    for _ in range(2_000):
        if not line.turn():
            break
    else:
        raise AssertionError("turns without end")
    # What is ready is nobody's only where nobody who could take it waits.
    for consumer in line.consumers:
        assert consumer.is_hindered or not any(line.ready[each] for each in consumer.wants)
    while line.consumers:
        line.leave(0)
    assert len(line.queue) == 0 and not list(line.queue.sources())


@given(st.lists(arrivals, min_size=1, max_size=12), st.lists(st.integers(1, 3), max_size=20))
def test_a_trickle_reaches_everybody_in_turn(
    crowd: list[tuple[str, frozenset[int], int, bool]], trickle: list[int]
) -> None:
    """However greedy the others are: with one partition, each has had something before
    anybody has had something twice."""
    line = Line()
    for _, _, most, _ in crowd:
        line.arrive(frozenset([0]), most, True)
    names = [each.name for each in line.consumers]
    for messages in trickle:
        line.publish(0, messages)
        while line.turn():
            pass
    assert line.ready[0] == 0
    rounds = -(-len(line.served) // len(names))
    assert line.served == (names * rounds)[: len(line.served)]
