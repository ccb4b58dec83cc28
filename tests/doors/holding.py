"""A process that leases messages at every door, settles none of them, and is killed.

    python -m tests.doors.holding HTTP-ADDRESS GRPC-ADDRESS TOPIC GROUP COUNT

It holds COUNT messages over WebSockets and as many over gRPC, for an hour, and as many
over HTTP, for two seconds; then it says so and waits for its end.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack

import httpx
from tests.doors.grpc_client import GrpcClient
from websockets.sync.client import connect

from headrace.wire.grpc.generated import headrace_pb2 as pb

HOUR_SECONDS = 3600
SHORT_SECONDS = 2
SOCKETS = 5


def main() -> None:
    http, grpc, topic, group, count = sys.argv[1:]
    each = int(count) // SOCKETS
    with ExitStack() as closing:
        for _ in range(SOCKETS):
            socket = closing.enter_context(connect(f"ws://{http}/ws"))
            socket.recv(timeout=60)
            wanted = {
                "op": "dequeue", "id": 1, "topics": [topic], "group": group, "credit": each,
                "visibility": HOUR_SECONDS,
            }  # fmt: skip
            socket.send(json.dumps(wanted))
            for _ in range(1 + each):
                assert json.loads(socket.recv(timeout=60))["op"] in ("done", "message")
        opening = pb.ConsumeOpen(
            group=group, topics=[topic], credit=int(count), visibility_ms=HOUR_SECONDS * 1000
        )
        # A stream whose requests never end, as nobody takes from this connection again.
        calls = GrpcClient(grpc).queues.Consume(_forever(pb.ConsumeRequest(open=opening)))
        held = 0
        while held < int(count):
            held += len(next(calls).deliveries.messages)
        body = {"topics": [topic], "count": int(count), "visibility": SHORT_SECONDS}
        leased = httpx.post(f"http://{http}/queues/{group}/lease", json=body, timeout=60)
        assert len(leased.json()["messages"]) == int(count)
        print("holding", flush=True)
        sys.stdin.read()


def _forever(first: object):  # type: ignore[no-untyped-def]
    yield first
    sys.stdin.read()


if __name__ == "__main__":
    main()
