"""Which pipelines there are. None of them is imported before it is wanted."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from headrace.core.errors import HeadraceError, InvalidArgument
from headrace.pipelines.failing import as_one_line, is_of_spark, no_query_log
from headrace.pipelines.settings import PipelineSettings

Say = Callable[[str], None]


class Pipeline(NamedTuple):
    name: str
    summary: str
    # The module that has `Settings` and `run`.
    module: str

    def settings(self) -> type[PipelineSettings]:
        found: type[PipelineSettings] = self._load().Settings
        return found

    def run(self, settings: PipelineSettings, *, master: str | None, say: Say) -> int:
        """The exit code: 0 when all is well, 1 when the pipeline found that
        something is not. What Spark complains about is a HeadraceError of one line."""
        job = self._load()
        try:
            with no_query_log():
                code: int = job.run(settings, master=master, say=say)
        except Exception as error:
            if isinstance(error, HeadraceError) or not is_of_spark(error):
                raise
            raise HeadraceError(f"{self.name} failed: {as_one_line(error)}") from error
        return code

    def _load(self) -> Any:
        return importlib.import_module(self.module)


PIPELINES = {
    pipeline.name: pipeline
    for pipeline in (
        Pipeline(
            "rollup",
            "metrics into aggregates by the minute, 5 minutes and hour, with quantiles",
            "headrace.pipelines.rollup.run",
        ),
        Pipeline(
            "archive",
            "a topic into the lake, raw and typed, with small files merged",
            "headrace.pipelines.archive.run",
        ),
        Pipeline(
            "replay",
            "records of a topic or of the lake, chosen and changed, back to a topic",
            "headrace.pipelines.replay.run",
        ),
        Pipeline(
            "triage",
            "dead letters by kind and over time: a report, and a plan to redrive them",
            "headrace.pipelines.triage.run",
        ),
        Pipeline(
            "audit",
            "proof that a lake has a topic's records: counts, gaps, duplicates, contents, delay",
            "headrace.pipelines.audit.run",
        ),
    )
}


def pipeline_named(name: str) -> Pipeline:
    if name not in PIPELINES:
        raise InvalidArgument(f"there is no pipeline {name!r}; there are: {', '.join(PIPELINES)}")
    return PIPELINES[name]


def settings_of(name: str, values: Mapping[str, Any]) -> PipelineSettings:
    """The pipeline's settings from what a file says. The file may name its
    pipeline; then it must be this one."""
    written = values.get("pipeline", name)
    if written != name:
        raise InvalidArgument(
            f"the settings are for the pipeline {written!r} and not for {name!r}; run that one, "
            "or name another file with --config"
        )
    return pipeline_named(name).settings().from_mapping({**values, "pipeline": name})
