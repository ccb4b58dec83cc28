"""Settings of a group that a queue asks for while others who read it may want others.

Settings belong to the group: whoever opens it last with a value sets it for all. That is
right for a change that is deployed step by step, and wrong for two workers that do not know
of one another, so it is said where it happens.

Rejected: an error. A worker with a new value could not start before all old ones had ended.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import Any

from headrace.client.backend import Backend
from headrace.core.errors import HeadraceError
from headrace.core.settings import GroupSettings

logger = logging.getLogger("headrace.queue")


def tell_of_changes(backend: Backend, group: str, settings: Mapping[str, Any]) -> None:
    """Log what these change while others read the group. What is wrong with them is told
    by whoever opens it."""
    with contextlib.suppress(HeadraceError):
        found = backend.group(group)
        if found.kind != "queue" or not found.consumers:
            return
        before = GroupSettings.from_mapping(found.settings)
        after = before.changed(settings).to_mapping()
        for name, value in before.to_mapping().items():
            if after[name] != value:
                logger.warning(
                    "%s of group %s was %s and is now %s, for all who read it: %d others do, "
                    "so give all of them the same value",
                    name,
                    group,
                    value,
                    after[name],
                    len(found.consumers),
                )
