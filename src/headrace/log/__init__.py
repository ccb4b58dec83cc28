"""Ordered batches on a disk: segments, their indexes, and the log made of them."""

from headrace.log.aborted import AbortedTransaction
from headrace.log.checkpoint import make_folder
from headrace.log.compaction import CompactionResult
from headrace.log.log import Log
from headrace.log.segment import SegmentInfo
from headrace.log.settings import LogSettings
from headrace.log.sync import SyncTicket
from headrace.log.unreadable_log import UnreadableLog
from headrace.log.verify import Problem, Progress

__all__ = [
    "AbortedTransaction",
    "CompactionResult",
    "Log",
    "LogSettings",
    "Problem",
    "Progress",
    "SegmentInfo",
    "SyncTicket",
    "UnreadableLog",
    "make_folder",
]
