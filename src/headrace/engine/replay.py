"""Replay: building queue groups' views from a partition's state log.

Views are shown the data log before an event needs it. An event may speak of
offsets that the log does not have, when it lost its unsynced end: that part of it
is void, and `is_beyond` says that it happened.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.core.settings import Ordering
from headrace.engine import state as events
from headrace.engine.catalog import Group
from headrace.engine.clipping import clipped
from headrace.engine.clock_steps import LASTING, begun_at, move_view
from headrace.engine.queue import QueueView
from headrace.engine.runs import offsets_of
from headrace.engine.scanner import Scanner
from headrace.engine.state_log import TransactionDecided
from headrace.engine.window import RETRYING


class Replay:
    def __init__(
        self,
        groups: Mapping[int, Group],
        ordering: Ordering,
        scanner: Scanner,
        end: int,
        stable: int,
        log_end: int,
        now_ms: int,
    ) -> None:
        self._groups = groups
        self._ordering = ordering
        self._scanner = scanner
        # Up to where the data log may be read.
        self._end = end
        # Up to where it is decided, which is where groups that wait for that end.
        self._stable = stable
        # Where it ends: an event that speaks of more is of a log that lost its end.
        self._log_end = log_end
        self._now_ms = now_ms
        self._views: dict[int, QueueView] = {}
        self.is_beyond = False
        # By group, when the last rest of a message is over: an earlier one would end it
        # too early, and the clock may have been set between the two.
        self._rests: dict[int, dict[int, int]] = {}
        # How far the clock is behind what it showed when the snapshot was written.
        self._behind_ms = 0

    def finish(self) -> dict[int, QueueView]:
        """The views, which have seen everything that there is."""
        views = self._views.values()
        if max(self._scanner.cancelled, default=-1) >= self._log_end or any(
            view.window.end > self._log_end for view in views
        ):
            self.is_beyond = True
            self._cut(self._log_end)
        self._catch_up(views)
        for view in views:
            if view.order is not None:
                view.order.rebuild()
            self._rest(view)
        return self._views

    def apply(self, event: events.Event | TransactionDecided) -> None:
        if isinstance(event, LASTING) and event.at > self._now_ms:
            # The clock was ahead when that was written. Nothing lasts longer from now
            # on than it was to last from then on.
            event = begun_at(event, self._now_ms)
        match event:
            case TransactionDecided(producer, at, commit):
                for view in self._views.values():
                    if producer in view.held_acks.producers():
                        view.apply(events.HeldDecided(view.group_id, producer, at, commit))
            case events.SnapshotPartition():
                self._views.clear()
                self._rests.clear()
                self._behind_ms = self._now_ms - event.at
                self._scanner.cancelled = set(offsets_of(event.cancelled))
            case events.Cancelled():
                views = self._views.values()
                if any(view.window.end < event.runs[-1] for view in views):
                    self._catch_up(views)
                self._scanner.cancelled.update(offsets_of(event.runs))
                for view in views:
                    view.cancel(event.runs)
            case events.Cut():
                self._cut(event.end)
            case events.Closed():
                self._views.pop(event.group, None)
            case events.SnapshotEnd():
                pass
            case events.Opened() | events.SnapshotGroup():
                # A group that the catalog does not know any more was deleted.
                group = self._groups.get(event.group)
                if group is not None:
                    view = QueueView(
                        group.id, group.name, group.settings, self._ordering, event.start
                    )
                    if view.order is not None:
                        view.order.is_asleep = True
                    self._views[group.id] = view
                    view.apply(event)
            case (
                events.SnapshotChunk()
                | events.SnapshotKeys()
                | events.SnapshotRest()
                | events.HeldDecided()
            ):
                if event.group in self._views:
                    self._views[event.group].apply(event)
                    if isinstance(event, events.SnapshotRest):
                        self._on_restored(self._views[event.group])
            case _:
                if event.group in self._views:
                    self._apply_to(self._views[event.group], event)

    def _on_restored(self, view: QueueView) -> None:
        """A view is as its snapshot says."""
        if self._behind_ms < 0:
            move_view(view, self._behind_ms, self._behind_ms)
        self._rests[view.group_id] = {offset: due_ms for due_ms, offset in view.retries}

    def _rest(self, view: QueueView) -> None:
        rests = self._rests.get(view.group_id, {})
        resting = [offset for offset in rests if view.is_in(offset, RETRYING)]
        view.retries.clear()
        view.retries.add_many([rests[offset] for offset in resting], resting)

    def _apply_to(self, view: QueueView, event: events.MessageEvent) -> None:
        if isinstance(event, events.Retried):
            dues = self._rests.setdefault(view.group_id, {})
            dues.update(dict.fromkeys(offsets_of(event.runs), event.due))
        if isinstance(event, events.Revived):
            # It reaches below the window, but not below what the log still has.
            event = clipped(event, self._scanner.log_start)
        end = event.runs[-1] if event.runs else 0
        if end > view.window.end:
            self._catch_up([view])
        if end > view.window.end:
            # The group began to wait for transactions after it had seen this; or what was
            # safe then is not known to be so yet.
            self._scanner.catch_up([view], min(end, self._log_end), self._now_ms)
        if end <= view.window.end:
            view.apply(event)
            return
        self.is_beyond = True
        view.apply(clipped(event, 0, view.window.end))

    def _catch_up(self, views: Collection[QueueView]) -> None:
        early = [view for view in views if not view.is_committed]
        late = [view for view in views if view.is_committed]
        self._scanner.catch_up(early, self._end, self._now_ms)
        self._scanner.catch_up(late, self._stable, self._now_ms)

    def _cut(self, end: int) -> None:
        self._scanner.cancelled = {o for o in self._scanner.cancelled if o < end}
        for view in self._views.values():
            view.truncate_to(end)
