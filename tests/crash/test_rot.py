"""Rot: bits flip, files are cut, blocks change places. It is seen or it is harmless.

A directory of every kind of file is made once; each trial damages one file of a
copy and opens it. Everything that can be asked is asked, and each answer is what it
would have been, or a HeadraceError that says where to look. Never another answer.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.crash.actor import GROUP, Actor
from tests.crash.invariants import read_all
from tests.crash.ledger import Ledger
from tests.crash.power import SEED, clock_at, make_rare_things_common
from tests.crash.script import QUEUES, work
from tests.unit.engine.transactions import Writer

from headrace import Headrace
from headrace.core.errors import HeadraceError
from headrace.core.values import MessageId
from headrace.engine.opening import NEEDED_WHOLE
from headrace.inspect import Damage, log_folders, verify_log
from headrace.node import Node
from headrace.platform.memory_disk import MemoryContent
from headrace.record import read_header
from headrace.testing import ManualClock, MemoryDisk
from headrace.testing import open as open_in_memory

pytestmark = pytest.mark.rot

# No honest answer asks for the time so often: whoever does turns in a circle.
CLOCK_READINGS_MAX = 20_000
NOW_MS = 1_900_000_000_000

Files = dict[str, bytes]
Picture = dict[str, Any]


class CountingClock(ManualClock):
    """Ends a loop that never ends."""

    readings = 0

    def now_ms(self) -> int:
        self.readings += 1
        assert self.readings < CLOCK_READINGS_MAX, "this never ends"
        return super().now_ms()


class Example:
    """A directory as files, and everything that can be asked of it."""

    def __init__(self, files: Files, folders: set[str]) -> None:
        self.files = files
        self.folders = folders
        with self.opened(files) as handle:
            self.picture = {name: ask() for name, ask in questions(handle)}

    def is_needed(self, path: str) -> bool:
        """Whether nothing can be done without this file: the catalog, the format, what the
        node keeps of positions and of transactions."""
        needed = [id for name, id, *_ in self.picture["topics"] if name in NEEDED_WHOLE]
        return not path.startswith("topics/") or path.split("/")[1] in needed

    @contextmanager
    def opened(self, files: Files) -> Iterator[Headrace]:
        clock = CountingClock(clock_at(NOW_MS).now(), autoskip=False)
        handle = open_in_memory(clock, disk=_disk(files, self.folders))
        yield handle
        handle.close()


def _disk(files: Files, folders: set[str]) -> MemoryDisk:
    disk = MemoryDisk()
    disk.folders = set(folders)
    disk.names = {path: MemoryContent(content) for path, content in files.items()}
    return disk


def _files(disk: MemoryDisk) -> Files:
    return {path: bytes(content.data) for path, content in disk.names.items()}


def questions(handle: Headrace) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Everything that has one right answer."""
    node = handle.connection.reach()
    yield (
        "topics",
        lambda: [
            (t.name, t.id, t.settings, [p[:4] for p in t.partitions])
            for t in handle.topics(internal=True)
        ],
    )
    yield "groups", lambda: [(g.name, g.kind, g.topics, g.settings) for g in handle.groups()]
    for topic in handle.topics():
        name = topic.name
        for info in topic.partitions:
            start, end = info.start_offset, info.high_watermark
            read = partial(read_all, handle, name, info.partition, start)
            yield f"records {name}:{info.partition}", read
            for offset in range(start, end):
                if name in QUEUES:
                    message = MessageId(name, info.partition, offset)
                    yield f"status {message}", partial(handle.status, message, GROUP)
        if name in QUEUES:
            yield f"letters {name}", partial(node.dead_letters, name, limit=1_000)
            yield f"delayed {name}", partial(node.delayed, name, limit=1_000)
            yield f"depth {name}", partial(handle.depth, name, group=GROUP)
        yield f"cursors {name}", partial(node.committed, "readers", name)


