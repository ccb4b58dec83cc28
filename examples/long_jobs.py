"""Jobs that take much longer than a lease, and run once each.

    python examples/long_jobs.py               skips the time that they take
    headrace work examples.long_jobs:app       takes it, on ./data

A lease lasts 30 seconds and each job 20 to 90. While a job runs its lease is extended, so
no other worker gets it; when this worker dies, another one has it within 30 seconds. One
that is not done after an hour has failed.
"""

from __future__ import annotations

import time

import headrace
from headrace import testing

app = headrace.App()
# How a job passes its time.
sleep = time.sleep


@app.worker("films", concurrency=2, timeout=3600)
def render(film: dict[str, int], message: headrace.Message[dict[str, int]]) -> None:
    print(f"film {film['number']}: attempt {message.attempt}, {film['seconds']} s")
    sleep(film["seconds"])


def main() -> None:
    global sleep
    clock = testing.ManualClock()
    sleep = clock.skip
    with testing.open(clock, auto_create=True) as handle:
        films = [{"number": number, "seconds": 20 + 10 * number} for number in range(8)]
        handle.publish_many("films", films)
        counts = testing.drain(app, handle)["render"]
        print(f"{counts.done} films rendered, {counts.lost} twice")
        assert (counts.done, counts.lost) == (8, 0)


if __name__ == "__main__":
    main()
