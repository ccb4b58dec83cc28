"""Which tests run in one worker of pytest-xdist, and which begin.

    a module     its tests run in one worker, so that its fixtures are made once
    a company    modules that share more than that: a Spark, a browser, a measured node

What takes longest begins, so that the end of a run is made of short things and the
workers end together. A run without workers keeps the order of the folders.

Rejected: the marker xdist_group. It travels in the names of tests, which pytest no longer
lets it change (since 9.2): groups are then torn apart in silence, and every worker starts
a Spark of its own. Rejected as well: each test on its own. It balances best and makes the
fixtures of every module once in each worker.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# Whoever has a path that begins so is of that company. The first that fits counts.
COMPANIES = {
    # They share an object store, and need no Spark.
    "tests/pipelines/test_object_store.py": "lake",
    "tests/pipelines/test_lake_command.py": "lake",
    "tests/pipelines/test_table_changes.py": "lake",
    "tests/pipelines/test_table_logs.py": "lake",
    "tests/pipelines/test_pipeline_command.py": "lake",
    "tests/pipelines/test_page.py": "lake",
    "tests/spark/": "spark",
    "tests/pipelines/": "spark",
    # It starts a Spark of its own, and two at once want more memory than some machines have.
    "tests/contract/cli/test_demo.py": "spark",
    # Functions of 20 seconds begin with its first module and have ended at its last.
    "tests/contract/cli/": "cli",
    "tests/browser/": "browser",
    "tests/doors/test_metrics": "metrics",
    "tests/packaging/test_wheel.py": "wheel",
}

# The longest, by the time that they take, most of which some of them wait; what is not named
# follows in its order.
LONGEST = (
    "spark",
    "lake",
    "tests/interop/test_spark_reader.py",
    "tests/interop/test_spark_sink.py",
    "tests/interop/test_transactions.py",
    "tests/interop/test_share_confluent.py",
    "cli",
    "browser",
    "tests/docs/test_pages.py",
    "tests/interop/test_groups_confluent.py",
    "wheel",
    "tests/packaging/test_elsewhere.py",
    "tests/hostile/test_hostile.py",
    "tests/packaging/test_second_try.py",
    "tests/packaging/test_test_run.py",
    "tests/interop/test_share_java.py",
    "tests/interop/test_streams_java.py",
    "tests/doors/test_typescript.py",
    "tests/crash/test_power_loss.py",
    "tests/interop/test_many_partitions.py",
    "tests/crash/test_rot.py",
    "tests/interop/test_wire_kio.py",
    "tests/interop/test_serve_command.py",
    "tests/interop/test_share_mixed.py",
    "tests/doors/test_http_schema.py",
    "tests/contract/test_remote_outages.py",
    "tests/crash/test_full_disk.py",
    "tests/interop/test_java_round_trip.py",
    "tests/interop/test_robust_nonsense.py",
    "metrics",
)


def company_of(nodeid: str) -> str:
    """Tests of the same company run in one worker, one after the other."""
    module = nodeid.partition("::")[0]
    for beginning, company in COMPANIES.items():
        if module.startswith(beginning):
            return company
    return module


def put_longest_first(items: list[pytest.Item]) -> None:
    """Sort what was collected into the order in which companies are given out."""
    ranks = {company: rank for rank, company in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(company_of(item.nodeid), len(ranks)))


class CompanyScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives whole companies to workers, in the order of the collected tests."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        # Otherwise the number of a company's tests decided who begins, not their length.
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return company_of(nodeid)


def check_companies(items: Sequence[pytest.Item]) -> None:
    """UsageError when a test that wants the one Spark would start another."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and company_of(item.nodeid) != "spark":
            raise pytest.UsageError(f"{item.nodeid} uses Spark: name it in tests/scheduling.py")
