"""The table of tools in docs/compatibility.md, made from the scripts:

python -m tests.ecosystem.page"""

from __future__ import annotations

from pathlib import Path

from tests.ecosystem import scripts
from tests.ecosystem.tools import PROGRAMS

PAGE = Path(__file__).parent.parent.parent / "docs" / "compatibility.md"
BEGIN, END = "<!-- tools -->\n", "<!-- end of tools -->\n"


def table() -> str:
    """A row for each tool: how many commands were tried, and what a node does otherwise."""
    commands = [
        each
        for name in scripts.names()
        for each in scripts.load(name).commands
        if each.tool not in PROGRAMS
    ]
    lines = ["| tool | commands | what a node does otherwise |", "|---|---:|---|"]
    for tool in sorted({command.words[0] for command in commands}):
        own = [command for command in commands if command.words[0] == tool]
        others: dict[str, list[str]] = {}
        for command in own:
            if command.verdict:
                what = f"{command.verdict}: {command.reason}"
                others.setdefault(what, []).append(command.line.removeprefix(tool).strip())
        said = (
            f"{', '.join(f'`{line}`' for line in lines_ if line) or 'all'}: {what}"
            for what, lines_ in others.items()
        )
        lines.append(f"| `{tool}` | {len(own)} | {'; '.join(said)} |")
    return "\n".join(lines) + "\n"


def with_table(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
