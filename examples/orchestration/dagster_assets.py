"""A table in the lake as an asset that follows a topic, with an audit as its check.

    dagster dev -f dagster_assets.py

    HEADRACE    the command; `headrace` on the path unless set
    PIPELINES   the folder of archive.toml and audit.toml

Headrace has an environment of its own, so that Dagster's packages and Spark's need not agree.
An archive that was ended half way goes on from there: tried again, it writes no row twice.
"""

import json
import os
import subprocess

import dagster as dg

HEADRACE = os.environ.get("HEADRACE", "headrace")
PIPELINES = os.environ.get("PIPELINES", "/etc/headrace/pipelines")


def run(
    context: dg.AssetExecutionContext | dg.AssetCheckExecutionContext, *words: str
) -> tuple[int, str]:
    """The exit code, and the last line of what it said; all of it goes to the run's log."""
    done = subprocess.run(
        [HEADRACE, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    context.log.info(done.stdout)
    return done.returncode, (done.stdout.splitlines() or [""])[-1]


@dg.asset(retry_policy=dg.RetryPolicy(max_retries=3, delay=60))
def orders(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    config = f"{PIPELINES}/archive.toml"
    code, said = run(context, "pipeline", "run", "archive", "--config", config, "--once")
    if code:
        raise dg.Failure(said)
    status = [HEADRACE, "pipeline", "status", "--config", config, "--json"]
    told = json.loads(subprocess.check_output(status, text=True))
    return dg.MaterializeResult(metadata={"records": told["rows_in"], "lag": told["lag"]})


@dg.asset_check(asset=orders, blocking=True)
def each_order_is_there_once(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    # Exit code 1 when a record is missing, doubled or changed.
    config = f"{PIPELINES}/audit.toml"
    code, said = run(context, "pipeline", "run", "audit", "--config", config)
    return dg.AssetCheckResult(passed=code == 0, description=said)


hourly = dg.ScheduleDefinition(
    "orders_hourly", target=dg.AssetSelection.assets(orders), cron_schedule="0 * * * *"
)

definitions = dg.Definitions(
    assets=[orders], asset_checks=[each_order_is_there_once], schedules=[hourly]
)
