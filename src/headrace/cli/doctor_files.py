"""What `headrace doctor` asks of a directory's files. Nothing in it is changed.

Files are read by name, one after the other, without opening the directory as a node:
what is broken here may keep it from being opened at all.

The speed of syncs is measured on a file without a name, on the same disk: it is in no
folder, and gone when it is closed. Where the system has no such files it is not measured.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from headrace.cli.findings import Finding, Outcome, shortened
from headrace.cli.output import shown_bytes
from headrace.core.errors import HeadraceError
from headrace.core.node_settings import NodeSettings, sourced_settings
from headrace.core.wording import counted
from headrace.engine.catalog import Catalog
from headrace.inspect import (
    STATE_FOLDER,
    Checked,
    Damage,
    log_folders,
    missing_partitions,
    read_catalog,
    verify_format,
    verify_log,
)
from headrace.log.checkpoint import TEMPORARY_SUFFIX
from headrace.log.recovery import CLEANED_SUFFIX, SWAP_SUFFIX
from headrace.platform.holder import LOCK_FILE, Holder, find_holder

# A disk that takes longer for one sync is felt by everybody who publishes.
SYNC_MS_MAX = 50.0
SYNCS = 10
SYNC_BYTES = 4096
FREE_SHARE = 0.05
FLOOR_TIMES = 8
# Of any kind: what a crash can leave.
LEFTOVERS = (TEMPORARY_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)


class Entry(NamedTuple):
    """A file or folder of the directory, by its path in it."""

    path: str
    mode: int
    uid: int


def entries_of(root: str) -> Iterator[Entry]:
    """All of them, the directory itself first."""
    yield from _entry(root, root)
    for folder, folders, names in os.walk(root):
        for name in [*sorted(folders), *sorted(names)]:
            yield from _entry(root, os.path.join(folder, name))


def _entry(root: str, full: str) -> Iterator[Entry]:
    try:
        found = os.lstat(full)
    except FileNotFoundError:
        # Somebody works here.
        return
    yield Entry(os.path.relpath(full, root), found.st_mode, found.st_uid)


def catalog_of(root: str, now_ms: int) -> Catalog | None:
    try:
        return read_catalog(root, now_ms)
    except (HeadraceError, OSError, LookupError):
        return None


# Checks.


def check_format(root: str) -> Outcome:
    damage = verify_format(root)
    if damage is None:
        return "this version can read it", []
    return "", [
        Finding(
            "bad",
            damage.file,
            damage.reason,
            "no process opens a directory that it cannot be sure about",
            f"put {damage.file} back from a copy, or use the version that wrote it",
        )
    ]


def check_lock(root: str) -> Outcome:
    path = os.path.join(root, LOCK_FILE)
    holder = find_holder(root)
    if os.path.lexists(path) and not os.path.isfile(path):
        return "", [
            Finding(
                "bad",
                LOCK_FILE,
                "is no file",
                "nobody can open the directory for writing",
                f"see what it is and move it away: ls -ld {path}",
            )
        ]
    if holder is None:
        return "nobody has it open for writing", []
    if not holder.is_here:
        return "", [
            Finding(
                "warn",
                LOCK_FILE,
                f"was taken by pid {holder.pid} on {holder.host}, another machine",
                "locks of files do not hold on every shared disk: two writers would destroy it",
                f"make sure that it does not run on {holder.host} before you open it here",
            )
        ]
    return f"open for writing by pid {holder.pid}: {holder.command}", []


def check_binding(holder: Holder | None) -> Outcome:
    if holder is None or not holder.is_here or "--insecure" not in holder.command.split():
        return "no node was started with --insecure on it", []
    return "", [
        Finding(
            "warn",
            f"pid {holder.pid}",
            "serves this directory with --insecure",
            "whoever reaches its ports reads, writes and deletes everything, without a password",
            "leave --insecure away, or let a firewall admit only machines that you trust",
        )
    ]


def check_permissions(entries: list[Entry]) -> Outcome:
    owner = entries[0].uid if entries else os.getuid()
    return f"{counted(len(entries), 'file')} and folders, all of one owner", [
        *_unusable(entries),
        *_of_others(entries, owner),
        *_open_to_all(entries),
    ]


def _unusable(entries: list[Entry]) -> Iterator[Finding]:
    found = [
        each.path
        for each in entries
        if (not stat.S_ISLNK(each.mode) and each.mode & 0o600 != 0o600)
        or (stat.S_ISDIR(each.mode) and each.mode & 0o700 != 0o700)
    ]
    if found:
        yield Finding(
            "bad",
            _listed(found),
            "its owner may not read or write it",
            "the process that opens the directory fails when it comes there",
            "chmod -R u+rwX on the directory, as its owner",
        )


def _of_others(entries: list[Entry], owner: int) -> Iterator[Finding]:
    found = [each.path for each in entries if each.uid != owner]
    if found:
        yield Finding(
            "warn",
            _listed(found),
            f"belongs to another user than the directory (user {owner})",
            "a command that was run as another user, such as root, made it, and the node may not "
            "be able to write there",
            f"chown -R {owner} on the directory, while nobody has it open",
        )


def _open_to_all(entries: list[Entry]) -> Iterator[Finding]:
    found = [each.path for each in entries if each.mode & 0o002 and not stat.S_ISLNK(each.mode)]
    if found:
        yield Finding(
            "warn",
            _listed(found),
            "may be written by every user of this machine",
            "messages can be changed or deleted behind the node's back",
            "chmod -R o-w on the directory",
        )


def check_leftovers(
    entries: list[Entry], catalog: Catalog | None, holder: Holder | None
) -> Outcome:
    """What nobody will use again. While somebody works here, such files come and go."""
    found: list[Finding] = []
    left = [each.path for each in entries if each.path.endswith(LEFTOVERS)]
    if left and holder is None:
        found.append(
            Finding(
                "warn",
                _listed(left),
                "was left by a process that ended in the middle of writing it",
                "it only takes space: what it was to replace is whole",
                "open the directory for writing once: headrace topic alter, or headrace serve",
            )
        )
    if catalog is not None:
        known = {topic.folder for topic in catalog.topics.values()}
        orphans = [
            each.path
            for each in entries
            if each.path.count("/") == 1 and each.path.startswith("topics/")
            and stat.S_ISDIR(each.mode) and each.path not in known
        ]  # fmt: skip
        if orphans and holder is None:
            found.append(
                Finding(
                    "warn",
                    _listed(orphans),
                    "is the folder of no topic",
                    "a deletion, or the making of a topic, was cut short: it only takes space",
                    "open the directory for writing once: what was deleted is removed then",
                )
            )
    return "no file is left over", found


def check_catalog(root: str, catalog: Catalog | None) -> Outcome:
    if catalog is None:
        return "", [
            Finding(
                "bad",
                "metadata",
                "the catalog of topics and groups cannot be read",
                "nothing else in the directory has a name without it",
                "put metadata/ back from a copy; headrace log verify says where it is damaged",
            )
        ]
    found = [
        Finding(
            "bad",
            damage.file,
            damage.reason,
            "its messages are lost, and the directory cannot be opened",
            "put the folder back from a copy",
        )
        for damage in missing_partitions(root, catalog)
    ]
    partitions = sum(topic.partitions for topic in catalog.topics.values())
    return f"{counted(len(catalog.topics), 'topic')}, {counted(partitions, 'partition')}", found


def check_segments(
    root: str, catalog: Catalog | None, now_ms: int, *, full: bool, advance: Callable[[int], None]
) -> Outcome:
    """Every byte; or of a large log, in each segment, some batches and what the index
    says of them."""
    folders = log_folders(root)
    size = batches = 0
    found: list[Finding] = []
    for folder in folders:
        for result in verify_log(root, folder, now_ms, quick=not full):
            if isinstance(result, Checked):
                size += result.size_bytes
                batches += result.batches
                advance(result.size_bytes)
            else:
                found.append(_damaged(result, catalog))
    how = "every batch" if full else "some batches of large ones; --full reads them all"
    read = f"{counted(len(folders), 'log')}, {shown_bytes(size)} read: {how}"
    return read, shortened(found)


def _damaged(damage: Damage, catalog: Catalog | None) -> Finding:
    where = damage.file if damage.position is None else f"{damage.file} at byte {damage.position}"
    owner = topic_of(damage.file, catalog)
    command = f"headrace log verify {owner}".rstrip()
    if damage.is_data and f"/{STATE_FOLDER}/" in f"{damage.file}/":
        return Finding(
            "bad",
            where,
            damage.reason,
            "what queues did with the messages cannot be read: they are leased to nobody, while "
            "they can be published and streamed",
            "stop the node, then see what can be saved: headrace repair",
        )
    if damage.is_data:
        return Finding(
            "bad",
            where,
            damage.reason,
            "what was written there is lost, and its partition stops when it is met",
            f"{command} lists all of it; put the file back from a copy, and look at the disk",
        )
    return Finding(
        "warn",
        where,
        damage.reason,
        "nothing is lost, it is made again when it is met; but something has written there, or "
        "the disk forgets",
        f"{command} lists all of it; look at the disk",
    )


def topic_of(file: str, catalog: Catalog | None) -> str:
    """The name of the topic that a file belongs to, or nothing."""
    folder = "/".join(file.split("/")[:2])
    for topic in catalog.topics.values() if catalog is not None else ():
        if topic.folder == folder:
            return topic.name
    return ""


def check_space(free: int, total: int, floor: int, path: str) -> Outcome:
    said = f"{shown_bytes(free)} of {shown_bytes(total)} free"
    if free <= floor:
        level, what = "bad", f"{said}: publishing has stopped at {shown_bytes(floor)}"
    elif free < FLOOR_TIMES * floor or free < FREE_SHARE * total:
        level, what = "warn", f"{said}, and publishing stops at {shown_bytes(floor)}"
    else:
        return said, []
    return "", [
        Finding(
            "bad" if level == "bad" else "warn",
            path,
            what,
            "on a full disk nothing is published; acks go on for a while",
            "make room, or keep less: headrace topic alter NAME --set retention_bytes=1GB",
        )
    ]


def check_writable(root: str) -> Outcome:
    """Asked of the system, as a file that is made to see it would be a change."""
    if sys.platform != "win32" and os.statvfs(root).f_flag & os.ST_RDONLY:
        return "", [
            Finding(
                "bad",
                root,
                "is on a disk that is read-only now",
                "nothing can be published, leased or acked; systems do this to a disk that fails",
                "look at the system's log (dmesg), then mount -o remount,rw on its disk",
            )
        ]
    if not os.access(root, os.W_OK | os.X_OK):
        return "", [
            Finding(
                "warn",
                root,
                "may not be written to by the user who asks",
                "commands of this user that change something fail, and so does a node",
                "run them as the owner, or give the directory to this user: chown -R USER DIR",
            )
        ]
    return "the disk and its permissions let this user write", []


def check_sync_speed(root: str) -> Outcome:
    times = _sync_times_ms(root)
    if not times:
        return "not measured: there is no room, or this disk has no files without a name", []
    median = sorted(times)[len(times) // 2]
    return f"{median:.1f} ms a sync, {max(times):.1f} ms at most", slow_syncs(median, root)


def slow_syncs(milliseconds: float, path: str) -> list[Finding]:
    if milliseconds <= SYNC_MS_MAX:
        return []
    return [
        Finding(
            "warn",
            path,
            f"one sync takes {milliseconds:.0f} ms",
            "each publish and each ack waits for a sync, unless the topic says otherwise",
            "use a disk that is faster or less busy, or: headrace topic alter NAME --set "
            "durability=interval",
        )
    ]


def _sync_times_ms(root: str) -> list[float]:
    unnamed = getattr(os, "O_TMPFILE", 0)
    if not unnamed:
        return []
    try:
        descriptor = os.open(root, unnamed | os.O_RDWR, 0o600)
    except OSError:
        return []
    try:
        times = []
        for number in range(SYNCS):
            began = time.perf_counter()
            os.pwrite(descriptor, bytes(SYNC_BYTES), number * SYNC_BYTES)
            os.fdatasync(descriptor)
            times.append((time.perf_counter() - began) * 1000)
        return times
    except OSError:
        # A full disk is another check's finding.
        return []
    finally:
        os.close(descriptor)


def floor_bytes() -> int:
    """Where a node with the settings that are found here would stop publishing."""
    try:
        return sourced_settings({}, os.environ, {}).settings.free_bytes_min
    except HeadraceError:
        # Settings that make no sense are said by whoever starts a node with them.
        return NodeSettings().free_bytes_min


# Words.


def _listed(paths: list[str]) -> str:
    if len(paths) == 1:
        return paths[0]
    return f"{paths[0]} and {len(paths) - 1:,} more"
