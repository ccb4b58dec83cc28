"""The redrive plan: what triage proposes, for a person to read, change and run.

    [[step]]
    action = "redrive"          or "leave", or "purge"
    topic = "orders"
    group = "billing"
    reason = "max-attempts"
    signature = "payment service timed out after # s"
    shape = "{id: number, total: number}"
    letters = 120               when the plan was made
    rate = 50.0                 a second; left out, as fast as it goes

`headrace dlq redrive --plan FILE` does every step in order. A step takes the
letters of its kind and no others, whatever has come since the plan was made.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, cast, get_args

from headrace.client.views import DeadLetterView
from headrace.core.errors import InvalidArgument
from headrace.core.limits import REDRIVES_MAX
from headrace.pipelines.triage.kinds import is_passing, shape_of, signature_of

Action = Literal["redrive", "leave", "purge"]


class Step(NamedTuple):
    action: Action
    topic: str
    group: str
    reason: str
    signature: str
    shape: str
    letters: int
    rate: float | None = None

    def takes(self, letter: DeadLetterView) -> bool:
        return (
            letter.group == self.group
            and letter.reason == self.reason
            and signature_of(letter.reason, letter.error) == self.signature
            and shape_of(letter.raw) == self.shape
        )


def propose(signature: str, redrives: int) -> Action:
    """Redrive what looks like a passing failure and has not come back too often;
    everything else needs a repair first, and a person who says so."""
    return "redrive" if is_passing(signature) and redrives < REDRIVES_MAX else "leave"


def plan_text(steps: Iterable[Step], about: str) -> str:
    lines = [f"# {line}" for line in about.splitlines()]
    for step in steps:
        lines += ["", "[[step]]"]
        for name, value in step._asdict().items():
            if value is not None:
                # A text or number in JSON is one in TOML too.
                lines.append(f"{name} = {json.dumps(value, ensure_ascii=True)}")
    return "\n".join(lines) + "\n"


def read_plan(path: str) -> list[Step]:
    """InvalidArgument names the step and the key that is wrong."""
    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"cannot read the plan {path}: {error}") from error
    steps = document.get("step", [])
    if not isinstance(steps, list):
        raise InvalidArgument(f"{path}: steps are written as [[step]]")
    return [_step(number, values) for number, values in enumerate(steps, 1)]


def _step(number: int, values: Any) -> Step:
    if not isinstance(values, Mapping):
        raise InvalidArgument(f"step {number}: steps are written as [[step]]")
    unknown = values.keys() - set(Step._fields)
    if unknown:
        raise InvalidArgument(f"step {number}: unknown key {sorted(unknown)[0]!r}")
    for name in ("topic", "group", "reason", "signature", "shape"):
        if not isinstance(values.get(name), str):
            raise InvalidArgument(f"step {number}: {name} is missing, or is not a text")
    action = values.get("action")
    if action not in get_args(Action):
        raise InvalidArgument(
            f"step {number}: action must be one of {', '.join(get_args(Action))}, not {action!r}"
        )
    rate = values.get("rate")
    if rate is not None and (not isinstance(rate, int | float) or rate <= 0):
        raise InvalidArgument(f"step {number}: rate must be above zero, not {rate!r}")
    return Step(
        cast(Action, action),
        values["topic"], values["group"], values["reason"], values["signature"], values["shape"],
        int(values.get("letters", 0)),
        None if rate is None else float(rate),
    )  # fmt: skip
