"""How far a pipeline is, from what it left behind: its ledger and its group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace.core.errors import HeadraceError, InvalidArgument, UnknownTopic
from headrace.pipelines.ledger import Done, Ledger
from headrace.pipelines.registry import settings_of
from headrace.pipelines.settings import StreamSettings
from headrace.pipelines.topics import names_of, topics_of

TIMEOUT_MS = 5_000


class Status(NamedTuple):
    pipeline: str
    name: str
    batches: int
    last: Done | None
    rows_in: int
    rows_out: int
    rows_late: int
    rows_bad: int
    # Records that the pipeline has still to read; None when nobody can tell.
    lag: int | None
    unreachable: str | None


def status_of(values: Mapping[str, Any]) -> Status:
    name = values.get("pipeline")
    if not isinstance(name, str):
        raise InvalidArgument('the file does not name its pipeline; add: pipeline = "rollup"')
    settings = settings_of(name, values)
    if not isinstance(settings, StreamSettings):
        raise InvalidArgument(
            f"{name} does not run on and on, so it has no status; its report says what it found"
        )
    settings.check_reach()
    ledger = Ledger(settings.lake, settings.format, settings.instance, settings.storage)
    last, totals = ledger.last(), ledger.totals()
    lag, unreachable = None, None
    if settings.servers:
        try:
            lag = lag_of(settings, last)
        except (HeadraceError, OSError) as error:
            unreachable = str(error)
    return Status(
        name,
        settings.instance,
        totals.batches,
        last,
        totals.rows_in,
        totals.rows_out,
        totals.rows_late,
        totals.rows_bad,
        lag,
        unreachable,
    )


def lag_of(settings: StreamSettings, done: Done | None) -> int:
    """How many offsets lie between what is done and the topics' ends.

    The ledger's row ends behind the last record of each partition. The pipeline's group may
    be further, behind control records; where it is not, its last commit did not come through.
    """
    from headrace.client.kafka.cluster import EARLIEST, LATEST, KafkaCluster
    from headrace.client.kafka.offsets import committed_offsets

    ends = done.ends if done else {}
    with KafkaCluster(settings.bootstrap, timeout_ms=TIMEOUT_MS) as cluster:
        topics = topics_of(settings, cluster)
        for name in names_of(settings) or ():
            if name not in topics:
                raise UnknownTopic(f"there is no topic {name!r} on {settings.servers}")
        indexes = {name: topic.partitions for name, topic in topics.items()}
        places = [(name, index) for name in indexes for index in indexes[name]]
        latest = cluster.offsets(dict.fromkeys(places, LATEST))
        earliest = cluster.offsets(dict.fromkeys(places, EARLIEST))
        # A group of that name may be left of a lake that is gone.
        shown = committed_offsets(cluster, settings.instance, indexes) if done else {}
    lag = 0
    for place in places:
        in_ledger = ends.get(f"{place[0]}/{place[1]}", 0)
        lag += latest[place].offset - max(in_ledger, shown.get(place, 0), earliest[place].offset)
    return lag
