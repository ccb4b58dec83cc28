"""Writes the decoders: one straight function per layout, structs inlined.

Fields of fixed size that follow each other are read by one precompiled format,
together with the length or count of the field behind them:

    acks, timeout_ms, count = unpack_hiB(data, position)
    position += 7

A compact length is read as one byte; only above 127 is it a longer varint and
read again. Every length is checked against the frame's size before it is used,
and every count against the fewest bytes that many elements take and against the
elements that one message may have in all.
"""

from __future__ import annotations

import re

from .layout import FIXED_FORMATS, FORMAT_BYTES, NUMBERS, Field, Struct
from .source import Source


class DecoderWriter:
    """Writes one function. `annotations` has the type of every optional field and
    array, by struct and attribute, for those that start with a default."""

    def __init__(self, source: Source, annotations: dict[tuple[str, str], str]) -> None:
        self._source = source
        self._annotations = annotations
        self._run: list[tuple[str, str]] = []
        self._has_records = False
        self._is_request = False

    def write(self, name: str, title: str, struct: Struct) -> None:
        """What follows the message is ignored, as Kafka does: librdkafka leaves a few
        bytes behind some requests, and consumers embed messages of later versions."""
        source = self._source
        self._has_records = struct.has_records()
        # What a client sends us is held to tighter bounds than what a node answers.
        self._is_request = struct.name.endswith("Request")
        source.start_function()
        with source.block(f"def {name}(data: Buffer, position: int = 0) -> {struct.name}:"):
            with source.block("try:"):
                self._write_opening(struct)
                first = len(source.lines)
                value = self._read_struct(struct)
                source.add(f"return {value}")
                if not any(re.search(r"\bsize\b", line) for line in source.lines[first:]):
                    # Of fixed fields alone nothing is compared with the frame's size.
                    del source.lines[first - 1]
            with source.block("except DECODE_ERRORS as error:"):
                source.add(f'raise malformed("{title}", error) from error')
        source.add("")
        source.add("")

    def _write_opening(self, struct: Struct) -> None:
        source = self._source
        if self._has_records:
            with source.block("if not isinstance(data, memoryview):"):
                source.add("data = memoryview(data)")
        else:
            with source.block("if not isinstance(data, bytes):"):
                source.add("data = bytes(data)")
        if _has_arrays(struct):
            kind = "REQUEST" if self._is_request else "MESSAGE"
            source.add(f"room = {kind}_ELEMENTS_MAX")
        source.add("size = len(data)")

    # Structs.

    def _read_struct(self, struct: Struct) -> str:
        """Writes the reading of all fields; returns the expression that makes the value."""
        source = self._source
        locals_ = {field.attribute: source.local(field.attribute) for field in struct.fields}
        for field in struct.plain():
            self._read_field(field, locals_[field.attribute], struct)
        if struct.flexible:
            self._read_tags(struct, locals_)
        self._flush()
        values = [
            locals_[field.attribute] if field.present else field.default for field in struct.fields
        ]
        return f"new({struct.name}, ({', '.join(values)}{',' if len(values) == 1 else ''}))"

    def _read_tags(self, struct: Struct, locals_: dict[str, str]) -> None:
        source = self._source
        self._run.append(("B", "tags"))
        self._flush()
        tagged = struct.tagged()
        if not tagged:
            with source.block("if tags:"):
                source.add("position = skip_tagged_fields(data, position - 1, size)")
            return
        for field in tagged:
            annotation = self._annotations[struct.name, field.attribute]
            source.add(f"{locals_[field.attribute]}: {annotation} = {field.default}")
        with source.block("if tags:"):
            source.add("tags, position = read_varint(data, position - 1)")
            with source.block("for _ in range(tags):"):
                end = source.local("tag_end")
                source.add(f"tag, position, {end} = read_tag(data, position, size)")
                for number, field in enumerate(tagged):
                    with source.block(f"{'el' if number else ''}if tag == {field.tag}:"):
                        self._read_field(field, locals_[field.attribute], struct)
                        self._flush()
                        with source.block(f"if position != {end}:"):
                            self._refuse(_path(struct, field), "wrong size")
                with source.block("else:"):
                    source.add(f"position = {end}")

    # Fields.

    def _read_field(self, field: Field, target: str, owner: Struct) -> None:
        flexible = owner.flexible
        path = _path(owner, field)
        if field.is_array:
            self._read_array(field, target, flexible, path)
        elif field.struct is not None:
            self._read_inner_struct(field, field.struct, target)
        elif field.element in FIXED_FORMATS:
            self._run.append((FIXED_FORMATS[field.element], target))
        else:
            self._read_sized(field.element, field.nullable, target, flexible, path)

    def _read_inner_struct(self, field: Field, struct: Struct, target: str) -> None:
        source = self._source
        if not field.nullable:
            value = self._read_struct(struct)
            source.add(f"{target} = {value}")
            return
        self._run.append(("b", "length"))
        self._flush()
        with source.block("if length < 0:"):
            source.add(f"{target} = None")
        with source.block("else:"):
            value = self._read_struct(struct)
            source.add(f"{target} = {value}")

    def _read_sized(
        self, element: str, nullable: bool, target: str, flexible: bool, path: str
    ) -> None:
        source = self._source
        if flexible:
            self._run.append(("B", "length"))
            self._flush()
            reader = "read_string_length" if element == "string" else "read_varint"
            with source.block("if length > 127:"):
                source.add(f"length, position = {reader}(data, position - 1)")
        else:
            self._run.append(("h" if element == "string" else "i", "length"))
            self._flush()
        end = "end = position + length - 1" if flexible else "end = position + length"
        if nullable:
            with source.block("if length == 0:" if flexible else "if length < 0:"):
                source.add(f"{target} = None")
            with source.block("else:"):
                source.add(end)
                with source.block("if end > size:"):
                    self._refuse(path, "wrong length")
                source.add(f"{target} = {self._slice(element)}")
                source.add("position = end")
        else:
            source.add(end)
            with source.block("if not position <= end <= size:"):
                self._refuse(path, "wrong length")
            source.add(f"{target} = {self._slice(element)}")
            source.add("position = end")

    def _slice(self, element: str) -> str:
        match element:
            case "string":
                if self._has_records:
                    return 'str(data[position:end], "utf-8")'
                return "data[position:end].decode()"
            case "bytes" if self._has_records:
                return "bytes(data[position:end])"
        return "data[position:end]"

    # Arrays.

    def _read_array(self, field: Field, target: str, flexible: bool, path: str) -> None:
        source = self._source
        self._run.append(("B" if flexible else "i", "count"))
        self._flush()
        if flexible:
            with source.block("if count > 127:"):
                source.add("count, position = read_varint(data, position - 1)")
            source.add("count -= 1")
        limits = f"count > room or {_times(_element_bytes_min(field, flexible))} > size - position"
        if self._is_request and field.element not in NUMBERS and field.element != "uuid":
            limits = f"count > REQUEST_ARRAY_MAX or {limits}"
        if field.nullable:
            with source.block("if count < 0:"):
                source.add(f"{target} = None")
            with source.block("else:"):
                with source.block(f"if {limits}:"):
                    self._refuse(path, "wrong count")
                self._read_elements(field, target, flexible, path)
        else:
            with source.block(f"if count < 0 or {limits}:"):
                self._refuse(path, "wrong count")
            self._read_elements(field, target, flexible, path)

    def _read_elements(self, field: Field, target: str, flexible: bool, path: str) -> None:
        source = self._source
        source.add("room -= count")
        if field.element in NUMBERS:
            number = FIXED_FORMATS[field.element]
            source.add(f'{target} = read_numbers("{number}", data, position, count)')
            source.add(f"position += {_times(FORMAT_BYTES[number])}")
        elif field.element == "uuid":
            source.add(f"{target} = read_uuids(data, position, count)")
            source.add("position += 16 * count")
        else:
            items = source.local(f"{field.attribute}_items")
            kind = field.struct.name if field.struct is not None else "str"
            source.add(f"{items}: list[{kind}] = []")
            with source.block("for _ in range(count):"):
                if field.struct is not None:
                    value = self._read_struct(field.struct)
                elif field.element == "string":
                    value = source.local("item")
                    self._read_sized("string", False, value, flexible, path)
                else:
                    raise NotImplementedError(f"{path}: an array of {field.element}")
                source.add(f"{items}.append({value})")
            source.add(f"{target} = tuple({items})")

    def _refuse(self, path: str, complaint: str) -> None:
        self._source.add(f'raise MalformedMessage("{path}: {complaint}")')

    def _flush(self) -> None:
        """Writes the reading of the fixed-size fields that have gathered."""
        if not self._run:
            return
        source = self._source
        formats = [each for each, _ in self._run]
        targets = [target for _, target in self._run]
        self._run = []
        if formats == ["B"]:
            source.add(f"{targets[0]} = data[position]")
        elif len(targets) == 1:
            source.add(f"({targets[0]},) = {source.unpacker(formats)}(data, position)")
        else:
            source.add(f"{', '.join(targets)} = {source.unpacker(formats)}(data, position)")
        source.add(f"position += {sum(FORMAT_BYTES[each] for each in formats)}")


def _path(owner: Struct, field: Field) -> str:
    """How an error names the field; without its struct where a line would overflow."""
    path = f"{owner.name}.{field.attribute}"
    return path if len(path) <= 50 else field.attribute


def _has_arrays(struct: Struct) -> bool:
    return any(
        field.present
        and (field.is_array or (field.struct is not None and _has_arrays(field.struct)))
        for field in struct.fields
    )


def _element_bytes_min(field: Field, flexible: bool) -> int:
    if field.struct is not None:
        return field.struct.bytes_min()
    if field.element == "string":
        return 1 if flexible else 2
    return FORMAT_BYTES[FIXED_FORMATS[field.element]]


def _times(number: int) -> str:
    return "count" if number == 1 else f"{number} * count"
