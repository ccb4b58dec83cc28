"""DescribeConfigs, versions 1 to 4, of topics, groups and this node.

Entries that are not set say that they are defaults. With synonyms, each entry lists
the value that it has and the default that lies below it. Names that are asked for
and do not exist are left out, as Kafka does; a list of no names asks for all of them.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from headrace.core.steps import Steps
from headrace.server.kafka.config_resources import attempt, describe
from headrace.server.kafka.configs import Entry, Source
from headrace.server.kafka.door import Call
from headrace.server.slices import answer
from headrace.wire.kafka.generated.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headrace.wire.kafka.generated.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def handle(
    call: Call, request: DescribeConfigsRequest
) -> DescribeConfigsResponse | Coroutine[Any, Any, DescribeConfigsResponse]:
    return answer(len(request.resources), _describe_all(call, request))


def _describe_all(call: Call, request: DescribeConfigsRequest) -> Steps[DescribeConfigsResponse]:
    results = []
    for resource in request.resources:
        results.append(_describe(call, request, resource))
        yield
    return DescribeConfigsResponse(results=results)


def _describe(
    call: Call, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    kind, name, names = resource
    outcome, found = attempt(lambda: describe(call, kind, name, names or None))
    if found is None:
        return DescribeConfigsResult(outcome.code, outcome.message, kind, name)
    source, entries = found
    return DescribeConfigsResult(
        0, None, kind, name, [_result(entry, source, request) for entry in entries]
    )


def _result(
    entry: Entry, source: Source, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    synonyms = _synonyms(entry, source)
    return DescribeConfigsResourceResult(
        entry.name,
        None if entry.is_sensitive else entry.value,
        entry.is_read_only,
        synonyms[0].source if synonyms else Source.DEFAULT,
        entry.is_sensitive,
        synonyms if request.include_synonyms else (),
        entry.kind,
        entry.documentation if request.include_documentation else None,
    )


def _synonyms(entry: Entry, source: Source) -> Sequence[DescribeConfigsSynonym]:
    if entry.synonyms:
        return [
            DescribeConfigsSynonym(name, None if entry.is_sensitive else value, each)
            for name, value, each in entry.synonyms
        ]
    synonyms = []
    if entry.is_set:
        synonyms.append(DescribeConfigsSynonym(entry.name, entry.value, source))
    if entry.is_set_for_all:
        synonyms.append(DescribeConfigsSynonym(entry.name, entry.default, Source.NODES))
    if entry.default_name is not None:
        name = entry.default_name or entry.name
        synonyms.append(DescribeConfigsSynonym(name, entry.default, Source.DEFAULT))
    return synonyms