@pytest.fixture(scope="module")
def examples() -> Iterator[list[Example]]:
    """One that was closed in order, and one whose process died at work."""
    with pytest.MonkeyPatch.context() as patch:
        make_rare_things_common(patch)
        clock = clock_at(NOW_MS - 3_600_000)
        disk = MemoryDisk()
        actor = Actor(open_in_memory(clock, disk=disk), Ledger(grants_last=True).note)
        actor.create_topic("wide", 1)
        for step in range(12):
            actor.publish("wide", [f"{step}-{n}" + "." * 300 for n in range(10)], delay=1)
        _run_transactions(actor.handle, clock)
        work(actor, clock, lambda: open_in_memory(clock, disk=disk))
        left = Example(_files(disk), set(disk.folders))
        actor.handle.close()
        closed = Example(_files(disk), set(disk.folders))
        yield [left, closed]


def _run_transactions(handle: Headrace, clock: ManualClock) -> None:
    """A topic with transactions of every fate, one of them still open."""
    node = handle.connection.reach()
    assert isinstance(node, Node)
    node.create_topic("decided", partitions=1, settings={"segment_bytes": 1024})
    broker = node._broker
    writer = Writer(broker.topics.partition(broker.topics.named("decided"), 0), clock.now_ms())
    for number in range(40):
        writer.write(number % 5, b"%d" % number + b"." * 40)
        if number % 3 == 2:
            writer.end(number % 5, commit=number % 2 == 0)
    for producer in range(1, 5):
        writer.commit(producer)
    writer.write(9, b"open")
    writer.write(-1, b"not stable")
    writer.sync()
    assert len(writer.partition.aborted_between(0, 99)) > 3


# Damage.


def _flip(content: bytes, chance: random.Random) -> bytes:
    position = chance.randrange(len(content))
    flipped = content[position] ^ 1 << chance.randrange(8)
    return content[:position] + bytes((flipped,)) + content[position + 1 :]


def _cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def _swap(content: bytes, chance: random.Random) -> bytes:
    """Two blocks change places; of a small file, two sectors."""
    size = 4096 if len(content) >= 8192 else 512
    blocks = [content[at : at + size] for at in range(0, len(content), size)]
    if len(blocks) < 2:
        return _flip(content, chance)
    first, second = chance.sample(range(len(blocks)), 2)
    blocks[first], blocks[second] = blocks[second], blocks[first]
    return b"".join(blocks)


def _zero(content: bytes, chance: random.Random) -> bytes:
    """A block that was never written."""
    at = chance.randrange(len(content)) // 512 * 512
    return content[:at] + bytes(len(content[at : at + 512])) + content[at + 512 :]


def _flip_head(content: bytes, chance: random.Random) -> bytes:
    """A bit of what a batch's checksum does not cover: its offset, its epoch."""
    heads = [0]
    while (following := heads[-1] + read_header(content, heads[-1]).size_bytes) < len(content):
        heads.append(following)
    at = chance.choice(heads)
    return content[:at] + _flip(content[at : at + 16], chance) + content[at + 16 :]


DAMAGES = (_flip, _flip, _flip, _cut, _swap, _zero)
LOG_DAMAGES = (*DAMAGES, _flip_head, _flip_head, _flip_head)


def _kind(path: str) -> str:
    folder = "metadata" if path.startswith("metadata/") else "partition"
    folder = "state" if "/state/" in path else folder
    name = path.rsplit("/", 1)[-1]
    if "/attributes/" in path:
        return "attributes"
    return f"{folder} {name.rsplit('.', 1)[-1] if '.' in name else name}"


def _says_what_to_do(error: HeadraceError, path: str) -> bool:
    text = str(error)
    folder = path.rsplit("/", 1)[0] if "/" in path else path
    return path in text or folder in text or "headrace" in text.lower()


