"""Generates the Python stubs of the gRPC door from its .proto.

    .venv/bin/python -m scripts.generate_grpc

protoc names modules after the .proto's path, which begins with our own package's
name; here they lie flat in a folder of their own, and import each other from there.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

PROJECT = Path(__file__).resolve().parent.parent
WIRE = PROJECT / "src" / "headrace" / "wire" / "grpc"
PROTO = "headrace/v1/headrace.proto"
NAMES = ("headrace_pb2.py", "headrace_pb2.pyi", "headrace_pb2_grpc.py")


def generate() -> dict[str, str]:
    """The text of each module, by its name."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [
            "protoc",
            f"--proto_path={WIRE / 'proto'}",
            *(f"--{kind}_out={folder}" for kind in ("python", "pyi", "grpc_python")),
            PROTO,
        ]
        if protoc.main(arguments):
            raise SystemExit("protoc failed; see above")
        made = Path(folder) / "headrace" / "v1"
        return {
            name: (made / name).read_text().replace(
                "from headrace.v1 import", "from headrace.wire.grpc.generated import"
            )
            for name in NAMES
        }  # fmt: skip


def main() -> None:
    target = WIRE / "generated"
    target.mkdir(exist_ok=True)
    for name, text in generate().items():
        (target / name).write_text(text)
    print(f"{len(NAMES)} modules in {target}", file=sys.stderr)


if __name__ == "__main__":
    main()
