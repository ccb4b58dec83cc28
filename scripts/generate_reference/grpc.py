"""The page about gRPC: every call and message of the .proto, in the words of its comments."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet
from grpc_tools import protoc
from scripts.generate_grpc import PROTO, WIRE
from scripts.generate_reference.pages import anchor, table

_HEAD = """# gRPC: every call and message

Made from [headrace.proto](../../src/headrace/wire/grpc/proto/headrace/v1/headrace.proto) by
`python -m scripts.generate_reference`; [grpc.md](../grpc.md) is the page to begin with.

"""

# What the numbers of a FileDescriptorProto's fields are, in paths of comments.
_SYNTAX, _MESSAGE, _ENUM, _SERVICE = 12, 4, 5, 6
_MEMBER = 2
_NAMES = {
    number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()
}


class _Proto:
    """The file, and the comment before each of its parts."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            written = Path(folder) / "set"
            arguments = [
                "protoc",
                f"--proto_path={WIRE / 'proto'}",
                f"--descriptor_set_out={written}",
                "--include_source_info",
                PROTO,
            ]
            if protoc.main(arguments):
                raise SystemExit("protoc failed; see above")
            self.file = FileDescriptorSet.FromString(written.read_bytes()).file[0]
        self._comments = {
            tuple(each.path): each.leading_comments for each in self.file.source_code_info.location
        }

    def said(self, *path: int) -> str:
        return " ".join(self._comments.get(path, "").split())

    def opening(self) -> str:
        """The comment at the head, with its paragraphs."""
        paragraphs = self._comments.get((_SYNTAX,), "").split("\n\n")
        return "\n\n".join(" ".join(each.split()) for each in paragraphs)


def page() -> str:
    proto = _Proto()
    return "".join(
        (
            _HEAD,
            f"{proto.opening()}\n",
            "".join(_services(proto)),
            "\n## Messages\n",
            "".join(_messages(proto)),
            "".join(_enums(proto)),
        )
    )


def _services(proto: _Proto) -> Iterator[str]:
    for number, service in enumerate(proto.file.service):
        rows = [
            (
                f"`{call.name}`",
                _streamed(call.input_type, call.client_streaming),
                _streamed(call.output_type, call.server_streaming),
                proto.said(_SERVICE, number, _MEMBER, place),
            )
            for place, call in enumerate(service.method)
        ]
        head = ("call", "takes", "answers", "")
        yield f"\n## {proto.file.package}.{service.name}\n\n"
        yield f"{proto.said(_SERVICE, number)}\n\n{table(head, rows)}"


def _streamed(kind: str, streaming: bool) -> str:
    return f"stream of {_linked(kind)}" if streaming else _linked(kind)


def _messages(proto: _Proto) -> Iterator[str]:
    for number, message in enumerate(proto.file.message_type):
        rows = [
            (
                f"`{field.name}`",
                _type(message, field),
                str(field.number),
                _choice(message, field) + proto.said(_MESSAGE, number, _MEMBER, place),
            )
            for place, field in enumerate(message.field)
        ]
        fields = f"\n{table(('field', 'type', 'number', ''), rows)}" if rows else ""
        yield f"\n### {message.name}\n\n{proto.said(_MESSAGE, number)}\n{fields}"


def _enums(proto: _Proto) -> Iterator[str]:
    for number, enum in enumerate(proto.file.enum_type):
        rows = [
            (f"`{value.name}`", str(value.number), proto.said(_ENUM, number, _MEMBER, place))
            for place, value in enumerate(enum.value)
        ]
        yield f"\n### {enum.name}\n\n{proto.said(_ENUM, number)}\n\n"
        yield table(("name", "number", ""), rows)


def _type(message: Any, field: Any) -> str:
    kind = _linked(field.type_name) if field.type_name else _NAMES[field.type]
    for entry in message.nested_type:
        if field.type_name.endswith(f".{message.name}.{entry.name}"):
            key, value = (_type(entry, each) for each in entry.field)
            return f"map of {key} to {value}"
    if field.label == field.LABEL_REPEATED:
        return f"list of {kind}"
    return f"{kind}, optional" if field.proto3_optional else kind


def _choice(message: Any, field: Any) -> str:
    """Which of several excludes the others; `optional` is not one of them."""
    if not field.HasField("oneof_index") or field.proto3_optional:
        return ""
    return f"One of `{message.oneof_decl[field.oneof_index].name}`. "


def _linked(kind: str) -> str:
    name = kind.rsplit(".", 1)[1]
    return f"[{name}](#{anchor(name)})"
