"""Other people's programs on a node. Those of `beside/` run for minutes, some next to Apache
Kafka: `make ecosystem` runs them, and `make test` leaves them out."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("HEADRACE_ECOSYSTEM") else ["beside"]
