"""Generates the Grafana dashboard: python -m scripts.generate_grafana_dashboard

    panels.py    rows of panels, each a few PromQL expressions
       |
    deploy/grafana/headrace.json                what Grafana imports

`--check` writes nothing and fails when the file is not what would be written.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from scripts.generate_grafana_dashboard.panels import ROWS, Panel

TARGET = Path(__file__).parent.parent.parent / "deploy" / "grafana" / "headrace.json"

# Grafana's grid is 24 wide.
WIDTH = 24
HEIGHT = 8

SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS:
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "panels": [],
                "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1},
            }
        )
        y += 1
        across = 6 if row[0].kind == "stat" else 3
        height = HEIGHT // 2 if row[0].kind == "stat" else HEIGHT
        for number, panel in enumerate(row):
            width = WIDTH // across
            place = {"x": number % across * width, "y": y, "w": width, "h": height}
            panels.append(shown(len(panels) + 1, panel, place))
            if number % across == across - 1 or number == len(row) - 1:
                y += height
    return {
        "uid": "headrace",
        "title": "Headrace",
        "description": "Made by scripts/generate_grafana_dashboard.py; see docs/monitoring.md.",
        "tags": ["headrace"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": list(variables())},
        "annotations": {"list": []},
        "links": [],
        "panels": panels,
    }


def shown(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    options: dict[str, Any] = {"reduceOptions": {"calcs": ["lastNotNull"]}}
    if panel.kind == "timeseries":
        custom: dict[str, Any] = {"fillOpacity": 10, "showPoints": "never"}
        if panel.stacked:
            custom |= {"fillOpacity": 40, "stacking": {"mode": "normal", "group": "A"}}
        defaults["custom"] = custom
        options = {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + each),
                "datasource": SOURCE,
                "expr": expression,
                "legendFormat": legend or "__auto",
            }
            for each, (expression, legend) in enumerate(panel.lines)
        ],
    }


def variables() -> list[dict[str, Any]]:
    def query(name: str, label: str, text: str, *, many: bool) -> dict[str, Any]:
        return {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": text, "refId": name},
            "refresh": 2,
            "sort": 1,
            "multi": many,
            "includeAll": many,
            "allValue": ".*" if many else None,
            "current": {"text": "All", "value": "$__all"} if many else {},
        }

    job = 'job="$job"'
    return [
        {
            "name": "datasource",
            "label": "Data source",
            "type": "datasource",
            "query": "prometheus",
            "current": {},
        },
        query("job", "Job", "label_values(headrace_build_info, job)", many=False),
        query(
            "instance", "Node", f"label_values(headrace_build_info{{{job}}}, instance)", many=True
        ),
        query(
            "topic", "Topic", f"label_values(headrace_topic_partitions{{{job}}}, topic)", many=True
        ),
        query(
            "group",
            "Group",
            f"label_values(headrace_group_lag_messages{{{job}}}, group)",
            many=True,
        ),
    ]


def text() -> str:
    return json.dumps(dashboard(), indent=2) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.generate_grafana_dashboard")
    parser.add_argument("--check", action="store_true", help="fail if the file is out of date")
    if parser.parse_args().check:
        if not TARGET.is_file() or TARGET.read_text() != text():
            print(f"{TARGET} is out of date; run this without --check", file=sys.stderr)
            return 1
        return 0
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
