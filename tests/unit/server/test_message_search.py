"""Looking for messages by page: what one request reads and holds has a bound in bytes, and
pages together have every message once, in order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.server.test_loop_calls import TOPIC, Served, on_a_loop

from headrace.calls import Face
from headrace.core import limits
from headrace.core.values import Outgoing
from headrace.server.http import search
from headrace.wire.http import overview_bodies as o


class Reading:
    """Counts what is read of the topic."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self.size_bytes = self.count = 0

    async def run(self, call: Any, *args: Any, **named: Any) -> Any:
        answer = await self._served.run(call, *args, **named)
        if call is Face.read:
            self.size_bytes += sum(len(each.value or b"") for each in answer[0])
            self.count += len(answer[0])
        return answer

    async def page(self, **query: Any) -> o.SearchPage:
        call: Any = SimpleNamespace(
            run=self.run, calls=self._served.calls, service=self._served.service,
            path={"topic": TOPIC}, query=o.SearchQuery(**query),
        )  # fmt: skip
        return await search.search(call)


async def publish(served: Served, sizes: list[int], partitions: int = 1) -> None:
    await served.run(Face.create_topic, TOPIC, partitions=partitions)
    for number, size in enumerate(sizes):
        served.clock.skip(1)
        value = b"%d " % number + b"x" * size
        message = Outgoing(value, partition=number % partitions)
        await served.run(Face.publish, TOPIC, [message])


@pytest.mark.parametrize("newest_first", [True, False])
def test_a_request_reads_about_as_many_bytes_as_it_may(
    monkeypatch: pytest.MonkeyPatch, newest_first: bool
) -> None:
    monkeypatch.setattr(limits, "SEARCH_BYTES_MAX", 1_000_000)

    async def scenario(served: Served) -> None:
        await publish(served, [300_000] * 60)
        reading = Reading(served)
        page = await reading.page(newest_first=newest_first, key="none")
        assert (page.messages, page.next is None) == ([], False)
        # The first few are read before their size is known.
        assert reading.size_bytes <= 300_100 * (search.FIRST_RECORDS + 1)

    on_a_loop(scenario)


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("partitions", [1, 3])
def test_pages_have_every_message_once_and_in_order(
    monkeypatch: pytest.MonkeyPatch, newest_first: bool, partitions: int
) -> None:
    monkeypatch.setattr(limits, "SEARCH_BYTES_MAX", 20_000)
    monkeypatch.setattr(search, "CHUNK_BYTES", 8_000)

    async def scenario(served: Served) -> None:
        await publish(served, [(number * 977) % 9_000 for number in range(90)], partitions)
        reading = Reading(served)
        found: list[int] = []
        after, pages = None, 0
        while True:
            page = await reading.page(newest_first=newest_first, value="x", after=after)
            found += [each.offset * partitions + each.partition for each in page.messages]
            pages += 1
            after = page.next
            if after is None:
                break
        # The first has no text.
        expected = list(range(1, 90))
        assert pages > 10
        if partitions == 1:
            assert found == (expected[::-1] if newest_first else expected)
        assert sorted(found) == expected

    on_a_loop(scenario)