def _ask_everything(handle: Headrace, expected: Picture, path: str) -> bool:
    """Whether some answer was an error; all others are right. Where queues are stopped,
    more is kept than would be otherwise; where messages are, their bounds are what the
    other files tell; and where a file is shorter, retention by size begins later."""
    node = handle.connection.reach()
    assert isinstance(node, Node)
    stopped = {topic for topic, _, _ in node.stopped_queues() + node.stopped_partitions()}
    reported = bool(stopped)
    asked = set()
    for name, ask in questions(handle):
        asked.add(name)
        try:
            answer = ask()
        except HeadraceError as error:
            assert _says_what_to_do(error, path), f"{name}: {error!r} does not say where"
            reported = True
            continue
        right = expected.get(name)
        if name == "topics":
            doubtful = {each[0] for each in answer if each[1] in path} | stopped
            answer = [each for each in answer if each[0] not in doubtful]
            right = [each for each in expected[name] if each[0] not in doubtful]
        if not name.startswith(tuple(f"records {topic}:" for topic in stopped)):
            assert name in expected and answer == right, f"{name} is {answer} instead of {right}"
    assert reported or asked == set(expected)
    return reported


def _use(handle: Headrace, path: str) -> None:
    """It goes on, or says why not."""
    for topic in QUEUES:
        try:
            handle.publish(topic, b"after the damage")
            queue = handle.queue(topic, GROUP)
            messages = queue.lease(20)
            queue.ack(messages[:10])
            queue.reject(messages[10:], error="enough")
        except HeadraceError as error:
            assert _says_what_to_do(error, path), f"{error!r} does not say where"


def test_damage_is_reported_or_harmless(examples: list[Example], flips: int) -> None:
    outcomes: Counter[tuple[str, str]] = Counter()
    by_kind: list[dict[str, list[str]]] = []
    for example in examples:
        kinds: dict[str, list[str]] = {}
        for path, content in sorted(example.files.items()):
            if content:
                kinds.setdefault(_kind(path), []).append(path)
        by_kind.append(kinds)
    for trial in range(flips):
        chance = random.Random(f"{SEED}/{trial}")
        number = chance.randrange(len(examples))
        example, kinds = examples[number], by_kind[number]
        # Each kind of file as often as any other, however few there are of it.
        kind = chance.choice(sorted(kinds))
        path = chance.choice(kinds[kind])
        damage = chance.choice(LOG_DAMAGES if path.endswith(".log") else DAMAGES)
        files = {**example.files, path: damage(example.files[path], chance)}
        try:
            outcome = _trial(example, files, path)
        except BaseException as error:
            error.add_note(f"trial {trial} of seed {SEED}: {damage.__name__} in {path}")
            raise
        outcomes[kind, outcome] += 1
    for (kind, outcome), count in sorted(outcomes.items()):
        print(f"{count:6}  {kind:24} {outcome}")
    assert {kind for kind, _ in outcomes} >= {"partition log", "state log", "metadata log"}
    assert outcomes["partition txnindex", "harmless"]
    assert not outcomes["partition txnindex", "reported"]


def _trial(example: Example, files: Files, path: str) -> str:
    try:
        with example.opened(files) as handle:
            reported = _ask_everything(handle, example.picture, path)
            _use(handle, path)
    except HeadraceError as error:
        assert example.is_needed(path), f"the directory does not open: {error!r}"
        assert _says_what_to_do(error, path), f"{error!r} does not say where"
        return "reported"
    return "reported" if reported else "harmless"


def test_verifying_finds_every_flipped_bit_of_the_data(
    examples: list[Example], flips: int, tmp_path: Path
) -> None:
    example = examples[1]
    for folder in sorted(example.folders):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    for path, content in example.files.items():
        (tmp_path / path).write_bytes(content)
    root = os.fspath(tmp_path)
    assert not list(_damages(root, log_folders(root)))
    logs = sorted(path for path in example.files if path.endswith(".log"))
    for trial in range(flips // 10):
        chance = random.Random(f"{SEED}/verify/{trial}")
        path = chance.choice([path for path in logs if example.files[path]])
        damage = chance.choice((_flip, _flip_head))
        (tmp_path / path).write_bytes(damage(example.files[path], chance))
        folder = path.rsplit("/", 1)[0]
        assert list(_damages(root, [folder])), f"trial {trial}: nothing is said of {path}"
        (tmp_path / path).write_bytes(example.files[path])


def _damages(root: str, folders: list[str]) -> Iterator[Damage]:
    for folder in folders:
        for found in verify_log(root, folder, NOW_MS):
            if isinstance(found, Damage):
                yield found
