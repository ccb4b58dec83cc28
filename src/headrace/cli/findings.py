"""What `headrace doctor` finds: what is wrong, why it matters, and what to do.

    bad     something is lost, broken, or about to stop      exit code 2
    warn    something that will hurt if it is left alone     exit code 1

A check is one question. It has findings, or a few words about what it looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from headrace.core.errors import HeadraceError

Level = Literal["bad", "warn"]
LISTED_MAX = 10


class Finding(NamedTuple):
    level: Level
    # The topic, group, file or other thing that it is about.
    about: str
    what: str
    why: str
    # What to type, or what to see to.
    do: str


class Checked(NamedTuple):
    """The outcome of one check."""

    name: str
    # What was looked at, for a check without findings.
    summary: str
    findings: tuple[Finding, ...] = ()


Outcome = tuple[str, Iterable[Finding]]


def carry_out(name: str, look: Callable[[], Outcome]) -> Checked:
    """Whatever keeps a check from being made is a finding itself."""
    try:
        summary, found = look()
        return Checked(name, summary, tuple(found))
    except (HeadraceError, OSError) as error:
        text = " ".join(str(error).split()) or type(error).__name__
        why = "what cannot be looked at may be as wrong as this"
        return Checked(
            name, "", (Finding("bad", name, text, why, "headrace log verify, where the files are"),)
        )


def shortened(found: list[Finding]) -> list[Finding]:
    """A disk that rots does so in many places, and nobody reads them all."""
    if len(found) <= LISTED_MAX:
        return found
    worst = sorted(found, key=lambda each: each.level != "bad")
    last = worst[LISTED_MAX - 1]
    more = len(found) - LISTED_MAX + 1
    return [*worst[: LISTED_MAX - 1], last._replace(about=f"{last.about} and {more - 1:,} more")]


def exit_code(checks: Iterable[Checked]) -> int:
    levels = {finding.level for check in checks for finding in check.findings}
    return 2 if "bad" in levels else 1 if "warn" in levels else 0
