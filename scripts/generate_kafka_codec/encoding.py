"""Writes the encoders: one straight function per layout, structs inlined.

An encoder gathers buffers in `parts`, as many at once as it can, and joins them at
the end. Fields of fixed size that follow each other are one precompiled format,
which also writes the count or length behind them and the zero of an empty section
of tagged fields (the pad byte `x`):

    parts += (pack_ihqqqx(partition_index, error_code, ..., log_start_offset),)

Records are handed on as they are: what was gathered before them is joined into one
buffer of `out`, and they become the next.
"""

from __future__ import annotations

from .layout import FIXED_FORMATS, NUMBERS, Field, Struct
from .source import Source

SHORT_VARINT = "short_varints[length] if (length := {}) < 1024 else {}"


class EncoderWriter:
    """Writes one function and the functions of its tagged sections. `annotations`
    has the type of every field, by struct and attribute."""

    def __init__(self, source: Source, annotations: dict[tuple[str, str], str]) -> None:
        self._source = source
        self._annotations = annotations
        self._run: list[tuple[str, str]] = []
        self._pending: list[str] = []
        self._has_records = False
        self._has_gathered = False
        self._suffix = ""

    def write(self, name: str, title: str, struct: Struct) -> None:
        source = self._source
        self._has_records = struct.has_records()
        self._suffix = name.removeprefix("encode_")
        self._write_tagged_sections(struct, set())
        source.start_function()
        with source.block(f"def {name}(message: {struct.name}) -> list[Buffer]:"):
            with source.block("try:"):
                if self._has_records:
                    source.add("out: list[Buffer] = []")
                opening = source.mark()
                self._has_gathered = False
                self._write_struct(struct, "message")
                self._write_return()
                if self._has_gathered:
                    source.insert(opening, "parts: list[Buffer] = []")
            with source.block("except ENCODE_ERRORS as error:"):
                source.add(f'raise unencodable("{title}", error) from error')
        source.add("")
        source.add("")

    def _write_return(self) -> None:
        self._close_run()
        if not self._has_gathered:
            self._write_direct_return()
            return
        self._emit()
        if self._has_records:
            self._source.add('out.append(b"".join(parts))')
            self._source.add("return out")
        else:
            self._source.add('return [b"".join(parts)]')

    def _write_direct_return(self) -> None:
        """The whole message is one expression: there is nothing to gather."""
        pending, self._pending = self._pending, []
        if not pending:
            self._source.add('return [b""]')
        elif len(pending) == 1:
            self._source.add(f"return [{pending[0]}]")
        else:
            self._source.add(f'return [b"".join(({", ".join(pending)}))]')

    # Structs.

    def _write_struct(self, struct: Struct, value: str) -> None:
        self._write_fields(struct, self._unpack(struct, value))

    def _unpack(self, struct: Struct, value: str) -> dict[str, str]:
        source = self._source
        used = [field for field in struct.fields if field.present]
        locals_ = {field.attribute: source.local(field.attribute) for field in used}
        if len(used) < 2 or 2 * len(used) < len(struct.fields):
            for field in used:
                source.add(f"{locals_[field.attribute]} = {value}.{field.attribute}")
        else:
            source.add(f"{self._targets(struct, locals_)} = {value}")
        return locals_

    def _targets(self, struct: Struct, locals_: dict[str, str]) -> str:
        return ", ".join(locals_.get(field.attribute, "_") for field in struct.fields)

    def _write_fields(self, struct: Struct, locals_: dict[str, str]) -> None:
        for field in struct.plain():
            annotation = self._annotations[struct.name, field.attribute]
            self._require(field, locals_[field.attribute], annotation)
            self._write_field(field, locals_[field.attribute], struct.flexible)
        if struct.flexible:
            self._write_tags(struct, locals_)

    def _require(self, field: Field, value: str, annotation: str) -> None:
        if annotation.endswith("| None") and not field.nullable:
            with self._source.block(f"if {value} is None:"):
                self._source.add(f'raise missing("{field.attribute}")')

    def _write_field(self, field: Field, value: str, flexible: bool) -> None:
        if field.is_array:
            self._write_array(field, value, flexible)
        elif field.struct is not None:
            self._write_inner_struct(field, field.struct, value)
        elif field.element in FIXED_FORMATS:
            if field.element == "uuid":
                # The format would fill a shorter one with zeros and cut a longer one.
                with self._source.block(f"if len({value}) != 16:"):
                    self._source.add(f"raise not_a_uuid({value})")
            self._run.append((FIXED_FORMATS[field.element], value))
        elif field.element == "records":
            self._write_records(value, flexible)
        else:
            self._write_sized(field, value, flexible)

    def _write_inner_struct(self, field: Field, struct: Struct, value: str) -> None:
        if not field.nullable:
            self._write_struct(struct, value)
            return
        self._emit()
        source = self._source
        with source.block(f"if {value} is None:"):
            self._gather(r'b"\xff"')
        with source.block("else:"):
            self._run.append(("b", "1"))
            self._write_struct(struct, value)
            self._emit()

    # Tagged fields.

    def _write_tags(self, struct: Struct, locals_: dict[str, str]) -> None:
        tagged = struct.tagged()
        if not tagged:
            self._run.append(("x", ""))
            return
        self._close_run()
        defaults = " and ".join(_is_default(field, locals_[field.attribute]) for field in tagged)
        arguments = ", ".join(locals_[field.attribute] for field in tagged)
        self._pending.append(
            f'b"\\x00" if {defaults} else {self._section_name(struct)}({arguments})'
        )

    def _section_name(self, struct: Struct) -> str:
        return f"_tags_of_{struct.name}_{self._suffix}"

    def _write_tagged_sections(self, struct: Struct, done: set[str]) -> None:
        """The functions that write the tagged fields of this struct and those in it."""
        for field in struct.fields:
            if field.present and field.struct is not None:
                self._write_tagged_sections(field.struct, done)
        tagged = struct.tagged() if struct.flexible else []
        if not tagged or struct.name in done:
            return
        done.add(struct.name)
        source = self._source
        source.start_function()
        locals_ = {field.attribute: source.local(field.attribute) for field in tagged}
        parameters = [
            f"{locals_[field.attribute]}: {self._annotations[struct.name, field.attribute]}"
            for field in tagged
        ]
        with source.block(f"def {self._section_name(struct)}({', '.join(parameters)}) -> bytes:"):
            source.add("fields: list[bytes] = []")
            source.add("parts: list[Buffer]")
            for field in tagged:
                value = locals_[field.attribute]
                with source.block(f"if {_differs_from_default(field, value)}:"):
                    source.add("parts = []")
                    annotation = self._annotations[struct.name, field.attribute]
                    self._require(field, value, annotation)
                    self._write_field(field, value, True)
                    self._emit()
                    source.add(f"fields.append(tagged_field({field.tag}, parts))")
            source.add("return tagged_section(fields)")
        source.add("")
        source.add("")

    # Strings and bytes.

    def _write_sized(self, field: Field, value: str, flexible: bool) -> None:
        form = "compact" if flexible else "legacy"
        null = r'b"\x00"' if flexible else r'b"\xff\xff"'
        if field.element == "bytes":
            null = r'b"\x00"' if flexible else r'b"\xff\xff\xff\xff"'
            expression = f"{form}_bytes({value})"
            if field.nullable:
                expression = f"{null} if {value} is None else {expression}"
            self._add(expression)
        elif field.nullable:
            self._add(f"{null} if {value} is None else {form}_string({value})")
        elif flexible:
            self._add(
                SHORT_VARINT.format(
                    f"len(text := {value}.encode()) + 1", "string_length(length - 1)"
                )
            )
            self._add("text")
        else:
            self._run.append(("h", f"len(text := {value}.encode())"))
            self._add("text")

    def _write_records(self, value: str, flexible: bool) -> None:
        source = self._source
        self._emit()
        with source.block(f"if {value} is None:"):
            self._gather(_null_count(flexible))
        with source.block("else:"):
            self._write_count(f"len({value})", flexible)
            self._emit()
            with source.block(f"if {value}:"):
                source.add(f'out += (b"".join(parts), {value})')
                source.add("parts.clear()")

    # Arrays.

    def _write_array(self, field: Field, value: str, flexible: bool) -> None:
        source = self._source
        if field.element in NUMBERS:
            self._add(_numbers(FIXED_FORMATS[field.element], field.nullable, value, flexible))
        elif field.struct is None:
            self._write_texts(field, value, flexible)
        elif field.nullable:
            self._emit()
            with source.block(f"if {value} is None:"):
                self._gather(_null_count(flexible))
            with source.block("else:"):
                self._write_structs(field.struct, value, flexible)
        else:
            self._write_structs(field.struct, value, flexible)

    def _write_texts(self, field: Field, value: str, flexible: bool) -> None:
        """Arrays of strings and of UUIDs."""
        if field.nullable:
            self._emit()
            with self._source.block(f"if {value} is None:"):
                self._gather(_null_count(flexible))
            with self._source.block("else:"):
                self._write_texts(field._replace(nullable=False), value, flexible)
                self._emit()
            return
        self._write_count(f"len({value})", flexible)
        if field.element == "uuid":
            self._add(f"join_uuids({value})")
        elif field.element == "string":
            form = "compact_string" if flexible else "legacy_string"
            self._add(f'b"".join([{form}(item) for item in {value}])')
        else:
            raise NotImplementedError(f"an array of {field.element}")

    def _write_structs(self, struct: Struct, value: str, flexible: bool) -> None:
        source = self._source
        self._write_count(f"len({value})", flexible)
        self._emit()
        used = [field for field in struct.fields if field.present]
        if len(used) < 2 or 2 * len(used) < len(struct.fields):
            item = source.local("item")
            with source.block(f"for {item} in {value}:"):
                self._write_struct(struct, item)
                self._emit()
        else:
            locals_ = {field.attribute: source.local(field.attribute) for field in used}
            with source.block(f"for {self._targets(struct, locals_)} in {value}:"):
                self._write_fields(struct, locals_)
                self._emit()

    def _write_count(self, expression: str, flexible: bool) -> None:
        if flexible:
            self._add(SHORT_VARINT.format(f"{expression} + 1", "encode_varint(length)"))
        else:
            self._run.append(("i", expression))

    # Gathering.

    def _add(self, expression: str) -> None:
        self._close_run()
        self._pending.append(expression)

    def _close_run(self) -> None:
        if not self._run:
            return
        formats = [each for each, _ in self._run]
        arguments = [value for each, value in self._run if each != "x"]
        self._run = []
        if arguments:
            self._pending.append(f"{self._source.packer(formats)}({', '.join(arguments)})")
        else:
            self._pending.append('b"' + "\\x00" * len(formats) + '"')

    def _emit(self) -> None:
        self._close_run()
        pending, self._pending = self._pending, []
        self._gather(*pending)

    def _gather(self, *expressions: str) -> None:
        if len(expressions) == 1:
            self._source.add(f"parts.append({expressions[0]})")
        elif expressions:
            self._source.add(f"parts += ({', '.join(expressions)})")
        self._has_gathered = self._has_gathered or bool(expressions)


