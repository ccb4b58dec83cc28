"""The committed codecs are what the generator makes of Kafka's definitions.

kafka-python carries a copy of most of the definitions in its own package, so this
needs no download. The others, of KIP-848, of streams and share groups and of KIP-714, are
held by the comparison with kio alone.
"""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest
from scripts.generate_kafka_codec.__main__ import check_flexible
from scripts.generate_kafka_codec.definitions import Versions, read_definition
from scripts.generate_kafka_codec.modules import module_text

import headrace.wire.kafka.generated as generated
from headrace.wire.kafka.api import APIS, Api, module_name

NOT_CARRIED = (
    "ConsumerGroup",
    "StreamsGroup",
    "Share",
    "AlterShare",
    "DescribeShare",
    "DeleteShare",
    "GetTelemetry",
    "PushTelemetry",
    "CreateDelegation",
    "RenewDelegation",
    "ExpireDelegation",
    "DescribeDelegation",
)


def carried_definitions() -> dict[str, Path]:
    found = find_spec("kafka")
    assert found is not None and found.origin is not None
    return {path.stem: path for path in Path(found.origin).parent.rglob("*.json")}


DEFINITIONS = carried_definitions()


@pytest.mark.parametrize("api", list(APIS.values()), ids=lambda api: str(api.name))
def test_the_committed_codec_is_what_the_generator_makes(api: Api) -> None:
    if api.name.startswith(NOT_CARRIED):
        assert api.name + "Request" not in DEFINITIONS, "carried now: compare it too"
        return
    for kind in ("Request", "Response"):
        definition = read_definition(DEFINITIONS[api.name + kind].read_text())
        check_flexible(definition, api.key, api.flexible_first)
        made = module_text(definition, Versions(api.first, api.last))
        file = Path(generated.__path__[0]) / f"{module_name(definition.name)}.py"
        # Compared as syntax: where lines are broken is the formatter's business.
        assert ast.dump(ast.parse(made)) == ast.dump(ast.parse(file.read_text())), file.name
