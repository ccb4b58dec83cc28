"""The OpenAPI document against the node that serves it: whatever the document allows
or forbids, no request may make the node fail or answer with what is not in there."""

from __future__ import annotations

from typing import Any

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import Case
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance
from tests.doors.conftest import DoorsProcess

EXAMPLES = 15


def test_no_request_makes_the_node_fail_or_break_its_word(doors: DoorsProcess) -> None:
    schema = schemathesis.openapi.from_url(f"{doors.http}/openapi.json")
    tried = 0

    def ask(case: Case[Any]) -> None:
        nonlocal tried
        tried += 1
        answer = case.call(base_url=doors.http, timeout=60)
        assert answer.status_code < 500, (case, answer.text)
        # What is well formed may still be impossible: a delay and a moment at once.
        case.validate_response(answer, excluded_checks=[positive_data_acceptance])

    limited = settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    for each in schema.get_all_operations():
        assert isinstance(each, Ok)
        operation = each.ok()
        # A tail has no end.
        if not operation.path.endswith("/events"):
            limited(given(case=operation.as_strategy())(ask))()
    assert tried > 200
