"""Runs the rollup: what the registry and `spark-submit` call."""

from __future__ import annotations

from headrace.core.wording import counted
from headrace.pipelines.registry import Say
from headrace.pipelines.rollup.job import RollupJob, RollupSettings
from headrace.pipelines.running import follow, read_stream, shown, until_told
from headrace.pipelines.session import spark_session

Settings = RollupSettings


def run(settings: RollupSettings, *, master: str | None, say: Say) -> int:
    with spark_session(settings, master) as spark, until_told() as stopped:
        outcome = follow(
            read_stream(spark, settings),
            RollupJob(settings),
            settings,
            report=lambda done: say(shown(done)),
            stopped=stopped,
        )
    say(
        f"{counted(outcome.rows_in, 'row')} in = {outcome.rows_out:,} rolled + "
        f"{outcome.rows_late:,} late "
        f"+ {outcome.rows_bad:,} bad, in {counted(outcome.batches, 'batch')}; tables in "
        f"{settings.lake}"
    )
    return 0
