"""What the demo says while it runs: what it does now, and what came of it."""

from __future__ import annotations

import click


def say(text: str) -> None:
    click.echo(f"==> {text}")


def note(text: str) -> None:
    click.echo(f"    {text}")
