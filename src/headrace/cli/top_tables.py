"""The two tables of `headrace top`: their columns, which key sorts by which, and how
narrow a terminal may be before a column is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace.cli.output import shown_bytes, shown_duration
from headrace.cli.top_look import GroupRow, TopicRow

Row = TopicRow | GroupRow
# What only queues have.
_OF_QUEUES = frozenset(("ready", "waiting", "leased", "retrying", "delayed", "dead_lettered"))


def number(value: float | None) -> str:
    """At most seven characters: 0.3, 1,234, 99,999, 123.5k, 1.2M, 34.0G."""
    if value is None:
        return "-"
    if value < 10 and value != int(value):
        return f"{value:.1f}"
    if value < 99_999.5:
        return f"{value:,.0f}"
    for unit, scale in (("k", 1e3), ("M", 1e6), ("G", 1e9)):
        if value < 999.95 * scale or unit == "G":
            return f"{value / scale:.1f}{unit}"
    raise AssertionError("the last unit takes everything")


def age(milliseconds: int | None) -> str:
    """The largest unit is enough in a table: 40ms, 2.5s, 12m, 3h, 4d."""
    return "-" if milliseconds is None else shown_duration(milliseconds).split()[0]


class Column(NamedTuple):
    heading: str
    cells: int
    # Of the row, or of the totals in it.
    field: str
    # Which key sorts by it.
    key: str
    # How wide the terminal has to be.
    from_cells: int = 0
    show: Callable[[int], str] | None = None

    def value(self, row: Row) -> float | str | None:
        found: float | str | None = (
            getattr(row, self.field)
            if self.field in row._fields
            else getattr(row.totals, self.field)
        )
        return found

    def rank(self, row: Row) -> tuple[float, str]:
        """What to sort by: nothing is less than zero."""
        value = self.value(row)
        if isinstance(value, str):
            return 0.0, value
        return -1.0 if value is None else float(value), ""

    def shown(self, row: Row) -> str:
        value = self.value(row)
        if isinstance(row, GroupRow) and row.totals.kind != "queue" and self.field in _OF_QUEUES:
            return "-"
        if isinstance(value, str):
            return value
        if self.show is not None and value is not None:
            return self.show(int(value))
        return number(value)


TOPIC_COLUMNS: Sequence[Column] = (
    Column("PARTS", 5, "partitions", "p", 70),
    Column("IN/S", 7, "rate_in", "i"),
    Column("OUT/S", 7, "rate_out", "o"),
    Column("SIZE", 9, "size_bytes", "s", 0, shown_bytes),
    Column("RECORDS", 8, "records", "r", 60),
    Column("LAG", 7, "lag", "l"),
    Column("DEAD", 6, "dead_letters", "d", 76),
)
GROUP_COLUMNS: Sequence[Column] = (
    Column("KIND", 6, "kind", "k", 60),
    Column("MEMBERS", 7, "members", "m", 78),
    Column("IN/S", 7, "rate_in", "i", 120),
    Column("OUT/S", 7, "rate_out", "o", 88),
    Column("LAG", 7, "lag", "l"),
    Column("OLDEST", 6, "behind_ms", "t", 0, age),
    Column("READY", 7, "ready", "r"),
    Column("LEASED", 6, "leased", "e"),
    Column("DELAYED", 7, "delayed", "y", 66),
    Column("RETRYING", 8, "retrying", "g", 104),
    Column("WAITING", 7, "waiting", "w", 130),
    Column("DEAD", 6, "dead_lettered", "d", 112),
)
SORTS = frozenset(column.key for column in (*TOPIC_COLUMNS, *GROUP_COLUMNS)) | {"n"}
