"""The generator, on a definition of our own that has every feature.

Kafka's definitions are not in the repository, so the generated codecs cannot be
made anew here. What can be checked without them: that the generator still makes
the module it made of our own definition, that nobody has edited a generated file,
and, in test_example_codec.py, that the example's module is right.

After a change of the generator, write the example anew and read the difference:

    python -m scripts.generate_kafka_codec --versions 0-4 \
        --definition tests/unit/wire/definitions/ExampleRequest.json \
        --output tests/unit/wire/generated/example_request.py
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
from scripts.generate_kafka_codec.__main__ import PACKAGE, check_flexible
from scripts.generate_kafka_codec.definitions import Versions, read_definition, read_versions
from scripts.generate_kafka_codec.layout import attribute_name, layout_of
from scripts.generate_kafka_codec.modules import is_signed, module_text, sign

import headrace.wire.kafka.generated as generated

HERE = Path(__file__).parent
EXAMPLE = (HERE / "definitions" / "ExampleRequest.json").read_text()


def test_the_generator_makes_the_module_that_it_made_before() -> None:
    made = module_text(read_definition(EXAMPLE), Versions(0, 4))
    kept = (HERE / "generated" / "example_request.py").read_text()
    # Compared as syntax: the formatter breaks lines, and another version of it
    # may break them elsewhere.
    assert ast.dump(ast.parse(made)) == ast.dump(ast.parse(kept))
    assert is_signed(kept)


# Reading definitions.


def test_versions_are_read_in_all_their_forms() -> None:
    assert read_versions("2-4") == (2, 4) and read_versions("3") == (3, 3)
    assert 900 in read_versions("1+") and 0 not in read_versions("1+")
    assert all(version not in read_versions("none") for version in range(-1, 3))


def test_a_version_that_kafka_does_not_have_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="ExampleRequest has versions"):
        module_text(read_definition(EXAMPLE), Versions(0, 6))


def test_the_table_of_apis_must_agree_with_the_definition() -> None:
    definition = read_definition(EXAMPLE)
    check_flexible(definition, 9000, 2)
    for key, flexible_first in ((9000, 3), (1, 2)):
        with pytest.raises(ValueError, match="the table of APIs"):
            check_flexible(definition, key, flexible_first)


def test_two_structs_of_one_name_are_refused() -> None:
    content = json.loads(re.sub(r"^\s*//.*$", "", EXAMPLE, flags=re.MULTILINE))
    content["commonStructs"].append(content["commonStructs"][0])
    with pytest.raises(ValueError, match="Node is defined twice"):
        read_definition(json.dumps(content))


def test_names_become_lower_case_words() -> None:
    assert attribute_name("LogAppendTimeMs") == "log_append_time_ms"
    assert attribute_name("ISRNodes") == "isr_nodes"


def test_the_fewest_bytes_of_a_struct_are_counted() -> None:
    # uuid, count; and with a section of tagged fields in flexible versions.
    definition = read_definition(EXAMPLE)
    sizes = []
    for version in (0, 2):
        topics = next(f for f in layout_of(definition, version).fields if f.attribute == "topics")
        assert topics.struct is not None
        sizes.append(topics.struct.bytes_min())
    assert sizes == [16 + 4, 16 + 1 + 1]


# The generated folder.


def test_no_generated_file_was_edited_by_hand() -> None:
    folder = Path(generated.__path__[0])
    files = {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}
    assert files.pop("__init__.py") == PACKAGE
    assert len(files) > 100
    edited = [name for name, text in files.items() if not is_signed(text)]
    assert not edited, f"change the generator instead: {edited}"
    assert not is_signed(sign("pass\n").replace("pass", "path"))


def test_every_generated_file_names_the_command_that_makes_it() -> None:
    folder = Path(generated.__path__[0])
    for path in folder.glob("*.py"):
        assert "python -m scripts.generate_kafka_codec" in path.read_text(), path.name
