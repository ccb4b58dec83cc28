"""The dashboard and the alerts, against what a node really exports.

Every expression may name only metrics that are there, and of each only labels that it
has; promtool says whether the rest makes sense.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from scripts.generate_grafana_dashboard.__main__ import text
from tests.doors.metrics_workload import World

from headrace.core import attention, limits
from headrace.core.errors import HeadraceError
from headrace.core.node_settings import NodeSettings
from headrace.wire.kafka.errors import ErrorCode

PROJECT = Path(__file__).parent.parent.parent
DASHBOARD = PROJECT / "deploy" / "grafana" / "headrace.json"
RULES = PROJECT / "deploy" / "prometheus"
NEEDS_PROMTOOL = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed"
)

# What Prometheus itself adds to every series.
ADDED = {"job", "instance"}
# A metric, with the labels that are asked for.
_METRIC = re.compile(r"\b((?:headrace|process)_\w+)\s*(?:\{([^}]*)\})?")
_LABEL = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
_BY = re.compile(r"\bby\s*\(([^)]*)\)")


def exported(world: World) -> dict[str, set[str]]:
    """The labels of every metric, by its name."""
    found: dict[str, set[str]] = {}
    for family in world.families.values():
        for sample, values in family.items():
            names = {name for where in values for name, _ in where}
            found[sample] = names | ADDED
    return found


def check(expression: str, known: dict[str, set[str]]) -> None:
    asked = _METRIC.findall(expression)
    assert asked, expression
    labels = set()
    for name, selector in asked:
        assert name in known, f"{name} is not exported: {expression}"
        wrong = set(_LABEL.findall(selector)) - known[name]
        assert not wrong, f"{name} has no {wrong}: {expression}"
        labels |= known[name]
    for listed in _BY.findall(expression):
        wrong = {label.strip() for label in listed.split(",")} - labels
        assert not wrong, f"nothing has {wrong}: {expression}"


def expressions_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("expr"), str):
            yield value["expr"]
        for each in value.values():
            yield from expressions_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from expressions_in(each)


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((RULES / "alerts.yml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def test_the_dashboard_is_what_the_script_makes() -> None:
    assert DASHBOARD.read_text() == text(), "run: python -m scripts.generate_grafana_dashboard"


def test_every_panel_asks_for_what_is_exported(world: World) -> None:
    known = exported(world)
    found = list(expressions_in(json.loads(DASHBOARD.read_text())))
    assert len(found) > 50
    for expression in found:
        check(expression, known)


def test_every_choice_asks_for_what_is_exported(world: World) -> None:
    known = exported(world)
    variables = json.loads(DASHBOARD.read_text())["templating"]["list"]
    asked = [each["query"]["query"] for each in variables if each["type"] == "query"]
    assert len(asked) == 4
    for query in asked:
        name, label = re.fullmatch(r"label_values\((\w+)(?:\{[^}]*\})?, (\w+)\)", query).groups()  # type: ignore[union-attr]
        assert label in known[name], query


def test_the_dashboard_shows_every_family_of_ours(world: World) -> None:
    shown = " ".join(expressions_in(json.loads(DASHBOARD.read_text())))
    per_partition = {name for name in world.families if name.startswith("headrace_partition_")}
    # What is there only where it was asked for, and what tells little on a chart.
    left_out = per_partition | {"process_virtual_memory_bytes", "headrace_client_metric"}
    missing = [name for name in world.families if name not in left_out and f"{name}" not in shown]
    assert not missing


def test_every_panel_has_a_place_of_its_own() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_every_alert_asks_for_what_is_exported(world: World) -> None:
    known = exported(world) | {"headrace_up": ADDED}
    for rule in rules():
        # Whether a node answers is Prometheus' own to know.
        check(rule["expr"].replace('up{job="headrace"}', "headrace_up"), known)


def test_every_alert_says_what_to_do() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "action"}, rule["alert"]


# What each expression compares with, from the one place that says so.
FIGURES = {
    "HeadraceDiskLow": [attention.FLOOR_TIMES],
    "HeadraceTransactionStuck": [attention.STUCK_MS / 1000],
    "HeadraceStreamStuck": [limits.GROUP_UNREAD_MS / 1000, 0],
    "HeadraceLagging": [attention.LAGGING_MS / 1000],
    "HeadraceLoopLags": [attention.LOOP_LAG_MS / 1000],
    "HeadraceSyncsSlow": [attention.SYNC_MS / 1000],
    "HeadraceFilesLow": [attention.FILES_SHARE],
    "HeadraceDeadLetters": [0],
    "HeadracePartitionStopped": [0],
    "HeadraceDiskFull": [],
    "HeadraceFails": [0],
}
_FIGURE = re.compile(r"(?:<=|>=|<|>) ([\d.]+)")


def test_alerts_are_the_conditions_that_the_dashboard_and_top_show() -> None:
    conditions = attention.CONDITIONS.values()
    alerts = {rule["alert"]: rule for rule in rules()}
    assert set(alerts) == {each.alert for each in conditions} | attention.ALERTS_ALONE
    for each in conditions:
        assert alerts[each.alert]["labels"]["severity"] == each.level, each.alert
    compared = {
        name: [float(each) for each in _FIGURE.findall(rule["expr"])]
        for name, rule in alerts.items()
        if name not in attention.ALERTS_ALONE
    }
    assert compared == FIGURES


def test_a_stuck_transaction_is_told_of_before_it_is_aborted_by_itself() -> None:
    [rule] = [each for each in rules() if each["alert"] == "HeadraceTransactionStuck"]
    seconds = int(rule["expr"].rpartition(">")[2])
    assert 2 * seconds <= NodeSettings().transaction_timeout_max_ms / 1000


def test_every_code_that_an_alert_names_is_one_of_ours() -> None:
    (rule,) = (each for each in rules() if each["alert"] == "HeadraceFails")
    (named,) = re.findall(r'code=~"([^"]*)"', rule["expr"])
    kinds = [HeadraceError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    # "failed" is a handler of the Kafka door that raised.
    known = {kind.code for kind in kinds} | {each.name for each in ErrorCode} | {"failed"}
    assert set(named.split("|")) <= known


def test_every_alert_is_tested_both_ways() -> None:
    document = yaml.safe_load((RULES / "alerts_test.yml").read_text())
    expected = [each for test in document["tests"] for each in test["alert_rule_test"]]
    fired = {each["alertname"] for each in expected if each["exp_alerts"]}
    assert fired == {rule["alert"] for rule in rules()}


@NEEDS_PROMTOOL
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "alerts.yml"),
        ("check", "config", "prometheus.yml"),
        ("test", "rules", "alerts_test.yml"),
    ],
    ids=" ".join,
)
def test_promtool_accepts_the_rules(arguments: tuple[str, ...]) -> None:
    checked = subprocess.run(
        ["promtool", *arguments], cwd=RULES, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
