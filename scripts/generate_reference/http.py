"""The page about HTTP: every route with its parameters and bodies, then every body."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
from scripts.generate_reference.pages import anchor, table

from headrace.server.http.openapi import document
from headrace.wire.http import frames
from headrace.wire.http.meanings import FRAMES, describe

FROM_THE_NODE = (frames.Welcome, frames.Done, frames.Delivered, frames.Refused)

_HEAD = """# HTTP: every route and body

Made from the node's own OpenAPI document by `python -m scripts.generate_reference`;
[http.md](../http.md) is the page to begin with. A running node shows the same at `/docs`, and as a
document for tools at `/openapi.json`.

Times are in seconds, moments ISO 8601 with a zone. A field that is not known is refused by name.

"""


def page() -> str:
    made = document()
    schemas = made["components"]["schemas"]
    problems = _common_problems(made)
    return "".join(
        (
            _HEAD,
            "".join(_sections(made)),
            "## Errors\n\n",
            f"`application/problem+json`, a {_linked('Problem')}, from any route:\n\n",
            table(("status", "when"), sorted(problems.items())),
            "\n## WebSocket frames\n\n",
            "Objects with an `op`, to and from `/ws`; a client sends those above `welcome`.\n",
            "".join(_frames()),
            "\n## Bodies\n",
            "".join(_body(name, schemas[name]) for name in sorted(schemas)),
        )
    )


def _operations(made: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in made["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def _common_problems(made: dict[str, Any]) -> dict[str, str]:
    """What every route may answer, whatever it is for."""
    answers = [operation["responses"] for _, _, operation in _operations(made)]
    common = set.intersection(*map(set, answers))
    return {status: answers[0][status]["description"] for status in common if int(status) >= 400}


def _sections(made: dict[str, Any]) -> Iterator[str]:
    tags: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for method, path, operation in _operations(made):
        tags.setdefault(operation["tags"][0], []).append((method, path, operation))
    for tag, routes in tags.items():
        yield f"## Routes: {tag}\n\n"
        for method, path, operation in routes:
            yield _route(method, path, operation)


def _route(method: str, path: str, operation: dict[str, Any]) -> str:
    lines = [f"### `{method} {path}`\n\n{operation['summary']}."]
    if "description" in operation:
        lines.append(f" {operation['description']}")
    lines.append("\n\n")
    parameters = [
        (f"`{each['name']}`", each["in"], *_described(each["schema"], each["required"]))
        for each in operation.get("parameters", ())
    ]
    if parameters:
        lines.append(table(("parameter", "in", "type", "default", ""), parameters) + "\n")
    content = operation.get("requestBody", {}).get("content", {})
    if content:
        lines.append(f"Takes {_bodies(content)}. ")
    lines.append(f"Answers {_answers(operation['responses'])}.\n\n")
    return "".join(lines)


def _answers(responses: dict[str, Any]) -> str:
    return ", ".join(
        f"{status} with {_bodies(answer['content'])}" if "content" in answer else status
        for status, answer in responses.items()
        if int(status) < 400
    )


def _bodies(content: dict[str, Any]) -> str:
    """What each content type holds; JSON is not worth a word."""
    words = []
    for kind, body in content.items():
        schema = body["schema"]
        named = schema.get("$ref") or schema.get("anyOf")
        if kind == "application/json" or named:
            words.append(_type(schema))
        else:
            words.append(f"`{kind}`")
    return " or ".join(words)


def _body(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", ())
    rows = [
        (f"`{field}`", *_described(described, field in required))
        for field, described in schema.get("properties", {}).items()
    ]
    text = " ".join(schema.get("description", "").split())
    words = f"{text}\n\n" if text else ""
    return f"\n### {name}\n\n{words}{table(('field', 'type', 'default', ''), rows)}"


def _frames() -> Iterator[str]:
    kinds = [*get_args(frames.Request), *FROM_THE_NODE]
    _, schemas = msgspec.json.schema_components(kinds, ref_template="#/{name}")
    describe(schemas, FRAMES)
    for kind in kinds:
        schema = schemas[kind.__name__]
        properties = dict(schema["properties"])
        [op] = properties.pop("op")["enum"]
        yield _body(f"Frame `{op}`", {**schema, "properties": properties})


def _described(schema: dict[str, Any], required: bool) -> tuple[str, str, str]:
    """Type, default and meaning."""
    default = "required" if required else ""
    if schema.get("default") not in (None, {}):
        default = f"`{json.dumps(schema['default'])}`"
    return _type(schema), default, schema.get("description", "")


def _type(schema: dict[str, Any]) -> str:
    """A type in a few words, with its bounds; null is said by what has no default."""
    if "$ref" in schema:
        return _linked(schema["$ref"].rsplit("/", 1)[1])
    if "anyOf" in schema:
        kinds = [_type(each) for each in schema["anyOf"] if each != {"type": "null"}]
        nullable = len(kinds) < len(schema["anyOf"]) and "default" not in schema
        return " or ".join([*kinds, *(["null"] if nullable else [])])
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object":
        inner = schema.get("additionalProperties")
        return f"map of {_type(inner)}" if isinstance(inner, dict) else "object"
    return f"{kind or 'any'}{_bounds(schema)}"


def _bounds(schema: dict[str, Any]) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None:
        return f", {least} to {most}"
    return f", at least {least}" if least is not None else ""


def _linked(name: str) -> str:
    return f"[{name}](#{anchor(name)})"
