"""What the keys of `headrace top` do: a view, and its ways from one state to another.

    normal --- / ---> typing a filter --- enter, escape ---> normal
       '------ ? ---> help ------------- any key ----------> normal

Nothing here knows a terminal: a key is a name, and what becomes of it can be tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

from headrace.cli.top_look import GroupRow, TopicRow
from headrace.cli.top_tables import SORTS, Column

Row = TypeVar("Row", TopicRow, GroupRow)

FILTER_CHARACTERS_MAX = 100
PAGE = 10

HELP = """\
q, Ctrl-C       quit
?               this page; any key leaves it
space           pause: keep this picture
/               show only topics and groups whose names have these letters;
                enter keeps the filter, escape ends it
tab             the other table: the one whose heading is marked is scrolled
up, down, page up, page down, home, end
                scroll it
n               sort by name
i, o            by messages a second: published; leased or committed
s               by size on disk
l               by lag, messages not done or not read; of a topic, in the
                group that is most behind
t               by how long the next message waits
r, d            by records or ready messages, by dead letters
p, k, m         by partitions, kind, members
e, y, g, w      by leased, delayed, retrying, waiting messages
!               the other way round""".splitlines()


class View:
    def __init__(self, *, sort: str = "i", filter: str = "") -> None:
        self.sort = sort
        self.filter = filter
        self.is_reversed = False
        self.is_typing = False
        self.is_helping = False
        self.is_paused = False
        self.table: Literal["topic", "group"] = "topic"
        # Why there is nothing new to show, if so.
        self.trouble = ""
        self._scroll = {"topic": 0, "group": 0}
        self._filter_before = ""

    def on_key(self, key: str) -> bool:
        """Whether that was the end."""
        if self.is_typing:
            self._on_typed(key)
            return False
        if self.is_helping:
            self.is_helping = False
            return False
        match key:
            case "q" | "\x03" | "\x04":
                return True
            case "?" | "h":
                self.is_helping = True
            case "/":
                self.is_typing, self._filter_before = True, self.filter
            case "escape":
                self.filter = ""
            case " ":
                self.is_paused = not self.is_paused
            case "tab" | "back-tab":
                self.table = "group" if self.table == "topic" else "topic"
            case "up" | "down" | "page-up" | "page-down" | "home" | "end":
                self._on_scrolled(key)
            case "!":
                self.is_reversed = not self.is_reversed
            case _ if key in SORTS:
                self.sort = key
        return False

    def _on_typed(self, key: str) -> None:
        match key:
            case "enter":
                self.is_typing = False
            case "escape":
                self.is_typing, self.filter = False, self._filter_before
            case "backspace":
                self.filter = self.filter[:-1]
            case _ if len(key) == 1 and key.isprintable():
                self.filter = (self.filter + key)[:FILTER_CHARACTERS_MAX]

    def _on_scrolled(self, key: str) -> None:
        steps = {"up": -1, "down": 1, "page-up": -PAGE, "page-down": PAGE}
        if key in steps:
            self._scroll[self.table] = max(0, self._scroll[self.table] + steps[key])
        else:
            # How long the table is, is known when it is drawn.
            self._scroll[self.table] = 0 if key == "home" else 1_000_000

    def scrolled(self, table: str, rows: int, room: int) -> int:
        """The first row to show, which is never so late that room is left empty."""
        self._scroll[table] = max(0, min(self._scroll[table], rows - room))
        return self._scroll[table]

    def chosen(self, rows: Sequence[Row], columns: Sequence[Column]) -> list[Row]:
        """Those that the filter lets through, sorted: by name where a table has no such
        column, and else the largest first."""
        wanted = self.filter.lower()
        found = [row for row in rows if wanted in row.totals.name.lower()]
        found.sort(key=lambda row: row.totals.name)
        column = next((each for each in columns if each.key == self.sort), None)
        if column is None:
            return found[::-1] if self.is_reversed and self.sort == "n" else found
        found.sort(key=column.rank, reverse=not self.is_reversed)
        return found
