"""What a replay is told: which records, what becomes of them, and where they go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from headrace.cli.arguments import parse_moment_ms
from headrace.core.errors import InvalidArgument
from headrace.core.settings import check_between
from headrace.core.values import check_name
from headrace.pipelines.settings import StreamSettings, missing

Kept = Literal["timestamp", "key", "headers", "partition"]


@dataclass(frozen=True, slots=True)
class ReplaySettings(StreamSettings):
    source: Literal["topic", "lake"] = "topic"
    # The archive's instance, where its settings gave it a name of its own.
    archive: str = ""
    to_topic: str = ""
    to_servers: str = ""
    # Moments of publishing: from `start` on, and before `end`.
    start: str = ""
    end: str = ""
    # SQL on a record's columns and on `text`, its value as text.
    where: str = ""
    key: str = ""
    value: str = ""
    # What a record keeps of its own besides its value. Without its timestamp it gets the
    # time of writing, without its partition the one of its key.
    keep: tuple[str, ...] = ("key", "headers")
    # Records a second; 0 is as fast as it goes.
    rate: float = 0.0
    chunk_rows: int = 10_000
    state: str = ""
    exactly_once: bool = True

    def __post_init__(self) -> None:
        StreamSettings.__post_init__(self)
        check_between("rate", self.rate, 0, None)
        check_between("chunk_rows", self.chunk_rows, 1, 1_000_000)
        for name in ("start", "end"):
            self.moment_ms(name)
        for name in self.keep:
            if name not in get_args(Kept):
                raise InvalidArgument(f"keep takes {', '.join(get_args(Kept))}, and not {name!r}")

    def check(self) -> None:
        if self.source == "lake" and not self.lake:
            raise missing("lake", "which archive to read", "lake/orders")
        if self.lake:
            self.check_lake()
        if not self.topic:
            raise missing("topic", "which topic to replay", "orders")
        self.check_place()
        if not self.servers:
            raise InvalidArgument("a replay needs a node; say where with servers = ...")
        if not self.to_topic:
            raise missing("to_topic", "where the records go", f"{self.topic}-again")
        check_name("topic", self.to_topic)
        if self.to_topic == self.topic and self.source == "topic" and not self.end:
            raise InvalidArgument(
                "to_topic is the topic that is read; name another, or say with end = ... up to "
                "which moment, or what is replayed would be replayed again by the next run"
            )

    @property
    def instance(self) -> str:
        return self.name or f"replay-{self.topic}-{self.to_topic}"

    @property
    def state_path(self) -> str:
        return self.state or f"{self.instance}.state.json"

    def moment_ms(self, name: str) -> int | None:
        text = getattr(self, name)
        try:
            return parse_moment_ms(text) if text else None
        except ValueError as error:
            raise InvalidArgument(f"{name}: {error}") from None

    def about(self) -> str:
        place = self.lake if self.source == "lake" else self.servers
        chosen = [each for each in (self.start, self.end, self.where, self.key, self.value) if each]
        if self.keep != ReplaySettings.__dataclass_fields__["keep"].default:
            chosen.append(f"keep {', '.join(self.keep)}")
        return " | ".join([f"{self.source} {place} {self.topic} to {self.to_topic}", *chosen])
