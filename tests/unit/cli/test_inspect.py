"""Damage in the files is found, placed and reported, and is never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace import inspect
from headrace.inspect import Batch, Checked, Damage, dump_log, log_folders, verify_log
from headrace.log import Log, LogSettings
from headrace.platform.disk import RealDisk
from headrace.record import build_values_batch

NOW_MS = 1_800_000_000_000
FOLDER = "topics/aa/0"
FIRST = "00000000000000000000"


def write_log(
    root: Path, folder: str = FOLDER, *, batches: int = 4, synced: bool = True
) -> list[int]:
    """A log of small batches; where each of them starts."""
    disk = RealDisk(str(root))
    log = Log.open(disk, folder, LogSettings(reserve=False), NOW_MS)
    positions, position = [], 0
    for number in range(batches):
        batch = build_values_batch([b"value %d" % number] * 3, NOW_MS)
        positions.append(position)
        position += len(batch)
        log.append(batch, 0, NOW_MS)
    ticket = log.begin_sync()
    if synced and ticket is not None:
        for file in ticket.files:
            file.sync()
        log.on_synced(ticket)
    log.close()
    return positions


def damage_in(root: Path, folder: str = FOLDER) -> list[Damage]:
    return [one for one in verify_log(str(root), folder, NOW_MS) if isinstance(one, Damage)]


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


def test_a_sound_log_is_read_to_its_end(tmp_path: Path) -> None:
    write_log(tmp_path)
    results = list(verify_log(str(tmp_path), FOLDER, NOW_MS))
    size = (tmp_path / FOLDER / f"{FIRST}.log").stat().st_size
    checked = [one for one in results if isinstance(one, Checked)]
    assert checked == results
    assert sum(one.size_bytes for one in checked) == size
    assert sum(one.batches for one in checked) == 4


def test_a_flip_of_any_byte_is_found_in_its_batch(tmp_path: Path) -> None:
    positions = write_log(tmp_path, batches=2)
    path = tmp_path / FOLDER / f"{FIRST}.log"
    sound = path.read_bytes()
    unnoticed = []
    for position in range(len(sound)):
        flip(path, position)
        found = damage_in(tmp_path)
        batch = max(start for start in positions if start <= position)
        # The leader epoch lies outside the checksum, and a wrong one harms nobody.
        if not 12 <= position - batch < 16 and not any(
            one.file == f"{FOLDER}/{FIRST}.log" and one.is_data for one in found
        ):
            unnoticed.append(position)
        path.write_bytes(sound)
    assert not unnoticed


def test_damage_is_reported_with_the_batch_where_it_lies(tmp_path: Path) -> None:
    positions = write_log(tmp_path)
    flip(tmp_path / FOLDER / f"{FIRST}.log", positions[2] + 70)
    [damage] = [one for one in damage_in(tmp_path) if one.is_data]
    assert damage.file == f"{FOLDER}/{FIRST}.log"
    assert damage.position == positions[2]
    assert "checksum" in damage.reason


def test_a_file_that_lost_its_end_is_damage(tmp_path: Path) -> None:
    positions = write_log(tmp_path)
    path = tmp_path / FOLDER / f"{FIRST}.log"
    path.write_bytes(path.read_bytes()[: positions[3]])
    [damage] = damage_in(tmp_path)
    assert damage.is_data
    assert damage.file == f"{FOLDER}/{FIRST}.log"
    assert damage.position == positions[3]


def test_a_first_segment_that_is_gone_is_damage(tmp_path: Path) -> None:
    log = write_segments(tmp_path)
    log.close()
    (tmp_path / FOLDER / f"{FIRST}.log").unlink()
    [damage] = [one for one in damage_in(tmp_path) if "missing" in one.reason]
    assert damage.is_data


def test_a_first_segment_that_was_deleted_on_purpose_is_not_damage(tmp_path: Path) -> None:
    log = write_segments(tmp_path)
    log.delete_before(log.segments()[1].base_offset)
    log.close()
    assert not (tmp_path / FOLDER / f"{FIRST}.log").exists()
    assert damage_in(tmp_path) == []


def write_segments(root: Path) -> Log:
    log = Log.open(RealDisk(str(root)), FOLDER, LogSettings(reserve=False), NOW_MS)
    for _ in range(3):
        log.append(build_values_batch([b"value"], NOW_MS), 0, NOW_MS)
        log.roll(NOW_MS)
    ticket = log.begin_sync()
    assert ticket is not None
    for file in ticket.files:
        file.sync()
    log.on_synced(ticket)
    return log


def test_a_torn_end_that_was_never_synced_is_not_damage(tmp_path: Path) -> None:
    write_log(tmp_path, synced=True)
    path = tmp_path / FOLDER / f"{FIRST}.log"
    torn = bytes(build_values_batch([b"never acknowledged"], NOW_MS))[:-5]
    with path.open("ab") as file:
        file.write(torn)
    assert [one for one in damage_in(tmp_path) if one.is_data] == []


def test_a_wrong_index_is_reported_as_harmless(tmp_path: Path) -> None:
    write_log(tmp_path)
    (tmp_path / FOLDER / f"{FIRST}.timeindex").write_bytes(b"\xff" * 12)
    found = damage_in(tmp_path)
    assert found
    assert not any(one.is_data for one in found)


def test_a_state_log_with_an_unreadable_event_is_damage(tmp_path: Path) -> None:
    folder = f"{FOLDER}/state"
    positions = write_log(tmp_path, folder, batches=1)
    found = damage_in(tmp_path, folder)
    assert {one.position for one in found} == set(positions)
    assert all(one.is_data for one in found)
    assert found[0].reason.startswith("offset 0: ")


def test_a_damaged_note_of_producers_is_harmless(tmp_path: Path) -> None:
    write_log(tmp_path)
    (tmp_path / FOLDER / "producers").write_bytes(b"\1" * 32)
    [damage] = damage_in(tmp_path)
    assert damage.file == f"{FOLDER}/producers"
    assert not damage.is_data


def test_a_damaged_block_of_attributes_is_harmless_and_has_its_place(tmp_path: Path) -> None:
    write_log(tmp_path)
    (tmp_path / FOLDER / "attributes").mkdir()
    (tmp_path / FOLDER / "attributes" / FIRST).write_bytes(b"\0\0\0\x02\0\0\0\0ab")
    [damage] = damage_in(tmp_path)
    assert damage.file == f"{FOLDER}/attributes/{FIRST}"
    assert damage.position == 0
    assert not damage.is_data


@pytest.mark.parametrize("name", ["start", "cleaned"])
def test_a_small_file_that_rotted_is_damage(tmp_path: Path, name: str) -> None:
    write_log(tmp_path)
    (tmp_path / FOLDER / name).write_bytes(b"not a checkpoint")
    assert any(one.is_data for one in damage_in(tmp_path))


def test_what_only_one_look_finds_is_a_writer_at_work_and_no_damage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passing = Damage("0/a.index", 8, "names no batch", False)
    lasting = Damage("0/a.log", 0, "its checksum is wrong", True)
    looks = [[passing, lasting], [lasting], [passing, lasting]]
    monkeypatch.setattr(inspect, "_look_at", lambda *_: iter(looks.pop(0)))
    assert list(verify_log("", "0", NOW_MS)) == [lasting]
    assert looks == []


def test_every_folder_with_segments_is_a_log(tmp_path: Path) -> None:
    write_log(tmp_path, "metadata")
    write_log(tmp_path, "topics/aa/0")
    write_log(tmp_path, "topics/aa/0/state")
    (tmp_path / "topics/aa/0/attributes").mkdir()
    assert log_folders(str(tmp_path)) == ["metadata", "topics/aa/0", "topics/aa/0/state"]


def test_a_dump_shows_each_batch_where_it_lies(tmp_path: Path) -> None:
    positions = write_log(tmp_path)
    batches = list(dump_log(str(tmp_path), FOLDER))
    assert [batch.position for batch in batches] == positions
    assert [batch.header.base_offset for batch in batches if batch.header] == [0, 3, 6, 9]
    assert [record.value for record in batches[1].records] == [b"value 1"] * 3


def test_a_dump_ends_at_a_damaged_batch_and_says_why(tmp_path: Path) -> None:
    positions = write_log(tmp_path)
    flip(tmp_path / FOLDER / f"{FIRST}.log", positions[1] + 70)
    *sound, damaged = dump_log(str(tmp_path), FOLDER)
    assert len(sound) == 1
    assert isinstance(damaged, Batch)
    assert damaged.position == positions[1]
    assert damaged.fault is not None and "checksum" in damaged.fault


def test_a_dump_reads_batches_that_are_larger_than_a_chunk(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    log = Log.open(disk, FOLDER, LogSettings(reserve=False), NOW_MS)
    for size in (10, 3 * 1024 * 1024, 10):
        log.append(build_values_batch([b"x" * size], NOW_MS), 0, NOW_MS)
    log.close()
    sizes = [len(batch.records[0].value or b"") for batch in dump_log(str(tmp_path), FOLDER)]
    assert sizes == [10, 3 * 1024 * 1024, 10]
