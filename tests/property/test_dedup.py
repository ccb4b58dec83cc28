"""The dedup window against a plain dictionary that never frees anything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.dedup import DedupWindow

WINDOW_MS = 100

ids = st.sampled_from([b"", b"a", b"b", b"c", b"0123456789abcdef", b"long" * 10, b"long" * 11])
steps = st.one_of(
    st.tuples(st.just("publish"), ids, st.integers(0, 60)),
    st.tuples(st.just("find"), ids, st.integers(0, 60)),
    st.tuples(st.just("expire"), ids, st.integers(0, 250)),
    st.tuples(st.just("truncate"), ids, st.integers(0, 6)),
)


@given(st.lists(steps, max_size=80))
def test_the_window_finds_what_a_dictionary_would(history: list[tuple[str, bytes, int]]) -> None:
    window = DedupWindow(WINDOW_MS, 1_000)
    twin: dict[bytes, tuple[int, int]] = {}
    now_ms, end_offset = 1_000, 0

    def expected(name: bytes) -> int | None:
        offset, timestamp_ms = twin.get(name, (0, -WINDOW_MS))
        return offset if now_ms - timestamp_ms < WINDOW_MS else None

    for step, name, amount in history:
        if step == "truncate":
            end_offset = max(0, end_offset - amount)
            window.truncate_to(end_offset)
            twin = {key: entry for key, entry in twin.items() if entry[0] < end_offset}
        else:
            now_ms += amount
        if step == "expire":
            window.expire(now_ms)
            live = [key for key in twin if expected(key) is not None]
            assert len(window) == len(live)
        found = window.find(name, now_ms)
        assert found == expected(name)
        if step == "publish" and found is None:
            window.remember(name, end_offset, now_ms)
            twin[name] = (end_offset, now_ms)
            end_offset += 1
    assert window.evicted == 0


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(-20, 20)), max_size=80),
    st.integers(1, 10),
)
def test_memory_is_bounded_and_what_is_found_is_true_though_times_run_backwards(
    published: list[tuple[int, int]], ids_max: int
) -> None:
    window = DedupWindow(WINDOW_MS, ids_max)
    places: dict[bytes, dict[int, int]] = {}
    for offset, (number, drift_ms) in enumerate(published):
        name, timestamp_ms = b"%d" % number, 10 * offset + drift_ms
        window.remember(name, offset, timestamp_ms)
        places.setdefault(name, {})[offset] = timestamp_ms
        assert len(window) <= ids_max
        found = window.find(name, timestamp_ms)
        assert found is not None
        assert timestamp_ms - places[name][found] < WINDOW_MS
