"""Batches of a topic are taken once, whatever died before."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.core.errors import InvalidArgument
from headrace.pipelines import running
from headrace.pipelines.ledger import Done, Ledger, writers_of
from headrace.pipelines.settings import StreamSettings
from headrace.pipelines.table import LakeTable, open_table

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


class NumbersJob:
    """Batches are lists of numbers, for one table."""

    def __init__(self, lake: Path, format: str) -> None:
        self.table = open_table(
            str(lake / "numbers"), format, "at timestamp, n long", partition_by=(), time="at"
        )
        self.ledger = Ledger(str(lake), format, "w")
        self.dies_before = ""

    @property
    def before_ledger(self) -> Sequence[LakeTable]:
        return [self.table]

    def take(self, records: Any, batch: int, query: str) -> Done:
        self._die("table")
        self.table.append_rows([{"at": NOON, "n": n} for n in records], "w", batch)
        self._die("ledger")
        return Done("w", batch, query, len(records), 0, 0, 0, None, {}, NOON, NOON)

    def _die(self, before: str) -> None:
        if self.dies_before == before:
            raise ConnectionAbortedError

    def compact(self, spark: Any) -> None:
        raise AssertionError


@pytest.fixture(params=["delta", "parquet"])
def format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets a process of its own take a batch from a checkpoint."""

    def run(query: str, batch: int, *numbers: int, dies_before: str = "") -> None:
        job = NumbersJob(tmp_path, format)
        job.dies_before = dies_before
        settings = StreamSettings(
            checkpoint=f"/{query}", lake=str(tmp_path), retries=0, compact_every=0
        )
        monkeypatch.setattr(running, "_run", lambda _, take, *__: take(list(numbers), batch))
        monkeypatch.setattr(running, "_query_of", lambda _: query)
        if dies_before:
            with pytest.raises(ConnectionAbortedError):
                running.follow(None, job, settings)  # type: ignore[arg-type]
        else:
            running.follow(None, job, settings)  # type: ignore[arg-type]

    return run


def numbers_in(lake: Path, format: str) -> list[int]:
    return sorted(row["n"] for row in NumbersJob(lake, format).table.rows())


def test_a_batch_of_another_checkpoint_is_not_skipped_in_silence(
    run: Any, tmp_path: Path, format: str
) -> None:
    """The first batch was killed before it was in the ledger, and its number comes again
    with other rows."""
    run("first", 0, 1, 2, dies_before="ledger")
    for _ in range(2):
        with pytest.raises(InvalidArgument, match="with another checkpoint than '/second'"):
            run("second", 0, 1, 2, 3)
    assert NumbersJob(tmp_path, format).ledger.last() is None
    run("first", 0, 1, 2)
    run("first", 1, 3)
    assert numbers_in(tmp_path, format) == [1, 2, 3]


def test_a_checkpoint_of_which_nothing_is_in_may_be_another(
    run: Any, tmp_path: Path, format: str
) -> None:
    run("first", 0, 1, dies_before="table")
    assert writers_of(str(tmp_path), format) == []
    run("second", 0, 1, 2, dies_before="ledger")
    run("second", 0, 1, 2)
    assert numbers_in(tmp_path, format) == [1, 2]
    with pytest.raises(InvalidArgument, match="with another checkpoint than '/first'"):
        run("first", 0, 1)
