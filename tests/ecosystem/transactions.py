"""How much of a topic lies in transactions that are open."""

from __future__ import annotations

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

CALL_SECONDS = 60.0


class Watch:
    """Looks at the ends of a topic's partitions."""

    def __init__(self, bootstrap: str, topic: str, partitions: int = 1) -> None:
        self._settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
        }
        self._admin = AdminClient(self._settings)
        self._places = [TopicPartition(topic, number) for number in range(partitions)]

    def count_written(self) -> int:
        """Offsets that were ever given, committed or not."""
        return self._end(IsolationLevel.READ_UNCOMMITTED)

    def count_held_back(self) -> int:
        """Offsets that readers of committed records do not get yet: from the first record of
        an open transaction."""
        # The stable end first: between the two questions it can only grow.
        stable = self._end(IsolationLevel.READ_COMMITTED)
        return self.count_written() - stable

    def is_open(self) -> bool:
        return self.count_held_back() > 0

    def _end(self, level: IsolationLevel) -> int:
        try:
            return self._ask_for_end(level)
        except KafkaException as error:
            # This client goes on asking about the epoch that it knew before a restart.
            if error.args[0].code() != KafkaError.FENCED_LEADER_EPOCH:
                raise
            self._admin = AdminClient(self._settings)
            return self._ask_for_end(level)

    def _ask_for_end(self, level: IsolationLevel) -> int:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = self._admin.list_offsets(
            dict.fromkeys(self._places, latest),
            isolation_level=level,
            request_timeout=CALL_SECONDS,
        )
        return sum(answer.result(CALL_SECONDS).offset for answer in asked.values())
