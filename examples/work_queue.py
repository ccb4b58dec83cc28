"""A work queue with three workers, retries and dead letters.

    python examples/work_queue.py [directory]

Two jobs in ten fail every time. Watch them come again and end in the dead letters.
"""

from __future__ import annotations

import sys
import threading

import headrace

JOBS = 10


def work(handle: headrace.Headrace, name: str) -> None:
    # A short backoff, so that the example is over soon.
    with handle.queue("jobs", group="workers", max_attempts=3, backoff_ms=50) as queue:
        while messages := queue.receive(max=1, wait=1):
            for message in messages:
                try:
                    with message:
                        if message.value["number"] % 5 == 0:
                            raise RuntimeError("this job never works")
                        print(f"{name}: job {message.value['number']} done")
                except RuntimeError as error:
                    print(f"{name}: job {message.value['number']} failed: {error}")


def main(directory: str) -> None:
    with headrace.open(directory) as handle:
        handle.create_topic("jobs", exist_ok=True)
        handle.publish_many("jobs", [{"number": number} for number in range(JOBS)])
        workers = [
            threading.Thread(target=work, args=(handle, f"worker {number}")) for number in range(3)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        for letter in handle.dead_letters("jobs"):
            print(f"given up after {letter.attempts} attempts: {letter.value} ({letter.error})")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else ":memory:")
