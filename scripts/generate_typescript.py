"""Generates the TypeScript messages and services of the gRPC door from its .proto.

    cd clients/typescript && npm ci && cd ../..
    .venv/bin/python -m scripts.generate_typescript

protoc comes with grpcio-tools, its plugin with npm: nothing is fetched from elsewhere,
and both ends of the wire are made from one file.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc
from scripts.generate_grpc import PROJECT, PROTO, WIRE

CLIENT = PROJECT / "clients" / "typescript"
TARGET = CLIENT / "src" / "generated" / "headrace_pb.ts"


def generate(client: Path = CLIENT) -> str:
    """The text of the module, by the plugin that `client` has installed."""
    plugin = client / "node_modules" / ".bin" / "protoc-gen-es"
    if not plugin.exists():
        raise SystemExit(f"the plugin is not there; install it with: npm ci --prefix {client}")
    with tempfile.TemporaryDirectory() as folder:
        arguments = [
            "protoc",
            f"--proto_path={WIRE / 'proto'}",
            f"--plugin=protoc-gen-es={plugin}",
            f"--es_out={folder}",
            "--es_opt=target=ts,import_extension=js",
            PROTO,
        ]
        if protoc.main(arguments):
            raise SystemExit("protoc failed; see above")
        return (Path(folder) / PROTO.replace(".proto", "_pb.ts")).read_text()


def main() -> None:
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(generate())
    print(TARGET, file=sys.stderr)


if __name__ == "__main__":
    main()
