"""A pipeline that follows a topic: read, take a batch, say how far it is.

    topic --format("headrace")--> micro-batches --take(frame, number)--> tables
                 |                                                         |
           the checkpoint owns the place          the ledger says what is done
                 |
           a group of the pipeline's name shows its lag to every tool

Spark repeats a batch with the same number and the same rows until it was taken;
the tables skip what they have. The two together are exactly once.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headrace.core.errors import InvalidArgument
from headrace.pipelines.ledger import Done, Ledger
from headrace.pipelines.settings import PipelineSettings, StreamSettings, duration_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.pipelines.table import LakeTable

_FINAL = ("InvalidArgument", "InvalidOption", "AnalysisException", "MissingExtra", "DataLost")
_NO_FILE_SYSTEM = re.compile(
    r"No FileSystem for scheme|ClassNotFoundException: Class org\.apache\.hadoop\.fs\."
)
# How long a wait for the query may last before we look at it again.
WAIT_SECONDS = 1
Report = Callable[[Done], None]


class Job(Protocol):
    """What a pipeline does with a batch. Called again with the same batch until
    the ledger has it."""

    ledger: Ledger

    @property
    def before_ledger(self) -> Sequence[LakeTable]:
        """Those that have a batch before the ledger has it."""

    def take(self, records: DataFrame, batch: int, query: str) -> Done: ...

    def compact(self, spark: SparkSession) -> None: ...


class Outcome(NamedTuple):
    batches: int
    rows_in: int
    rows_out: int
    rows_late: int
    rows_bad: int


def place_options(settings: PipelineSettings) -> dict[str, str]:
    """Where the topic is, in the connector's words."""
    if settings.path:
        return {"path": settings.path}
    return {"kafka.bootstrap.servers": settings.servers}


def read_stream(spark: SparkSession, settings: StreamSettings) -> DataFrame:
    options = {
        **place_options(settings),
        **settings.subscription,
        "startingOffsets": settings.starting_offsets,
        "maxOffsetsPerTrigger": str(settings.rows_per_batch_max),
        "includeHeaders": "true",
    }
    if settings.servers:
        options["progressGroup"] = settings.instance
    given = options | settings.options
    return spark.readStream.format("headrace").options(**given).load()


def read_batch(spark: SparkSession, settings: PipelineSettings, **options: str) -> DataFrame:
    given = place_options(settings)
    if "assign" not in options:
        given |= settings.subscription
    if "columns" not in options:
        given["includeHeaders"] = "true"
    return spark.read.format("headrace").options(**(given | options | settings.options)).load()


def follow(
    records: DataFrame,
    job: Job,
    settings: StreamSettings,
    *,
    report: Report | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Run until the topic's end (trigger "once"), until `stopped`, or until it
    has failed too often; what this run took."""
    taken: list[Done] = []

    def take(frame: DataFrame, batch: int) -> None:
        query = _query_of(frame)
        job.ledger.check_query(query, settings.checkpoint_path, job.before_ledger)
        if job.ledger.has(batch):
            return
        job.ledger.begin(query)
        done = job.take(frame, batch, query)
        job.ledger.write(done)
        taken.append(done)
        if settings.compact_every and (batch + 1) % settings.compact_every == 0:
            job.compact(frame.sparkSession)
            job.ledger.compact(frame.sparkSession)
        if report is not None:
            report(done)

    failures = batches_before = 0
    while not stopped():
        try:
            _run(records, take, settings, stopped)
            break
        except Exception as error:
            failures = 0 if len(taken) > batches_before else failures
            batches_before = len(taken)
            failures += 1
            _check_file_system(error, settings)
            if failures > settings.retries or is_final(error):
                raise
            threading.Event().wait(failures)
    return Outcome(
        len(taken),
        sum(done.rows_in for done in taken),
        sum(done.rows_out for done in taken),
        sum(done.rows_late for done in taken),
        sum(done.rows_bad for done in taken),
    )


def _check_file_system(error: Exception, settings: StreamSettings) -> None:
    """InvalidArgument when Spark cannot keep its checkpoint where it was told to."""
    if "://" in settings.checkpoint_path and _NO_FILE_SYSTEM.search(str(error)):
        raise InvalidArgument(
            f"Spark knows no file system for checkpoint = {settings.checkpoint_path!r}; name a "
            "folder that every machine sees, or give Spark Hadoop's libraries for that store"
        ) from None


def _run(
    records: DataFrame,
    take: Callable[[DataFrame, int], None],
    settings: StreamSettings,
    stopped: Callable[[], bool],
) -> None:
    query = _start(records, take, settings)
    try:
        while not query.awaitTermination(WAIT_SECONDS):
            if stopped():
                break
    finally:
        query.stop()


def is_final(error: Exception) -> bool:
    """Whether starting again would only give the same error: what was asked for is
    wrong. Errors of a query arrive as text, so their names are looked for."""
    return any(name in str(error) for name in _FINAL)


def shown(done: Done) -> str:
    """A line about a batch, for whoever watches."""
    parts = [f"batch {done.batch}: {done.rows_in:,} in", f"{done.rows_out:,} out"]
    parts += [f"{done.rows_late:,} late"] if done.rows_late else []
    parts += [f"{done.rows_bad:,} bad"] if done.rows_bad else []
    return f"{', '.join(parts)}, {done.seconds:.1f} s"


@contextmanager
def until_told() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C or SIGTERM has come. The batch under way is then dropped,
    and is repeated as it was by the next run."""
    told = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield told.is_set
        return
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(kind, lambda *_: told.set()) for kind in kinds]
    try:
        yield told.is_set
    finally:
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)


def _start(
    records: DataFrame, take: Callable[[DataFrame, int], None], settings: StreamSettings
) -> StreamingQuery:
    writer = (
        records.writeStream.queryName(settings.instance)
        .option("checkpointLocation", settings.checkpoint_path)
        .foreachBatch(take)
    )
    if settings.trigger == "once":
        return writer.trigger(availableNow=True).start()
    interval_ms = duration_ms("trigger", settings.trigger)
    return writer.trigger(processingTime=f"{interval_ms} milliseconds").start()


def _query_of(frame: DataFrame) -> str:
    """The id that the checkpoint gives the query, the same in every run."""
    query: Any = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not query:
        # Without it a lake could be written from two checkpoints unnoticed.
        raise RuntimeError(
            "Spark does not say which query a batch belongs to (sql.streaming.queryId); "
            "this version of Spark is not supported"
        )
    return str(query)
