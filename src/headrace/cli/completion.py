"""`headrace completion`: scripts that teach a shell our words."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from headrace.cli.command import Place, command

SHELLS = ("bash", "zsh", "fish")


@command(
    None,
    "completion",
    examples="""
    eval "$(headrace completion bash)"
    headrace completion zsh > ~/.zfunc/_headrace
    headrace completion fish > ~/.config/fish/completions/headrace.fish
    """,
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str, place: Place) -> None:
    """Print the script that completes commands and options in your shell."""
    made = get_completion_class(shell)
    assert made is not None, "click knows every shell that is a choice here"
    click.echo(made(ctx.find_root().command, {}, "headrace", "_HEADRACE_COMPLETE").source())
