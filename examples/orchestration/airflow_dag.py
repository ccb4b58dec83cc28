"""Every hour what came into a topic goes to the lake, and an audit proves that it is there.

    cp airflow_dag.py "$AIRFLOW_HOME/dags/"

    HEADRACE    the command; `headrace` on the path unless set
    PIPELINES   the folder of archive.toml and audit.toml

Airflow pins the versions of hundreds of packages, so Headrace has an environment of its own and
tasks run its command. An archive that was ended half way goes on from there: tried again, it
writes no row twice.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, chain

HEADRACE = os.environ.get("HEADRACE", "headrace")
PIPELINES = os.environ.get("PIPELINES", "/etc/headrace/pipelines")

with DAG(
    "orders_to_lake",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    # An archive has one checkpoint, which is not made for two at once.
    max_active_runs=1,
) as dag:
    archive = BashOperator(
        task_id="archive",
        bash_command=f"{HEADRACE} pipeline run archive --config {PIPELINES}/archive.toml --once",
        retries=3,
        retry_delay=timedelta(minutes=1),
    )
    # Exit code 1, and so a failed task, when a record is missing, doubled or changed.
    audit = BashOperator(
        task_id="audit",
        bash_command=f"{HEADRACE} pipeline run audit --config {PIPELINES}/audit.toml",
    )
    chain(archive, audit)
