"""The naive twin of a queue group: a dictionary of dictionaries, loops and `sorted`.

It says what the rules say, as slowly as can be, and knows nothing of windows,
events or disks.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from headrace.core.settings import GroupSettings

SETTINGS = {
    "visibility_ms": 1_000,
    "max_attempts": 3,
    "backoff_ms": 100,
    "leases_per_consumer_max": 12,
}
HELD = "leased"
OPEN = ("pending", "retrying", "delayed")

Place = tuple[int, int]
Message = dict[str, Any]


class Twin:
    """One group's messages, as the rules say and as slowly as can be."""

    def __init__(self, name: str, buries_expired: bool) -> None:
        self.name = name
        self.buries_expired = buries_expired
        self.settings = GroupSettings.from_mapping(SETTINGS)
        self.messages: dict[Place, Message] = {}
        self.totals: Counter[str] = Counter()
        self.buried: list[tuple[Place, str]] = []

    def add(self, place: Place, message: Message, now_ms: int) -> None:
        mine = dict(message, attempts=0, owner=None, until=None, due=None, error=None)
        if mine["cancelled"]:
            mine["state"] = "cancelled"
        else:
            mine["state"] = "delayed" if mine["deliver_at"] > now_ms else "pending"
        self.messages[place] = mine

    def tick(self, now_ms: int) -> None:
        for place, message in sorted(self.messages.items()):
            state = message["state"]
            if state == "delayed" and message["deliver_at"] <= now_ms:
                message["state"] = "pending"
            if state == "retrying" and message["due"] <= now_ms:
                message["state"] = "pending"
            if state == HELD and message["until"] <= now_ms:
                self.end_lease(place, message)
            if message["state"] in OPEN and 0 < message["expires"] <= now_ms:
                message["state"] = "expired"
                self.totals["expired"] += 1
                if self.buries_expired or message.get("is_revived"):
                    self.totals["dead_lettered"] += 1
                    self.buried.append((place, "expired"))

    def end_lease(self, place: Place, message: Message) -> None:
        if message["attempts"] >= self.most(message):
            self.bury(place, message, "max-attempts")
        else:
            message.update(state="pending", owner=None, error="ended")
            self.totals["lease_expired"] += 1

    def most(self, message: Message) -> int:
        return int(message["max_attempts"] or self.settings.max_attempts)

    def bury(self, place: Place, message: Message, reason: str) -> None:
        message.update(state="dead-lettered", owner=None)
        self.totals["dead_lettered"] += 1
        self.buried.append((place, reason))

    def has_dead(self, place: Place, now_ms: int) -> bool:
        """Whether what was given up there can be made ready where it is."""
        message = self.messages.get(place)
        if message is None or message["state"] != "dead-lettered":
            return False
        return not 0 < message["expires"] <= now_ms

    def revive(self, place: Place, redrives: int) -> None:
        self.messages[place].update(
            state="pending", attempts=0, error=None, due=None, redrives=redrives, is_revived=True
        )

    def pending(self) -> list[Place]:
        return [p for p in sorted(self.messages) if self.messages[p]["state"] == "pending"]

    def held_by(self, owner: str) -> list[Place]:
        return [p for p in sorted(self.messages) if self.messages[p]["owner"] == owner]

    def first_of_each_lane(self, chosen: set[Place], pending: list[Place]) -> set[Place]:
        """Those that should have come, given how many of each lane and
        partition did: the first of each, in order of offset."""
        count = Counter((p[0], self.messages[p]["lane"]) for p in chosen)
        wanted = set()
        for (partition, lane), size in count.items():
            same = [p for p in pending if (p[0], self.messages[p]["lane"]) == (partition, lane)]
            wanted |= set(same[:size])
        return wanted
