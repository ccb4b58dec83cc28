"""Members that come by HTTP: how long they are there."""

from __future__ import annotations

import pytest
from tests.unit.server.test_loop_calls import Served, let_others_run, on_a_loop

from headrace.server.http import members
from headrace.server.http.members import Member, Members, UnknownMember


@pytest.fixture(autouse=True)
def shortest_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "SESSION_SECONDS", 0.0)


def test_a_member_is_there_for_as_long_as_it_polls() -> None:
    async def scenario(served: Served) -> None:
        gone: list[Member] = []
        made = Members(served.service, gone.append)
        member = Member("group", "member", ["orders"])
        made.add(member)
        with made.polling(member):
            with made.polling(member):
                await let_others_run()
            made.touch(member)
            await let_others_run()
            assert made.find("group", "member") is member
        await let_others_run()
        assert gone == [member]
        with pytest.raises(UnknownMember, match="subscribe again"):
            made.find("group", "member")

    on_a_loop(scenario)


def test_a_member_that_leaves_while_it_polls_is_not_missed_later() -> None:
    async def scenario(served: Served) -> None:
        gone: list[Member] = []
        made = Members(served.service, gone.append)
        member = Member("group", "member", ["orders"])
        made.add(member)
        with made.polling(member):
            made.remove(member)
        await let_others_run()
        assert gone == [] and len(made) == 0

    on_a_loop(scenario)
