"""`headrace log` tells the truth about the files, however damaged they are."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Run = Callable[..., Result]

# These are about files.
PLACES = ["directory"]


@pytest.fixture
def orders(run: Run) -> Run:
    """A directory with something of everything in it."""
    run("topic", "create", "orders", "--partitions", "2")
    for number in range(4):
        run("publish", "orders", f"value {number}", "--partition", "0")
    run("publish", "orders", "later", "--delay", "1h")
    run("work", "orders", "--group", "billing", "--count", "2")
    run("work", "orders", "--group", "billing", "--count", "1", "--reject")
    return run


def document_of(result: Result) -> Any:
    return json.loads(result.stdout)


def data_files(data: Path) -> list[Path]:
    return sorted(path for path in data.rglob("*.log") if path.stat().st_size)


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


def orders_file(data: Path, orders: Run) -> Path:
    """The data file of orders, partition 0."""
    first = json.loads(orders("log", "dump", "orders", "0", "--json").stdout.splitlines()[0])
    return Path(first["file"])


def test_a_sound_directory_is_verified_whole(orders: Run, data: Path) -> None:
    verified = document_of(orders("log", "verify", "--json"))
    assert verified["damage"] == []
    assert verified["size_bytes"] == sum(path.stat().st_size for path in data_files(data))
    answer = orders("log", "verify")
    assert answer.stdout == ""
    assert "everything is as it was written" in answer.stderr


def test_one_topic_alone_is_verified(orders: Run) -> None:
    everything = document_of(orders("log", "verify", "--json"))
    topic = document_of(orders("log", "verify", "orders", "--json"))
    assert 0 < topic["size_bytes"] < everything["size_bytes"]


def test_rot_is_named_with_file_byte_topic_and_partition(orders: Run, data: Path) -> None:
    path = orders_file(data, orders)
    second = json.loads(orders("log", "dump", "orders", "0", "--json").stdout.splitlines()[1])
    flip(path, second["position"] + 70)
    verified = document_of(orders("log", "verify", "--json", code=1))
    [damage] = [one for one in verified["damage"] if one["is_data"]]
    assert damage["file"] == str(path.relative_to(data))
    assert damage["position"] == second["position"]
    assert damage["belongs_to"] == "orders 0"
    assert "checksum" in damage["reason"]
    shown = orders("log", "verify", code=1)
    assert str(path.relative_to(data)) in shown.stdout
    assert "orders 0" in shown.stdout
    assert "problem" in shown.stderr


def test_a_flip_anywhere_is_a_report_and_never_a_traceback(orders: Run, data: Path) -> None:
    chance = random.Random(7)
    files = [path for path in data.rglob("*") if path.is_file() and path.stat().st_size]
    for _ in range(60):
        path = chance.choice(files)
        sound = path.read_bytes()
        flip(path, chance.randrange(len(sound)))
        # The exit code says whether it was found; `run` fails on a traceback.
        verify_either_way(orders)
        path.write_bytes(sound)
    assert document_of(orders("log", "verify", "--json"))["damage"] == []


def verify_either_way(run: Run) -> None:
    try:
        run("log", "verify", "--json")
    except AssertionError:
        run("log", "verify", "--json", code=1)


def test_a_damaged_catalog_does_not_hide_the_rest(orders: Run, data: Path) -> None:
    path = orders_file(data, orders)
    flip(path, 70)
    [metadata, *_] = (data / "metadata").glob("*.log")
    flip(metadata, 70)
    verified = document_of(orders("log", "verify", "--json", code=1))
    files = {one["file"] for one in verified["damage"] if one["is_data"]}
    assert str(path.relative_to(data)) in files
    assert any(file.startswith("metadata") for file in files)


def test_a_partition_that_is_gone_is_missed(orders: Run, data: Path) -> None:
    folder = orders_file(data, orders).parent
    folder.rename(data / "elsewhere")
    verified = document_of(orders("log", "verify", "orders", "--json", code=1))
    [damage] = verified["damage"]
    assert damage["file"] == str(folder.relative_to(data))
    assert damage["belongs_to"] == "orders 0"


def test_a_directory_that_is_not_ours_is_refused(run: Run, data: Path) -> None:
    data.mkdir()
    (data / "notes.txt").write_text("mine")
    refused = run("log", "verify", "--json", code=1)
    assert "not a data directory" in refused.stderr
    assert (data / "notes.txt").read_text() == "mine"
    assert [path.name for path in data.iterdir()] == ["notes.txt"]


def test_a_dump_shows_batches_and_records_where_they_lie(orders: Run) -> None:
    text = orders("log", "dump", "orders", "0", "--records").stdout
    assert "byte 0: offsets 0 to 0, 1 record," in text
    assert "  0: value value 0" in text
    batches = [
        json.loads(line)
        for line in orders("log", "dump", "orders", "0", "--records", "--json").stdout.splitlines()
    ]
    assert batches[0]["position"] == 0
    assert batches[1]["position"] == batches[0]["size_bytes"]
    assert [batch["records"][0]["value"] for batch in batches[:4]] == [
        f"value {number}" for number in range(4)
    ]


def test_a_dump_stops_at_damage_with_code_1(orders: Run, data: Path) -> None:
    path = orders_file(data, orders)
    flip(path, 70)
    assert "byte 0: damaged: " in orders("log", "dump", "orders", "0", code=1).stdout
    assert "byte 0: damaged: " in orders("log", "dump", "--file", str(path), code=1).stdout


def test_an_export_holds_every_byte(run: Run) -> None:
    run("topic", "create", "orders", "--partitions", "1")
    run("publish", "orders", "grüezi", "--key", "k", "--header", "h=1")
    run("publish", "orders", "-", "--whole", stdin=b"\xff\x00")
    text, binary = map(json.loads, run("log", "export", "orders").stdout.splitlines())
    assert (text["key"], text["value"], text["headers"]) == (
        "k",
        "grüezi",
        [["h", "1"], ["content-type", "text/plain"]],
    )
    assert binary["value"] == {"base64": "/wA="}
    run("topic", "create", "empty")
    run("log", "export", "empty", code=3)
