"""What tools print, without what differs from run to run and from machine to machine.

Ids, ports, folders and times are replaced by a word for them. Of an error remains which
one it is: its text is written here in words of our own. Lines are sorted, since many tools
print what they hold in a table in any order; where order matters, offsets are printed too.
"""

from __future__ import annotations

import re

from tests.ecosystem.tools import Answer

# Tools whose numbers are a run's own: how fast it was, how long a log is.
MEASURING = ("-perf-test", "e2e-latency", "metadata-quorum")

_ERROR = re.compile(r".*?\b([A-Za-z]+Exception)\b.*")
# Stacks of errors; what a library says of how it logs; tools that print how they were ended.
_NOISE = re.compile(r"\s+at [\w.$/<>]+\(.*\)|\s+\.\.\. \d+ more|SLF4J: .*|Tools\$Ended|null")
_WORDS = (
    (re.compile(r"(TopicId: |Cluster ID: |ClusterId: +)\S+"), r"\1ID"),
    (re.compile(r'("(?:directoryId|topicId)": ?")[^"]+'), r"\1ID"),
    # A cell of its own: an id of 16 bytes.
    (re.compile(r"(^|\t)[\w-]{22}(\s)", re.MULTILINE), r"\1ID\2"),
    (re.compile(r"console-(share-)?consumer-\d+"), r"console-\1consumer-N"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UUID"),
    # A member of a streams group, and the process that it is in.
    (re.compile(r"(\s)[\w-]{22}(\s+(?:streams\s+\d+\s+)?UUID\s)"), r"\1ID\2"),
    (re.compile(r"\b1[789]\d{11}\b"), "TIME"),
    (re.compile(r"\d+ \w+ ago"), "TIME"),
    (re.compile(r"127\.0\.0\.1(:| +)\d+"), r"HOST\1PORT"),
    (re.compile(r"(TIME\s+)\d+\s*$", re.MULTILINE), r"\1N"),
    (re.compile(r"(Ongoing\s+\d+\s+TIME\s+)\d+"), r"\1N"),
    (re.compile(r'("size":)\d+'), r"\1N"),
    # A set, in any order.
    (re.compile(r"(Valid states are: ).*"), r"\1..."),
    (re.compile(r'("offsets":)\[[\d,]+\]'), r"\1[...]"),
    (re.compile(r"(Altered client metrics config for )[\w-]{22}\."), r"\1ID."),
    # Errors of tools that print their text alone.
    (re.compile(r"^(Error while executing [a-z]+ command :).*", re.MULTILINE), r"\1 ..."),
    (re.compile(r"^(\S+\s+Error: ).*", re.MULTILINE), r"\1..."),
    (re.compile(r"((?:Could|Can) not \w+ [\w.]+(?: to \d+)?\. ).*"), r"\1..."),
)
_NUMBER = re.compile(r"\d+(\.\d+)?([:-]\d+)*")


def plain(tool: str, answer: Answer, folders: dict[str, str]) -> list[str]:
    """The lines of an answer that two brokers can be compared by; `folders` are words for
    the places that this broker and its client have on disk."""
    text = f"{answer.output}\n{answer.errors}"
    for folder, word in folders.items():
        text = text.replace(folder, word)
    for pattern, word in _WORDS:
        text = pattern.sub(word, text)
    lines = [line for line in text.splitlines() if line.strip() and not _NOISE.fullmatch(line)]
    lines = [_ERROR.sub(r"\1", line) for line in lines]
    if tool.endswith(MEASURING):
        lines = [_NUMBER.sub("N", line) for line in lines]
    lines = sorted({" ".join(line.split()) for line in lines})
    return [*lines, f"[{answer.code}]"] if answer.code else lines
