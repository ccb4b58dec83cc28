"""The sidecar: damage is noticed, and the log is scanned again."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.engine import sidecar as sidecar_module
from headrace.engine.scan import Row, Scan
from headrace.engine.sidecar import Damaged, Sidecar
from headrace.platform.memory_disk import MemoryDisk

PATH = "attributes"


def scan(start: int, end: int) -> Scan:
    return Scan(start, end, (Row(start, end, 1, 77, 88, "group"),), [end - 1, end], None)


def written(count: int, *, files: int) -> MemoryDisk:
    """Scans of ten offsets each, in this many files."""
    disk = MemoryDisk()
    number = 0
    for _ in range(files):
        sidecar = Sidecar(disk, PATH, read_only=False)
        for _ in range(count // files):
            sidecar.add(scan(number * 10, number * 10 + 10))
            sidecar.on_synced(number * 10 + 10)
            sidecar.flush()
            number += 1
    assert len(disk.list(PATH)) == files
    return disk


@pytest.mark.parametrize("start", [0, 15, 20, 39])
@pytest.mark.parametrize("files", [1, 2, 4])
def test_what_was_added_is_found_from_any_offset(files: int, start: int) -> None:
    sidecar = Sidecar(written(4, files=files), PATH, read_only=True)
    assert sidecar.end == 40
    found = list(sidecar.scans(start))
    assert found == [scan(o, o + 10) for o in range(0, 40, 10) if o + 10 > start]


def test_only_what_is_synced_is_written() -> None:
    disk = MemoryDisk()
    sidecar = Sidecar(disk, PATH, read_only=False)
    sidecar.add(scan(0, 10))
    sidecar.add(scan(10, 20))
    sidecar.on_synced(19)
    sidecar.flush()
    assert [(s.start, s.end) for s in sidecar.scans(0)] == [(0, 10), (10, 20)]
    assert Sidecar(disk, PATH, read_only=True).end == 10


@pytest.mark.parametrize("name", [0, 1, 2])
@pytest.mark.parametrize("position", [2, 5, 12])
def test_damage_anywhere_but_at_the_end_is_noticed(name: int, position: int) -> None:
    disk = written(6, files=3)
    names = disk.list(PATH)
    disk.names[f"{PATH}/{names[name]}"].data[position] ^= 0xFF
    sidecar = Sidecar(disk, PATH, read_only=True)
    if name == 2:
        # Nothing of the last file is left: whoever asks has to scan again.
        assert sidecar.end == 0
    with pytest.raises(Damaged):
        list(sidecar.scans(0))


def test_a_missing_file_is_noticed() -> None:
    for missing in range(2):
        disk = written(6, files=3)
        disk.remove(f"{PATH}/{disk.list(PATH)[missing]}")
        with pytest.raises(Damaged):
            list(Sidecar(disk, PATH, read_only=True).scans(0))


def test_files_below_the_start_are_deleted() -> None:
    disk = written(6, files=3)
    sidecar = Sidecar(disk, PATH, read_only=False)
    sidecar.delete_before(39)
    assert disk.list(PATH) == [f"{20:020d}", f"{40:020d}"]
    sidecar.delete_before(60)
    assert disk.list(PATH) == [f"{40:020d}"]
    assert [s.start for s in sidecar.scans(45)] == [40, 50]


@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "garbage"])
@pytest.mark.parametrize("which", [0, -1])
def test_a_node_with_a_damaged_sidecar_knows_all_attributes(
    bench: Any, damage: str, which: int
) -> None:
    bench.make()
    for number in range(3):
        bench.publish(b"%d" % number, delay_ms=1_000 + number, priority="high")
        bench.reopen()
    bench.node.close()
    name = bench.files("/attributes/")[which]
    data = bench.disk.names[name].data
    if damage == "flip":
        data[len(data) // 2] ^= 1
    elif damage == "cut":
        del data[len(data) // 2 :]
    elif damage == "garbage":
        data[:] = b"\xff" * 40
    else:
        bench.disk.remove(name)
    bench.crash()
    bench.node.open_queue("later", [bench.topic], "eve")
    for group in (bench.group, "later"):
        assert bench.node.queue_statistics(group).delayed == 3
        assert bench.values(group=group) == []
    bench.skip(1_001)
    for group in (bench.group, "later"):
        assert [(d.value, d.lane) for d in bench.lease(group=group)] == [(b"0", 1), (b"1", 1)]


def test_blocks_are_written_when_enough_has_come(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar_module, "BUFFERED_OFFSETS_MAX", 10)
    bench.make()
    bench.publish(*[b"x"] * 9)
    assert bench.files("/attributes/") == []
    bench.publish(b"x")
    assert len(bench.files("/attributes/")) == 1
