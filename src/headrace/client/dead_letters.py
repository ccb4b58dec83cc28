"""Dead letters: what was given up, why, and the way back.

    letters = handle.dead_letters("orders")      the topic it came from
    for letter in letters: ...                   read, page by page
    letters.redrive(reason="timeout", rate=50)   sent back to the group that failed
    letters.purge(older_than=7 * 86400)          deleted
    letters.export("letters.jsonl")              one JSON document a line

`redrive`, `purge`, `export` and `count` choose by the same words. They see what
was there when they began: what comes back meanwhile is not taken again, so a
redrive ends even when every message fails again at once.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Callable, Iterator
from itertools import islice
from typing import IO, Any, TypedDict, Unpack

from headrace.client.connection import Connection
from headrace.client.redrive import BATCH_ITEMS, Redrive, ends_of_dead_letters
from headrace.client.settling import message_id_of
from headrace.client.times import Duration, duration_ms
from headrace.client.views import DeadLetterView
from headrace.core.errors import InvalidArgument
from headrace.core.limits import PAGE_ITEMS_MAX
from headrace.core.values import DeadLetter, MessageId, RedriveResult, check_name

Filter = Callable[[DeadLetterView], bool]
Progress = Callable[[RedriveResult], None]


class Choice(TypedDict, total=False):
    """Which dead letters; every word given must hold."""

    # The queue group that gave it up.
    group: str | None
    # Text that its reason or its error contains, in any case.
    reason: str | None
    # Given up at least so long ago.
    older_than: Duration | None
    filter: Filter | None
    limit: int | None


class DeadLetters:
    def __init__(self, connection: Connection, topic: str) -> None:
        self.topic = check_name("topic", topic)
        self._connection = connection

    def __iter__(self) -> Iterator[DeadLetterView]:
        """Partition by partition, the oldest first."""
        return (DeadLetterView(each) for each in self._pages(None))

    def choose(self, **choice: Unpack[Choice]) -> Iterator[DeadLetterView]:
        """Those that the words choose, as of now."""
        # A misspelt word that was ignored would choose everything, and purge it.
        unknown = choice.keys() - Choice.__annotations__.keys()
        if unknown:
            raise TypeError(
                f"dead letters are chosen by {', '.join(Choice.__annotations__)}, not by "
                f"{', '.join(sorted(unknown))}"
            )
        backend = self._connection.reach()
        before_ms = None
        older_than = choice.get("older_than")
        if older_than is not None:
            before_ms = backend.clock.now_ms() - duration_ms("older_than", older_than)
        text = choice.get("reason")
        if text is not None and not isinstance(text, str):
            raise InvalidArgument(f"reason must be text, not {text!r}")
        wanted = choice.get("filter")
        if wanted is not None and not callable(wanted):
            raise InvalidArgument(f"filter must be a function, not {wanted!r}")
        limit = choice.get("limit")
        if limit is not None and (type(limit) is not int or limit < 1):
            raise InvalidArgument(f"limit must be at least 1, not {limit!r}")
        return self._choose(choice.get("group"), text, before_ms, wanted, limit)

    def _choose(
        self,
        group: str | None,
        text: str | None,
        before_ms: int | None,
        wanted: Filter | None,
        limit: int | None,
    ) -> Iterator[DeadLetterView]:
        count = 0
        for each in self._pages(group):
            if before_ms is not None and each.failed_at_ms > before_ms:
                continue
            if not each.mentions(text):
                continue
            view = DeadLetterView(each)
            if wanted is not None and not wanted(view):
                continue
            yield view
            count += 1
            if count == limit:
                return

    def count(self, **choice: Unpack[Choice]) -> int:
        return sum(1 for _ in self.choose(**choice))

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        # Without this, truth would mean a count through all pages.
        return next(iter(self), None) is not None

    def show(self, id: object) -> DeadLetterView:
        """One dead letter by its id; UnknownMessage when there is none."""
        return DeadLetterView(self._connection.reach().dead_letter(message_id_of(id)))

    def redrive(
        self,
        *,
        rate: float | None = None,
        dry_run: bool = False,
        force: bool = False,
        progress: Progress | None = None,
        **choice: Unpack[Choice],
    ) -> RedriveResult:
        """Send them back to the group in which they failed, with all attempts.

        A message that came back too often already stays, unless `force`. It
        stops, and `stopped` says so, when more than half as many come back as were
        sent meanwhile: it looks after every batch but the last, for 20 messages at
        least. `returned` says how many came back in all while it went on.
        `rate` is in messages a second; `progress` is called with the result so far
        after every batch.
        """
        backend = self._connection.reach()
        redrive = Redrive(backend, self.topic, rate=rate, dry_run=dry_run, force=force)
        letters = self.choose(**choice)
        following = _ids(letters, redrive.batch_items)
        while following and redrive.result.stopped is None:
            # Whether there are more decides whether there is anything to stop.
            batch, following = following, _ids(letters, redrive.batch_items)
            redrive.send(batch, is_last=not following)
            if progress is not None:
                progress(redrive.result)
        return redrive.result

    def purge(self, **choice: Unpack[Choice]) -> int:
        """Delete them for good; how many there were."""
        backend = self._connection.reach()
        count = 0
        letters = self.choose(**choice)
        while batch := _ids(letters, BATCH_ITEMS):
            count += backend.purge(self.topic, batch)
        return count

    def export(self, target: str | os.PathLike[str] | IO[str], **choice: Unpack[Choice]) -> int:
        """Write them as JSON Lines to a path or an open text file; how many."""
        # Chosen first, so that a wrong word does not empty a file.
        letters = self.choose(**choice)
        if isinstance(target, str | os.PathLike):
            with open(target, "w", encoding="utf-8") as file:
                return self._export(file, letters)
        return self._export(target, letters)

    def _export(self, file: IO[str], letters: Iterator[DeadLetterView]) -> int:
        count = 0
        for letter in letters:
            file.write(json.dumps(as_document(letter), ensure_ascii=False) + "\n")
            count += 1
        return count

    def _pages(self, group: str | None) -> Iterator[DeadLetter]:
        """Every dead letter that was there when the first one was asked for."""
        backend = self._connection.reach()
        ends = ends_of_dead_letters(backend, self.topic)
        after: MessageId | None = None
        while True:
            page = self._connection.reach().dead_letters(
                self.topic, group=group, after=after, limit=PAGE_ITEMS_MAX
            )
            for each in page:
                if each.offset < ends.get(each.partition, 0):
                    yield each
            if len(page) < PAGE_ITEMS_MAX:
                return
            last = page[-1]
            after = MessageId(last.topic, last.partition, last.offset)

    def __repr__(self) -> str:
        return f"<DeadLetters {self.topic}>"


def _ids(letters: Iterator[DeadLetterView], count: int) -> list[MessageId]:
    """Of the next ones."""
    return [letter.id for letter in islice(letters, count)]


def as_document(letter: DeadLetterView) -> dict[str, Any]:
    """A dead letter for JSON. Bytes that are not UTF-8 are under `..._base64`."""
    document: dict[str, Any] = {
        "id": str(letter.id),
        "source": str(letter.source),
        "group": letter.group,
        "reason": letter.reason,
        "error": letter.error,
        "attempts": letter.attempts,
        "redrives": letter.redrives,
        "created_at": letter.created_at.isoformat(),
        "failed_at": letter.failed_at.isoformat(),
    }
    _put(document, "key", letter.key)
    _put(document, "value", letter.raw)
    headers: dict[str, Any] = {}
    for name, value in letter.headers.items():
        _put(headers, name, value)
    document["headers"] = headers
    return document


def _put(document: dict[str, Any], name: str, value: bytes | None) -> None:
    if value is None:
        document[name] = None
        return
    try:
        document[name] = value.decode()
    except UnicodeDecodeError:
        document[f"{name}_base64"] = b64encode(value).decode("ascii")
