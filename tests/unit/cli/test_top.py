"""The picture of `headrace top`: what it says, how it fits, and what the keys do."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.cli.attention import remarks
from headrace.cli.terminal import keys_of
from headrace.cli.top_keys import HELP, View
from headrace.cli.top_look import Frame, History, Look
from headrace.cli.top_screen import STYLES, cells_of, draw, fit, plain, sparkline, styled
from headrace.cli.top_tables import GROUP_COLUMNS, SORTS, TOPIC_COLUMNS, number
from headrace.core.overview_values import (
    GroupTotals,
    NodeFigures,
    OpenTransaction,
    Overview,
    Spread,
    TopicTotals,
)

START_MS = 1_700_000_000_000
MB = 1024 * 1024


def topic(name: str, published: int = 0, **fields: Any) -> TopicTotals:
    made = TopicTotals(name, 3, published, published * 100, published, 0, 0, 0, 0, 0)
    return made._replace(**fields)


def group(name: str, lag: int = 0, **fields: Any) -> GroupTotals:
    made = GroupTotals(
        name, "queue", ("orders",), 1, lag, None, lag, 0, 0, 0, 0, 0, 1000, 1000 - lag, 0
    )
    return made._replace(**fields)


def figures(seconds: float, **fields: Any) -> NodeFigures:
    made = NodeFigures(
        "0.1.0", 0, "/data", START_MS - 60_000, START_MS + round(seconds * 1000), 10 + seconds / 4,
        100 * MB, 4000 * MB, 50_000 * MB, 100_000 * MB, 1.5, 64 * MB, 40, 1024, 2, {},
    )  # fmt: skip
    return made._replace(**fields)


def look(
    seconds: float,
    topics: tuple[TopicTotals, ...] = (),
    groups: tuple[GroupTotals, ...] = (),
    transactions: tuple[OpenTransaction, ...] = (),
    node: NodeFigures | None = None,
) -> Look:
    at_ms = START_MS + round(seconds * 1000)
    overview = Overview(at_ms, topics, groups, transactions, len(transactions))
    return Look(overview, figures(seconds) if node is None else node)


def frame_of(*looks: Look) -> Frame:
    history = History()
    return [history.add(each) for each in looks][-1]


def said(*looks: Look) -> list[str]:
    return [f"{each.level} {each.about}: {each.what} | {each.command}" for each in remarks(looks)]


def screen(
    frame: Frame, view: View | None = None, *, width: int = 80, height: int = 24
) -> list[str]:
    lines = draw(frame, [], view or View(), "node:9092", width=width, height=height)
    return [plain(line, width).rstrip() for line in lines]


# Looks.


def test_rates_are_what_changed_between_two_looks() -> None:
    first = look(0, (topic("orders", 1000),), (group("billing", 500),))
    second = look(
        2, (topic("orders", 3000, delivered=400),), (group("billing", 400, published=3000),)
    )
    frame = frame_of(first, second)
    [row], [reader] = frame.topics, frame.groups
    assert (row.rate_in, row.rate_out) == (1000, 200)
    assert (reader.rate_in, reader.rate_out) == (1000, 50)
    assert (frame.rate_in, frame.history_in) == (1000, (1000,))
    assert frame.cpu_share == pytest.approx(0.25)


def test_looks_that_are_far_apart_have_rates_too() -> None:
    report = group("report", kind="stream", delivered=0)
    frame = frame_of(
        look(0, (topic("orders", 1000),), (report,)),
        look(90, (topic("orders", 10_000),), (report._replace(delivered=450),)),
    )
    assert (frame.topics[0].rate_in, frame.groups[0].rate_out, frame.rate_in) == (100, 5, 100)


def test_one_look_has_no_rates_and_what_goes_back_is_no_traffic() -> None:
    assert frame_of(look(0, (topic("orders", 5),))).topics[0].rate_in is None
    again = frame_of(look(0, (topic("orders", 5),)), look(1, (topic("orders", 2), topic("new", 9))))
    assert [row.rate_in for row in again.topics] == [0, None]


def test_a_stream_that_commits_now_and_then_has_the_rate_at_which_it_reads() -> None:
    history = History()
    rates = []
    for second in range(60):
        # A hundred a second, committed every five seconds.
        stream = group("report", kind="stream", delivered=100 * (second - second % 5))
        frame = history.add(look(second, (), (stream,)))
        rates.append(frame.groups[0].rate_out)
    assert all(rate is not None and 80 <= rate <= 120 for rate in rates[31:])
    # One that stops is seen to have stopped.
    for second in range(60, 100):
        frame = history.add(look(second, (), (group("report", kind="stream", delivered=6000),)))
    assert frame.groups[0].rate_out == 0


def test_a_clock_that_is_set_back_makes_no_rates_up() -> None:
    stream = group("report", kind="stream", delivered=100)
    before = [look(second, (), (stream,)) for second in (100, 101)]
    after = look(50, (), (stream._replace(delivered=200),))
    assert frame_of(*before, after).groups[0].rate_out is None


def test_looks_of_the_last_minute_are_kept() -> None:
    history = History()
    for second in range(0, 200, 5):
        history.add(look(second))
    assert history.looks[-1].overview.at_ms - history.looks[0].overview.at_ms == 60_000
    assert len(history.looks) == 13


# Attention.


def spread(*counts: int) -> Spread:
    return Spread((0.1, 0.25, 1.0), counts)


def test_slow_syncs_and_a_loop_that_lags_are_said_as_in_the_dashboard() -> None:
    quick = look(0, node=figures(0, syncs=spread(90, 0, 50, 0), loop_lag=spread(9, 0, 0, 0)))
    slow = look(2, node=figures(2, syncs=spread(90, 0, 150, 0), loop_lag=spread(9, 0, 10, 0)))
    assert said(quick, slow) == [
        "warn node: the event loop comes 992 ms late: every client feels it | headrace doctor",
        "warn node: syncs take 992 ms: every publish waits for the disk | headrace doctor",
    ]
    # What was slow before the first look is over.
    assert said(slow, slow._replace(figures=figures(4, syncs=spread(190, 0, 150, 0)))) == []
    # A node that was started anew counts from nothing.
    anew = figures(4, syncs=spread(0, 0, 5, 0), started_at_ms=START_MS)
    assert said(slow, look(4, node=anew)) == []


def test_far_looks_say_what_took_long_between_them() -> None:
    looks = (look(at, node=figures(at, syncs=spread(0, 0, at, 0))) for at in (0, 90, 180))
    history = History()
    for each in looks:
        history.add(each)
    assert [each.what for each in remarks(history.looks)] == [
        "syncs take 992 ms: every publish waits for the disk"
    ]


def test_a_failed_sync_is_said_first() -> None:
    failed = figures(0, sync_failed="the disk refused to sync", open_files=1000)
    assert said(look(0, node=failed))[0] == ("bad node: the disk refused to sync | headrace doctor")


def test_nothing_is_said_of_a_node_that_is_well() -> None:
    well = [look(n, (topic("orders", n),), (group("billing", 10 - n),)) for n in range(10)]
    assert said(*well) == []
    assert remarks([]) == []


def test_dead_letters_that_grow_are_told_from_those_that_lie() -> None:
    lie = said(*(look(n, (topic("orders", dead_letters=3),)) for n in range(3)))
    assert lie == ["warn orders: 3 dead letters | headrace dlq list orders"]
    grow = said(*(look(n * 10, (topic("orders", dead_letters=3 + n),)) for n in range(3)))
    assert grow == ["warn orders: 5 dead letters, 2 more in 20s | headrace dlq list orders"]


def test_a_group_lags_when_its_next_message_has_waited_for_long() -> None:
    def waiting(seconds: float, *lags: int) -> list[str]:
        oldest_ms = START_MS - round(seconds * 1000)
        groups = [group("billing", lag, oldest_ms=oldest_ms) for lag in lags]
        return said(*(look(n * 3, (), (each,)) for n, each in enumerate(groups)))

    assert waiting(600, 300, 300) == [
        "warn billing: 300 messages behind, the next has waited for 10m 3s | "
        "headrace group describe billing"
    ]
    [grows] = waiting(600, 100, 200, 300)
    assert "waited for 10m 6s, 200 more in 6s |" in grows
    # Bursts come and go.
    assert waiting(100, 100, 200, 300) == []


def test_a_group_that_nobody_reads_is_named_but_not_for_what_is_delayed() -> None:
    [text] = said(look(0, (), (group("audit", 7, members=0, kind="stream"),)))
    assert text.startswith("warn audit: 7 messages behind and nobody reads")
    assert said(look(0, (), (group("later", 7, members=0, delayed=7),))) == []


def test_nothing_is_said_of_who_reads_where_nobody_knows() -> None:
    assert said(look(0, groups=(group("rollup", 5, kind="stream", members=None),))) == []


def test_what_to_type_is_quoted_for_a_shell() -> None:
    found = said(look(0, groups=(group("mail > out", 5, members=0),)))
    assert found[0].endswith("| headrace group describe 'mail > out'")


def test_dead_letters_and_our_notes_are_no_rows_of_the_table() -> None:
    topics = (topic("orders"), topic("orders.dlq", kind="letters"), topic("__c", kind="internal"))
    assert [row.totals.name for row in frame_of(look(0, topics)).topics] == ["orders"]


def test_what_is_bad_comes_first() -> None:
    found = said(
        look(
            0,
            (topic("orders", stopped=1, dead_letters=1),),
            transactions=(OpenTransaction("billing-1", START_MS - 90_000, 60_000),),
            node=figures(0, disk_free_bytes=10 * MB, open_files=1000),
        )
    )
    assert [text.split(":")[0] for text in found] == [
        "bad disk",
        "bad orders",
        "warn orders",
        "warn billing-1",
        "warn files",
    ]
    assert "publishing has stopped" in found[0] and "open for 1m 30s" in found[3]
    [low] = said(look(0, node=figures(0, disk_free_bytes=300 * MB)))
    assert low.startswith("warn disk: 300.0 MB free; publishing stops at 64.0 MB")
    fresh = OpenTransaction("billing-1", START_MS - 1_000, 60_000)
    assert said(look(0, transactions=(fresh,))) == []


# The picture.


def test_the_picture_fits_eighty_by_twenty_four() -> None:
    groups = (
        group("audit", 3_000, kind="stream", oldest_ms=START_MS - 90_000),
        group("billing", 123_456, leased=7, delayed=12),
    )
    topics = (topic("clicks", 10), topic("orders", 1_234_567, lag=123_456, dead_letters=3))
    earlier = (topic("clicks", 10), topic("orders", 1_232_099))
    frame = frame_of(look(0, earlier), look(2, topics, groups))
    lines = screen(frame)
    assert len(lines) == 24 and max(map(len, lines)) <= 80
    assert lines[:4] == [
        "headrace 0.1.0 at node:9092  up 1m 2s  cpu 25%  mem 100.0 MB",
        "in    1,234/s  █",
        "out       0/s  ▁",
        "2 topics  6 partitions  2 groups  117.7 MB stored  48.8 GB free",
    ]
    assert lines[5:11] == [
        "TOPIC                   PARTS   IN/S▾   OUT/S      SIZE  RECORDS     LAG   DEAD",
        "orders                      3   1,234       0  117.7 MB     1.2M  123.5k      3",
        "clicks                      3       0       0    1000 B       10       0      0",
        "",
        "GROUP                        KIND MEMBERS     LAG OLDEST   READY LEASED DELAYED",
        "audit                      stream       1   3,000     1m       -      -       -",
    ]
    assert lines[11].split() == ["billing", "queue", "1", "123.5k", "-", "123.5k", "7", "12"]
    assert lines[-1].startswith("q quit")


@pytest.mark.parametrize(("width", "height"), [(40, 10), (60, 14), (80, 24), (200, 60)])
def test_every_size_is_filled_and_never_exceeded(width: int, height: int) -> None:
    many = tuple(topic(f"topic-{n:03}-数据", n) for n in range(50))
    readers = tuple(group(f"group-{n:03}", n) for n in range(50))
    frame = frame_of(look(0, many, readers), look(1, many, readers))
    noted = remarks([look(0, (topic("orders", dead_letters=1),) * 9)])
    lines = draw(frame, noted, View(), "node", width=width, height=height)
    assert len(lines) == height
    assert {cells_of(plain(line, width)) for line in lines} == {width}
    text = "\n".join(plain(line) for line in lines)
    assert "TOPIC" in text and "! orders: 1 dead letter" in text
    if height >= 14:
        assert "GROUP" in text and " of 50)" in text
    if height >= 24:
        assert "and 7 remarks more" in text


def test_all_of_it_is_printed_where_there_is_no_screen() -> None:
    many = tuple(topic(f"topic-{n:03}", n) for n in range(50))
    lines = draw(frame_of(look(0, many)), [], View(), "node", width=120, height=None, is_live=False)
    assert sum("topic-0" in plain(line) for line in lines) == 50
    assert not any("quit" in plain(line) for line in lines)


def test_colours_are_codes_around_the_same_text() -> None:
    frame = frame_of(look(0, (topic("orders", 1),)))
    for line in draw(frame, [], View(), "node", width=80, height=24):
        text = styled(line, 80)
        for code in {*STYLES.values(), "\x1b[0m"} - {""}:
            text = text.replace(code, "")
        assert text == plain(line, 80)


def test_names_with_control_characters_cannot_draw() -> None:
    lines = screen(frame_of(look(0, (), (group("a\x1b[2Jb\n", 1),))))
    assert any(line.startswith("a\\x1b[2Jb\\n") for line in lines)


def test_what_is_too_wide_is_cut_by_cells() -> None:
    assert fit("数据数据", 5) == "数据…"
    assert cells_of(fit("数据数据", 6)) == 6
    assert fit("ab", 4, right=True) == "  ab"


def test_numbers_take_seven_characters_at_most() -> None:
    shown = [number(value) for value in (None, 0, 0.25, 9.96, 12_345, 99_999, 123_456, 2e6, 3.4e12)]
    assert shown == ["-", "0", "0.2", "10.0", "12,345", "99,999", "123.5k", "2.0M", "3400.0G"]
    assert max(len(number(10.0**power * 0.99995)) for power in range(12)) <= 7


def test_a_sparkline_is_as_high_as_its_highest() -> None:
    assert sparkline([0, 1, 2, 4, 8], 80) == "▁▁▂▄█"
    assert sparkline([8, 4, 2], 2) == "█▄"
    assert sparkline([0, 0], 80) == "▁▁"
    assert sparkline([1, 2], 0) == ""


# Keys.


def press(view: View, *keys: str) -> View:
    for key in keys:
        assert not view.on_key(key)
    return view


def names(lines: list[str], prefix: str) -> list[str]:
    return [line.split()[0] for line in lines if line.startswith(prefix)]


def test_a_filter_is_typed_kept_and_ended() -> None:
    frame = frame_of(look(0, (topic("t-orders"), topic("t-clicks")), (group("t-billing"),)))
    view = press(View(), "/", "O", "r", "x", "backspace")
    assert "filter: Or_" in screen(frame, view)[-1]
    assert names(screen(frame, press(view, "enter")), "t-") == ["t-orders"]
    press(view, "/", "q", "escape")
    assert view.filter == "Or"
    assert names(screen(frame, press(view, "escape")), "t-") == [
        "t-clicks",
        "t-orders",
        "t-billing",
    ]


def test_each_column_has_a_key_that_sorts_by_it() -> None:
    for columns in (TOPIC_COLUMNS, GROUP_COLUMNS):
        keys = [column.key for column in columns]
        assert len(set(keys)) == len(keys)
    explained = {key for line in HELP for key in line[:15].replace(",", " ").split()}
    assert explained >= SORTS


def test_tables_are_sorted_the_largest_first_or_the_other_way_round() -> None:
    frame = frame_of(look(0, (topic("t-a", 5), topic("t-b", 50), topic("t-c", 20))))
    view = View(sort="s")
    assert names(screen(frame, view), "t-") == ["t-b", "t-c", "t-a"]
    assert names(screen(frame, press(view, "!")), "t-") == ["t-a", "t-c", "t-b"]
    assert names(screen(frame, press(view, "n")), "t-") == ["t-c", "t-b", "t-a"]
    assert names(screen(frame, press(view, "!")), "t-") == ["t-a", "t-b", "t-c"]


def test_a_long_table_is_scrolled_to_its_end_and_no_further() -> None:
    frame = frame_of(look(0, tuple(topic(f"t-{n:02}") for n in range(40)), (group("billing"),)))
    view = View(sort="n")
    shown = names(screen(frame, view), "t-")
    assert shown[0] == "t-00" and len(shown) == 14
    assert names(screen(frame, press(view, "down", "down", "up")), "t-")[0] == "t-01"
    assert names(screen(frame, press(view, "end")), "t-")[-1] == "t-39"
    assert names(screen(frame, press(view, "page-up")), "t-")[0] == "t-16"
    press(view, "tab", "end")
    assert names(screen(frame, view), "t-")[0] == "t-16"
    assert names(screen(frame, press(view, "tab", "home")), "t-")[0] == "t-00"


def test_help_is_a_page_that_any_key_leaves() -> None:
    frame = frame_of(look(0))
    view = press(View(), "?")
    assert HELP[0] in screen(frame, view)
    assert all(len(line) <= 79 for line in HELP) and len(HELP) <= 18
    press(view, "q")
    assert HELP[0] not in screen(frame, view)
    assert view.on_key("q")


def test_a_node_that_does_not_answer_is_said_in_the_first_line() -> None:
    view = View()
    view.trouble = "nobody answers there"
    assert screen(frame_of(look(0)), view)[0] == "node:9092: nobody answers there"


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        ("q", ["q"]),
        ("ab", ["a", "b"]),
        ("\x1b[A\x1bOB\x1b[5~", ["up", "down", "page-up"]),
        ("\x1b", ["escape"]),
        ("\x1b\x1b[Z", ["escape", "back-tab"]),
        ("\x1b[1;5Cx", ["x"]),
        ("\t\r\x7f ", ["tab", "enter", "backspace", " "]),
        ("\x1b[", []),
    ],
)
def test_what_a_terminal_sends_becomes_keys(sent: str, keys: list[str]) -> None:
    assert keys_of(sent) == keys
