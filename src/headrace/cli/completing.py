"""What a shell completes beyond our own words: names in the directory or on the node,
names of settings, folders.

    @click.argument("topic", shell_complete=topic_names)

A shell waits while it asks, and has no place for an error: what cannot be looked at, or
does not answer at once, completes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from headrace.core.errors import HeadraceError

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

    from headrace.client.backend import Backend

NODE_SECONDS = 2

Complete = Callable[["click.Context", "click.Parameter", str], list["CompletionItem"]]


def words(*known: str) -> Complete:
    """A fixed set, for an option that takes other values as well."""
    return lambda ctx, parameter, begun: _beginning(known, begun)


def setting_names(known: Iterable[str]) -> Complete:
    return words(*(f"{name}=" for name in known))


def folders(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    # The shell itself knows them.
    return [CompletionItem(begun, type="dir")]


def _stored(names: Callable[[Backend], Iterable[str]]) -> Complete:
    def complete(
        ctx: click.Context, parameter: click.Parameter, begun: str
    ) -> list[CompletionItem]:
        # Whoever types nothing but commands does not wait for these imports.
        from click import ClickException

        from headrace.cli.command import open_backend, place_of

        try:
            place = place_of(ctx)
            near = {"wait": 0, "retry": 0, "timeout": NODE_SECONDS} if place.server else {}
            with open_backend(place, read_only=True, **near) as backend:
                return _beginning(names(backend), begun)
        except (HeadraceError, OSError, ClickException):
            return []

    return complete


def _beginning(names: Iterable[str], begun: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in sorted(set(names)) if name.startswith(begun)]


def _groups(backend: Backend, *kinds: str) -> Iterator[str]:
    return (group.name for group in backend.groups() if group.kind in kinds)


topic_names = _stored(lambda backend: (topic.name for topic in backend.topics()))
group_names = _stored(lambda backend: _groups(backend, "queue", "stream"))
queue_names = _stored(lambda backend: _groups(backend, "queue"))
stream_names = _stored(lambda backend: _groups(backend, "stream"))
transaction_names = _stored(lambda backend: (each.name for each in backend.transactions()))


def pipeline_names(
    ctx: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    from headrace.pipelines.registry import PIPELINES

    return _beginning(PIPELINES, begun)


def pipeline_settings(
    ctx: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Of the pipeline that was named before."""
    from dataclasses import fields

    from headrace.pipelines.registry import PIPELINES

    # While an option has no value yet, arguments are left as they were typed.
    pipeline = PIPELINES.get(ctx.params.get("name") or next(iter(ctx.args), ""))
    if pipeline is None:
        return []
    return _beginning((f"{each.name}=" for each in fields(pipeline.settings())), begun)
