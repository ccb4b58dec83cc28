"""The OpenAPI document: what tools and the reference at /docs take for granted."""

from __future__ import annotations

import msgspec
import pytest

from headrace.core.node_settings import NodeSettings
from headrace.server.http.openapi import document
from headrace.server.http.reference_page import reference_routes
from headrace.server.http.route import Route
from headrace.server.http.table import ROUTES
from headrace.wire.http.examples import EXAMPLES

TAKING = [route for route in ROUTES if route.body is not None]


def test_no_two_operations_have_one_id() -> None:
    ids = [
        each["operationId"] for methods in document()["paths"].values() for each in methods.values()
    ]
    assert len(ids) == len(set(ids)) == len(ROUTES)


@pytest.mark.parametrize("route", TAKING, ids=lambda route: f"{route.method} {route.path}")
def test_the_example_of_a_body_is_one(route: Route) -> None:
    shown = EXAMPLES[f"{route.method} {route.path}"]
    assert route.body is not None
    msgspec.json.decode(msgspec.json.encode(shown), type=route.body)


def test_there_is_no_example_without_a_route() -> None:
    assert set(EXAMPLES) == {f"{route.method} {route.path}" for route in TAKING}


def test_the_reference_is_there_where_the_dashboard_is_off() -> None:
    paths = [
        getattr(route, "path", "") for route in reference_routes(NodeSettings(dashboard="off"))
    ]
    assert "/docs" in paths
