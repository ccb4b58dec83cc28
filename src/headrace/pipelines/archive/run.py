"""Runs the archive: what the registry and `spark-submit` call."""

from __future__ import annotations

from headrace.core.wording import counted
from headrace.pipelines.archive.job import ArchiveJob, ArchiveSettings
from headrace.pipelines.registry import Say
from headrace.pipelines.running import follow, read_stream, shown, until_told
from headrace.pipelines.session import spark_session

Settings = ArchiveSettings


def run(settings: ArchiveSettings, *, master: str | None, say: Say) -> int:
    with spark_session(settings, master) as spark, until_told() as stopped:
        job = ArchiveJob(settings)
        for change in job.prepare(spark):
            say(change)
        outcome = follow(
            read_stream(spark, settings),
            job,
            settings,
            report=lambda done: say(shown(done)),
            stopped=stopped,
        )
    say(
        f"{counted(outcome.rows_out, 'record')} archived in "
        f"{counted(outcome.batches, 'batch')} to {settings.lake}"
    )
    if outcome.rows_bad:
        say(f"{outcome.rows_bad:,} could not be decoded; they are in the table `bad`")
    return 0
