"""Counts, sizes and times in words, as every part of Headrace writes them."""

from __future__ import annotations


def counted(count: float, word: str) -> str:
    """1 message, 2 messages, 1,000 batches. Words whose plural follows no rule are not
    known here."""
    number = f"{count:,g}" if isinstance(count, float) else f"{count:,}"
    return f"{number} {word if count == 1 else _plural(word)}"


def _plural(word: str) -> str:
    if word.endswith(("s", "x", "ch", "sh")):
        return f"{word}es"
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}s"


def shown_bytes(size: int) -> str:
    scaled = float(size)
    for unit in ("B", "KB", "MB", "GB"):
        if scaled < 1024:
            return f"{size} B" if unit == "B" else f"{scaled:.1f} {unit}"
        scaled /= 1024
    return f"{scaled:.1f} TB"


def shown_duration(milliseconds: int) -> str:
    """The two largest units, which is as much as anybody reads: 1h 5m, 2.5s, 40ms."""
    if milliseconds < 1000:
        return f"{max(0, milliseconds)}ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.3g}s"
    seconds = milliseconds // 1000
    units = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
    parts: list[str] = []
    for name, length in units:
        amount, seconds = divmod(seconds, length)
        if amount or parts:
            parts.append(f"{amount}{name}")
    return " ".join(part for part in parts[:2] if not part.startswith("0"))
