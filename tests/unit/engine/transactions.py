"""Producers of transactions for tests, who number what they write as real ones do."""

from __future__ import annotations

from collections import Counter

from headrace.engine.partition import Appended, Partition
from headrace.record import Headers, NewRecord, build_batch, read_header


class Writer:
    """Writes to one partition on behalf of any number of producers."""

    def __init__(self, partition: Partition, now_ms: int = 1_000_000) -> None:
        self.partition = partition
        self.now_ms = now_ms
        self._sequences: Counter[tuple[int, int]] = Counter()

    def write(
        self,
        producer_id: int,
        *values: bytes | None,
        epoch: int = 0,
        key: bytes | None = None,
        headers: Headers = (),
        transactional: bool = True,
    ) -> Appended:
        records = [NewRecord(key, value, headers, self.now_ms) for value in values]
        batch = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch if producer_id >= 0 else -1,
            base_sequence=self._sequences[producer_id, epoch] if producer_id >= 0 else -1,
            transactional=transactional and producer_id >= 0,
        )
        appended = self.partition.append(batch, read_header(batch), self.now_ms)
        self._sequences[producer_id, epoch] += len(values)
        return appended

    def end(
        self, producer_id: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0
    ) -> Appended:
        return self.partition.end_transaction(
            producer_id,
            epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            now_ms=self.now_ms,
        )

    def commit(self, producer_id: int, *, epoch: int = 0) -> Appended:
        return self.end(producer_id, commit=True, epoch=epoch)

    def abort(self, producer_id: int, *, epoch: int = 0) -> Appended:
        return self.end(producer_id, commit=False, epoch=epoch)

    def sync(self) -> None:
        self.partition.log.sync_now()
        if self.partition.state is not None:
            self.partition.state.log.sync_now()
        self.partition.on_synced(self.now_ms)