def _numbers(number: str, nullable: bool, value: str, flexible: bool) -> str:
    form = "compact" if flexible else "legacy"
    if number == "i":
        # Nodes and partitions: many, short, and where the offline ones are listed,
        # mostly empty.
        count = "count + 1" if flexible else "count"
        some = (
            f"{form}_int32s[count]({count}, *{value})"
            f' if (count := len({value})) < INT32S_END else {form}_numbers("i", {value})'
        )
        none = r'b"\x01"' if flexible else r'b"\x00\x00\x00\x00"'
        expression = f"{none} if not {value} else {some}"
    else:
        expression = f'{form}_numbers("{number}", {value})'
    if nullable:
        return f"{_null_count(flexible)} if {value} is None else ({expression})"
    return expression


def _null_count(flexible: bool) -> str:
    return r'b"\x00"' if flexible else r'b"\xff\xff\xff\xff"'


def _is_default(field: Field, value: str) -> str:
    """A cheap test that may say no to an equal value: the section's own function
    looks again."""
    match field.default:
        case "()" | "False":
            return f"not {value}"
        case default if default == "None" or default.startswith("DEFAULT_"):
            return f"{value} is {default}"
    return f"{value} == {field.default}"


def _differs_from_default(field: Field, value: str) -> str:
    match field.default:
        case "None":
            return f"{value} is not None"
        case "()" | "False":
            return value
    return f"{value} != {field.default}"
