"""An app: functions that work on the messages of topics, declared where they stand.

    app = headrace.App()

    @app.worker("orders", group="billing", concurrency=8)
    def bill(order: Order) -> None: ...

    headrace work shop:app        runs it

What a function's end means:

    it returns            ack
    it raises             nack: again after the group's backoff, with the error's text
    it raises Retry       nack: again after the delay that it names
    it raises Reject      to the dead letters at once
    its value is not one  to the dead letters at once: it will not decode later either

A function takes the value, decoded as its annotation says, or the message, or both.
It is an ordinary function still, and can be called and tested as one.

Rejected: names for tasks that travel in the message. Whoever publishes would have to
know the functions of whoever works; a topic is enough.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.client.handle import DEFAULT_GROUP
from headrace.client.message import AsyncMessage, LeasedView
from headrace.client.queue import PREFETCH_DEFAULT, topic_names
from headrace.client.times import Duration, optional_duration_ms
from headrace.client.values import value_type_of
from headrace.core.errors import InvalidArgument
from headrace.core.limits import CONCURRENCY_MAX
from headrace.core.settings import GroupSettings

Function = TypeVar("Function", bound=Callable[..., Any])
# What middleware calls to go on, and middleware itself.
Next = Callable[[AsyncMessage[Any]], Awaitable[None]]
Middleware = Callable[[AsyncMessage[Any], Next], Awaitable[None]]
Lifespan = Callable[["App"], AbstractAsyncContextManager[None]]


class Reject(Exception):
    """Raised by a worker: nobody will ever be able to handle this message."""


class Retry(Exception):
    """Raised by a worker: not now. Again after `delay`, or the group's backoff."""

    def __init__(self, reason: str = "", *, delay: Duration | None = None) -> None:
        super().__init__(reason)
        self.delay_ms = optional_duration_ms("delay", delay)


@dataclass(frozen=True)
class Worker:
    """One function and how it is to be fed."""

    name: str
    function: Callable[..., Any]
    topics: tuple[str, ...]
    group: str
    concurrency: int
    timeout_ms: int | None
    visibility_ms: int | None
    prefetch: int
    settings: dict[str, Any]
    # What the value is decoded as; None is for as its content type says.
    type: Any
    takes_value: bool
    # The name of the parameter that gets the message, if one does.
    takes_message: str | None
    is_async: bool


class App:
    def __init__(self, *, lifespan: Lifespan | None = None) -> None:
        """`lifespan` is entered before the first message and left after the last,
        as web frameworks do it: connections are opened and closed there."""
        self.workers: list[Worker] = []
        self.middlewares: list[Middleware] = []
        self.lifespan = lifespan

    def worker(
        self,
        topics: str | typing.Iterable[str],
        group: str = DEFAULT_GROUP,
        *,
        concurrency: int = 1,
        timeout: Duration | None = None,
        visibility: Duration | None = None,
        prefetch: int = PREFETCH_DEFAULT,
        **settings: Any,
    ) -> Callable[[Function], Function]:
        """Make a function work on these topics, `concurrency` messages at a time.

        After `timeout` an attempt has failed. A lease is extended for as long as
        the function runs, so `visibility` need not be longer than it. The settings
        are those of `headrace.GroupSettings`: max_attempts, backoff_ms and so on.
        """
        names = topic_names(topics)
        if isinstance(concurrency, bool) or not isinstance(concurrency, int):
            raise InvalidArgument(f"concurrency must be a whole number, not {concurrency!r}")
        if not 1 <= concurrency <= CONCURRENCY_MAX:
            raise InvalidArgument(
                f"concurrency must be from 1 to {CONCURRENCY_MAX}, not {concurrency}"
            )
        timeout_ms = optional_duration_ms("timeout", timeout, least_ms=1)
        visibility_ms = optional_duration_ms("visibility", visibility, least_ms=1)
        GroupSettings.from_mapping(settings)

        def declare(function: Function) -> Function:
            wanted, takes_value, takes_message = _parameters(function)
            self.workers.append(
                Worker(
                    _name_of(function),
                    function,
                    names,
                    group,
                    concurrency,
                    timeout_ms,
                    visibility_ms,
                    prefetch,
                    dict(settings),
                    wanted,
                    takes_value,
                    takes_message,
                    inspect.iscoroutinefunction(function),
                )
            )
            return function

        return declare

    def middleware(self, function: Middleware) -> Middleware:
        """Wrap every message: `async def seen(message, call_next)`. The first that
        was declared is the outermost."""
        if not inspect.iscoroutinefunction(function):
            raise InvalidArgument("middleware is an async function of (message, call_next)")
        self.middlewares.append(function)
        return function


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


def _parameters(function: Callable[..., Any]) -> tuple[Any, bool, str | None]:
    """The type of the value, whether it is taken, and the name under which the
    message is; InvalidArgument when the function cannot be called like that."""
    try:
        hints = typing.get_type_hints(function)
    except NameError as error:
        raise InvalidArgument(
            f"the annotations of {_name_of(function)} cannot be read: {error}; define the types "
            "where the module can see them"
        ) from error
    wanted: Any = None
    takes_value = False
    takes_message: str | None = None
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, Any)
        if parameter.default is not parameter.empty or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            continue
        if _is_message(hint) or (hint is Any and parameter.name == "message"):
            takes_message = parameter.name
        elif takes_value or parameter.kind is parameter.KEYWORD_ONLY:
            raise InvalidArgument(
                f"{_name_of(function)} takes a value and a message, and nothing else; "
                f"{parameter.name!r} has nobody to fill it"
            )
        else:
            takes_value = True
            if hint is not Any:
                # Refused here rather than at the first message.
                value_type_of(hint)
                wanted = hint
    return wanted, takes_value, takes_message


def _is_message(hint: Any) -> bool:
    kind = typing.get_origin(hint) or hint
    return isinstance(kind, type) and issubclass(kind, LeasedView)
