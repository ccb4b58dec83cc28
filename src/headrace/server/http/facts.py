"""What a route may know of the node besides its calls: settings, its start, the survey."""

from __future__ import annotations

from typing import NamedTuple

from headrace.core.node_settings import NodeSettings
from headrace.server.survey import Survey


class Facts(NamedTuple):
    settings: NodeSettings
    survey: Survey
    started_at_ms: int
