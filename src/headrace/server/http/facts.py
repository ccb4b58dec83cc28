"""What a route may know of the node besides its calls: settings, its start, the survey, the
last minutes."""

from __future__ import annotations

from typing import NamedTuple

from headrace.core.node_settings import NodeSettings
from headrace.server.live import Live
from headrace.server.survey import Survey


class Facts(NamedTuple):
    settings: NodeSettings
    survey: Survey
    live: Live
    started_at_ms: int
