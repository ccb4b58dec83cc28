"""What an audit finds, small enough for the driver."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple


class Verdict(NamedTuple):
    """One partition, judged."""

    topic: str
    partition: int
    # In the topic, below the place where the lake ends.
    published: int
    arrived: int
    missing: int
    duplicates: int
    holes: int
    # Published and not yet due: behind the lake's end.
    waiting: int


class Contents(NamedTuple):
    """The records of one partition and hour that both sides have, and their checksums."""

    topic: str
    partition: int
    hour: str
    records: int
    in_topic: str
    in_lake: str

    @property
    def is_changed(self) -> bool:
        return self.in_topic != self.in_lake


class Duplicate(NamedTuple):
    topic: str
    partition: int
    offset: int
    times: int


class Audit(NamedTuple):
    verdicts: list[Verdict]
    missing_samples: list[str]
    hours: list[dict[str, Any]]
    duplicates: list[Duplicate]
    # None when contents were not looked at.
    contents: list[Contents] | None = None

    @property
    def changed(self) -> list[Contents]:
        return [each for each in self.contents or () if each.is_changed]

    @property
    def is_complete(self) -> bool:
        lost = any(each.missing or each.duplicates for each in self.verdicts)
        return not lost and not self.changed


def shown_hour(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:00")
