"""Reminders: delayed messages, cancelled or delivered, with asyncio.

python examples/async_scheduler.py [directory]
"""

from __future__ import annotations

import asyncio
import sys

import headrace


async def main(directory: str) -> None:
    async with headrace.open_async(directory) as handle:
        await handle.create_topic("reminders", exist_ok=True)
        await handle.publish("reminders", "in a moment", delay=0.2)
        await handle.publish("reminders", "right after", delay=0.3)
        unwanted = await handle.publish("reminders", "never", delay=0.25)
        print("cancelled:", await handle.cancel(unwanted))

        async with handle.queue("reminders", group="bell") as queue:
            while messages := await queue.receive(wait=1):
                for message in messages:
                    async with message:
                        late = message.delivered_at - message.created_at
                        print(f"{message.value}, {late.total_seconds():.1f} s after it was made")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else ":memory:"))
