"""Delayed messages, and dead letters: listed, shown, cancelled, redriven, purged."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect

from headrace.calls import Face
from headrace.core import limits
from headrace.core.errors import InvalidArgument, UnknownMessage
from headrace.core.event_log import log_event
from headrace.core.values import DeadLetter, MessageId, RedriveResult
from headrace.server.http.messages import place_in
from headrace.server.http.route import Call
from headrace.server.http.shown import moment_of, shown_delayed, shown_letter
from headrace.server.pages import delayed_page, letters_page
from headrace.server.slices import Slices
from headrace.wire.http import bodies
from headrace.wire.http import overview_bodies as o

# What one call settles at once.
BATCH_ITEMS = 500
# Of dead letters that failed alike.
SAMPLES_SHOWN = 5
# Of letters that are counted.
LOOKED_AT_ONCE = 100


async def list_delayed(call: Call) -> bodies.DelayedPage:
    query: bodies.PageQuery = call.query
    after: tuple[int, int, int] | None = None
    if query.after is not None:
        try:
            due, partition, offset = map(int, query.after.split("-"))
        except ValueError as error:
            raise InvalidArgument("`after` is the `next` of another page") from error
        after = (due, partition, offset)
    found, behind = await delayed_page(call.calls, call.path["topic"], after, query.limit)
    return bodies.DelayedPage(
        messages=list(map(shown_delayed, found)),
        next=None if behind is None else "-".join(map(str, behind)),
    )


async def cancel(call: Call) -> bodies.Cancelled:
    place = MessageId(*place_in(call))
    if not await call.run(Face.cancel, place):
        raise UnknownMessage(f"{place} is not delayed, or not any more; nothing was changed")
    return bodies.Cancelled(cancelled=True)


async def list_letters(call: Call) -> bodies.LettersPage:
    query: bodies.LettersQuery = call.query
    after = None if query.after is None else MessageId.parse(query.after)
    found, behind = await letters_page(
        call.calls, call.path["topic"], query.group, after, query.limit
    )
    return bodies.LettersPage(
        messages=list(map(shown_letter, found)),
        next=None if behind is None else str(behind),
    )


async def count_letters(call: Call) -> o.LetterCounts:
    picture = await call.facts.survey.look()
    return o.LetterCounts(
        topics=[o.LetterCount(topic=name, count=count) for name, count in picture.letters.items()]
    )


class _Alike:
    """Dead letters that failed alike, without what they hold."""

    def __init__(self) -> None:
        self.count = 0
        self.first_failed_at_ms = self.last_failed_at_ms = 0
        # The newest, each with the time at which it failed.
        self.samples: list[tuple[int, str]] = []

    def add(self, letter: DeadLetter) -> None:
        at_ms = letter.failed_at_ms
        self.first_failed_at_ms = min(self.first_failed_at_ms, at_ms) if self.count else at_ms
        self.last_failed_at_ms = max(self.last_failed_at_ms, at_ms)
        self.count += 1
        self.samples.append((at_ms, str(MessageId(letter.topic, letter.partition, letter.offset))))
        self.samples.sort(key=lambda each: -each[0])
        del self.samples[SAMPLES_SHOWN:]


async def group_by_reason(call: Call) -> o.LetterReasons:
    """What failed alike, the most frequent first."""
    topic = call.path["topic"]
    alike: dict[tuple[str, str, str | None], _Alike] = {}
    counted = size_bytes = 0
    after: MessageId | None = None
    slices = Slices()
    while counted < limits.LISTED_ITEMS_MAX and size_bytes < limits.LISTED_BYTES_MAX:
        looked = await call.run(Face.look_at_letters, topic, None, after, LOOKED_AT_ONCE)
        await slices.rest()
        for each in looked.items:
            alike.setdefault((each.group, each.reason, each.error), _Alike()).add(each)
        counted += len(looked.items)
        size_bytes += looked.size_bytes
        after = looked.next
        if after is None:
            break
    reasons = [_reason(*kind, letters) for kind, letters in alike.items()]
    reasons.sort(key=lambda each: (-each.count, each.group, each.reason))
    return o.LetterReasons(reasons=reasons, counted=counted, more=after is not None)


def _reason(group: str, reason: str, error: str | None, letters: _Alike) -> o.LetterReason:
    return o.LetterReason(
        group=group,
        reason=reason,
        error=error,
        count=letters.count,
        first_failed_at=moment_of(letters.first_failed_at_ms),
        last_failed_at=moment_of(letters.last_failed_at_ms),
        samples=[id for _, id in letters.samples],
    )


async def show_letter(call: Call) -> bodies.ShownLetter:
    topic, partition, offset = place_in(call)
    return shown_letter(
        await call.run(Face.dead_letter, MessageId(f"{topic}.dlq", partition, offset))
    )


async def redrive(call: Call) -> bodies.Redriven:
    wanted: bodies.Redrive = call.body
    topic, total = call.path["topic"], RedriveResult(0, 0, 0, None)
    slices = Slices()
    try:
        async for batch in call.each_while_there(_chosen(call, wanted)):
            if batch:
                result = await call.calls.run_in_slices(
                    Face.redriving, topic, batch, dry_run=wanted.dry_run, force=wanted.force
                )
                total = total.plus(result)
            # A dry run waits for nothing.
            await slices.rest()
    except ClientDisconnect:
        if not wanted.dry_run:
            _log_cut(call, "redrive ended with its client", redriven=total.redriven)
        raise
    known = total._asdict()
    # Only who goes in batches looks what came back.
    del known["returned"]
    return bodies.Redriven(**known)


async def purge(call: Call) -> bodies.Purged:
    purged = 0
    try:
        async for batch in call.each_while_there(_chosen(call, call.body)):
            if batch:
                purged += await call.run(Face.purge, call.path["topic"], batch)
    except ClientDisconnect:
        _log_cut(call, "purge ended with its client", purged=purged)
        raise
    return bodies.Purged(purged=purged)


def _log_cut(call: Call, event: str, **done: int) -> None:
    """Nobody hears the answer, so the log has to say how far it came."""
    log_event(call.service.logger, logging.WARNING, event, topic=call.path["topic"], **done)


async def _chosen(call: Call, choice: bodies.LetterChoice) -> AsyncIterator[list[MessageId]]:
    """In batches, of which some are empty where letters are looked for. All of them only
    where that was said: an empty body must not empty the dead letters."""
    by_rule = choice.all or choice.group is not None or choice.reason is not None
    if (choice.ids is not None) == by_rule:
        raise InvalidArgument(
            "say which: `ids`, or a `group` and a `reason` to look for, or `all`: true"
        )
    if choice.ids is not None:
        ids = list(map(MessageId.parse, choice.ids))
        for start in range(0, len(ids), BATCH_ITEMS):
            yield ids[start : start + BATCH_ITEMS]
        return
    topic = call.path["topic"]
    # What fails again meanwhile is behind these ends, and not meant.
    ends = await _ends(call, topic)
    after: MessageId | None = None
    while True:
        page, after = await letters_page(
            call.calls, topic, choice.group, after, limits.PAGE_ITEMS_MAX
        )
        ids = [
            MessageId(each.topic, each.partition, each.offset)
            for each in page
            if each.offset < ends.get(each.partition, 0) and each.mentions(choice.reason)
        ]
        for start in range(0, max(1, len(ids)), BATCH_ITEMS):
            yield ids[start : start + BATCH_ITEMS]
        if after is None:
            return


async def _ends(call: Call, topic: str) -> dict[int, int]:
    if not call.calls.run_nowait(Face.is_topic, f"{topic}.dlq"):
        return {}
    info = await call.run(Face.topic, f"{topic}.dlq")
    return {each.partition: each.high_watermark for each in info.partitions}
