"""The OpenAPI 3.1 document, made from the table of routes."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import Any, get_args

import msgspec

from headrace.server.http.problems import PROBLEM_TYPE
from headrace.server.http.route import JSON_TYPE, Route
from headrace.server.http.table import ROUTES
from headrace.server.version import VERSION
from headrace.wire.http.bodies import RawQuery
from headrace.wire.http.examples import EXAMPLES, QUERY_EXAMPLES
from headrace.wire.http.group_bodies import Problem
from headrace.wire.http.meanings import MEANINGS, describe

_REFERENCE = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"{(\w+)}")
_NAMES = Counter((route.tag, route.handler.__name__) for route in ROUTES)
# What every route may answer besides what it is for.
_PROBLEMS = {
    "400": "The request is wrong; `detail` says how",
    "403": "From another origin, or for another host",
    "404": "There is no such thing",
    "409": "It contradicts what is there",
    "410": "It was there, and is over",
    "413": "Too large",
    "415": "Not a type that this takes",
    "416": "There is no such offset",
    "429": "Too much at once; try later",
    "503": "The node cannot now",
    "507": "The node's disk is full",
}


@cache
def document() -> dict[str, Any]:
    types = [kind for route in ROUTES for kind in (route.body, route.query) if kind is not None]
    types += [kind for route in ROUTES for kind in _parts(route.answer)]
    types += [Problem, RawQuery]
    _, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    describe(components)
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headrace",
            "version": VERSION,
            "summary": "A topic is a log; a group reads it as a stream or as a queue.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": components},
    }


def _parts(kind: Any) -> list[Any]:
    if kind is None:
        return []
    return list(get_args(kind)) or [kind]


def _schema(kind: Any) -> dict[str, Any]:
    parts = [{"$ref": _REFERENCE.format(name=each.__name__)} for each in _parts(kind)]
    return parts[0] if len(parts) == 1 else {"anyOf": parts}


def _operation(route: Route, components: dict[str, Any]) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _path_schema(name)}
        for name in _PARAMETER.findall(route.path)
    ]
    query = RawQuery if route.raw_body else route.query
    if query is not None:
        described = components[query.__name__]
        parameters += [
            {"name": name, "in": "query", "required": name in described.get("required", ()),
             "schema": schema}
            for name, schema in described["properties"].items()
        ]  # fmt: skip
        examples = QUERY_EXAMPLES.get(f"{route.method} {route.path}", {})
        for parameter in parameters:
            if parameter["name"] in examples:
                parameter["example"] = examples[parameter["name"]]
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "tags": [route.tag],
        "responses": _responses(route),
    }
    if route.detail:
        operation["description"] = route.detail
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        body = {"schema": _schema(route.body), "example": EXAMPLES[f"{route.method} {route.path}"]}
        content: dict[str, Any] = {JSON_TYPE: body}
        if route.raw_body:
            content["application/octet-stream"] = {"schema": {}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _operation_id(route: Route) -> str:
    """Handlers of one name in one chapter are told apart by their modules."""
    name = route.handler.__name__
    if _NAMES[route.tag, name] > 1:
        name = f"{route.handler.__module__.rpartition('.')[2]}-{name}"
    return f"{route.tag}-{name}".replace(" ", "-")


def _path_schema(name: str) -> dict[str, Any]:
    kind = (
        {"type": "integer", "minimum": 0}
        if name in ("partition", "offset")
        else {"type": "string", "minLength": 1}
    )
    return {"description": MEANINGS[name], **kind}


def _responses(route: Route) -> dict[str, Any]:
    done: dict[str, Any] = {"description": route.summary}
    if route.answer is not None:
        done["content"] = {route.answer_type: {"schema": _schema(route.answer)}}
    elif route.status != 204:
        done["content"] = {route.answer_type: {"schema": {"type": "string"}}}
    problem = {"schema": {"$ref": _REFERENCE.format(name="Problem")}}
    return {
        str(route.status): done,
        **{
            status: {"description": text, "content": {PROBLEM_TYPE: problem}}
            for status, text in _PROBLEMS.items()
        },
    }
