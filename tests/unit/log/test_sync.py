"""What a ticket holds, and what is known once it was synced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.testing.fault_disk import keep_nothing

if TYPE_CHECKING:
    from tests.unit.log.conftest import Bench


def test_a_new_log_syncs_every_folder_on_the_way_to_it(bench: Bench) -> None:
    bench.append(b"a")
    ticket = bench.log.begin_sync()
    assert ticket is not None
    assert ticket.directories == ["t/0", "t", ""]
    bench.log.on_synced(ticket)
    bench.append(b"b")
    ticket = bench.log.begin_sync()
    assert ticket is not None
    assert (ticket.directories, len(ticket.files)) == ([], 1)


def test_a_ticket_holds_rolled_segments_that_were_not_synced(bench: Bench) -> None:
    for _ in range(3):
        bench.append(b"x")
        bench.log.roll(1000)
    bench.append(b"y")
    bench.sync()
    assert bench.log.synced_end == 4
    bench.crash(keep_nothing)
    assert len(bench.values()) == 4


def test_appends_during_a_sync_belong_to_the_next(bench: Bench) -> None:
    bench.append(b"a")
    ticket = bench.log.begin_sync()
    assert ticket is not None
    for folder in ticket.directories:
        bench.disk.sync_directory(folder)
    for file in ticket.files:
        file.sync()
    bench.append(b"b" * 5000)
    bench.log.on_synced(ticket)
    assert (bench.log.synced_end, bench.log.end_offset) == (1, 2)
    bench.crash(keep_nothing)
    assert bench.values() == [b"a"]


def test_a_later_ticket_may_be_done_first(bench: Bench) -> None:
    bench.append(b"a")
    early = bench.log.begin_sync()
    assert early is not None
    bench.append(b"b")
    bench.sync()
    bench.log.on_synced(early)
    assert bench.log.synced_end == 2
    bench.crash(keep_nothing)
    assert bench.values() == [b"a", b"b"]


def test_a_ticket_from_before_a_cut_proves_nothing(bench: Bench) -> None:
    bench.append(b"a")
    bench.sync()
    bench.append(b"b")
    ticket = bench.log.begin_sync()
    assert ticket is not None
    bench.log.truncate_to(1)
    bench.append(b"c")
    bench.log.on_synced(ticket)
    assert bench.log.synced_end == 1


def test_a_file_in_a_ticket_stays_open_until_the_sync_is_done(bench: Bench) -> None:
    bench.append(b"a")
    bench.log.roll(1000)
    ticket = bench.log.begin_sync()
    assert ticket is not None
    bench.append(b"b")
    bench.log.release(1)
    assert bench.log.start_offset == 1
    for file in ticket.files:
        file.sync()
    bench.log.on_synced(ticket)
    assert bench.values() == [b"b"]


def test_the_synced_end_is_noted_without_a_sync(bench: Bench) -> None:
    bench.append(b"a")
    bench.sync()
    bench.append(b"b")
    ticket = bench.log.begin_sync()
    assert ticket is not None
    for file in ticket.files:
        file.sync()
    seen: list[tuple[str, str]] = []
    bench.disk.on_operation = lambda count, name, path: seen.append((name, path))
    bench.log.on_synced(ticket)
    assert seen == [("write", "t/0/synced")]
