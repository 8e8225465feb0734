"""A content-addressed store of byte strings on disk: compiled kernels by the hash of their input.

An entry is one file, ``<folder>/v1/<first two digits>/<key>``: a header, metadata as JSON, the
payload. The header has a SHA-256 over everything else, so an entry that is truncated, damaged, of
another version or another key's is recognized; it is removed and counts as a miss. Entries are
written to a temporary name and renamed: another process, or a kill at any moment, never leaves half
an entry under its key. Every failure of the file system means a miss, never an exception.

Entries are code that runs in this process: no other user may be able to plant them. So an entry and
its folder are opened without following links, and taken only if they are this user's (or root's),
and others may not write to them. What is no regular file, or is larger than an entry can be, is not
read at all: a pipe or a link to a device in an entry's place is a miss as well.

The bound on the size holds on average. To look at all entries on each write would be slow, and a
running total would have to be shared by processes. Instead a write looks with a probability in
proportion to its size, on average once while 1/16 of the limit is written, and then removes the
entries that were not used for the longest time until 7/8 is left.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import stat
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.config import settings
from tilewright.writing import UNFINISHED, write_whole

FORMAT_VERSION = 1
MAGIC = b"TWCACHE\n"

# Magic, format version, bytes of metadata, bytes of payload; then key and checksum, 32 bytes each.
_SIZES = struct.Struct("<8sIIQ")
HEADER_BYTES = _SIZES.size + 64

_KEY = re.compile(r"[0-9a-f]{64}")
_UNFINISHED_SECONDS = 600  # older ones were left by a process that was killed
_TOUCH_SECONDS = 60  # "used" is not noted more often than this
_SCANS_PER_LIMIT = 16
_MOST_BYTES = 2**28  # of an entry
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Opening a pipe would wait for its writer, but for O_NONBLOCK.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def content_key(*parts: bytes) -> str:
    """The key for what ``parts`` determine; ("ab", "c") and ("a", "bc") have different ones."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Entry:
    """What was put under ``key``. ``meta`` is what JSON makes of the metadata."""

    key: str
    payload: bytes
    meta: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CacheStats:
    """``entries`` and ``size`` (bytes) are of the folder; the others of this `DiskCache`."""

    folder: Path
    usable: bool
    entries: int
    size: int
    limit: int
    hits: int
    misses: int
    damaged: int
    writes: int


class DiskCache:
    """The store in ``folder``, for at most about ``limit`` bytes.

    Safe from several threads and processes. ``enabled=False`` gives one that is always empty.
    """

    def __init__(self, folder: Path, limit: int, enabled: bool = True) -> None:
        self.folder = folder
        self.limit = limit
        self._root = folder / f"v{FORMAT_VERSION}"
        self._usable = enabled and self._prepare()
        self._hits = self._misses = self._damaged = self._writes = 0

    def get(self, key: str) -> Entry | None:
        """The entry for ``key``, or None. Marks it as used."""
        if not self._usable:
            return None
        path = self._path(key)
        entry = None
        try:
            with self._opened(path.parent) as shard:
                head, payload, age = _contents(path, shard, min(self.limit, _MOST_BYTES))
                entry = decode(key, head, payload)
                if entry is None:
                    self._damaged += 1
                    _debug(f"removed a damaged entry, {path}")
                    os.unlink(key, dir_fd=shard)
                elif age > _TOUCH_SECONDS:
                    os.utime(key, dir_fd=shard, follow_symlinks=False)
        except _DistrustError as error:
            _debug(str(error))
        except OSError:
            pass  # there is none, or it cannot be read, marked or removed
        if entry is None:
            self._misses += 1
        else:
            self._hits += 1
        return entry

    def put(self, key: str, payload: bytes, meta: dict[str, Any]) -> None:
        """Store ``payload`` and ``meta`` (JSON values) under ``key``, in place of what is there."""
        if not self._usable:
            return
        path = self._path(key)
        parts = encode(key, payload, meta)
        size = sum(map(len, parts))
        if size > min(self.limit, _MOST_BYTES):
            return
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._opened(path.parent):
                # What a power failure leaves does not pass the checksum.
                write_whole(path, *parts)
        except (OSError, _DistrustError) as error:
            # A full disk, say. The next entry may fit.
            _debug(f"cannot write {path}: {error}")
            return
        self._writes += 1
        if random.random() * self.limit < size * _SCANS_PER_LIMIT:
            self._evict()

    def stats(self) -> CacheStats:
        """Counts; looks at every entry."""
        entries = self._entries() if self._usable else []
        return CacheStats(
            folder=self.folder,
            usable=self._usable,
            entries=len(entries),
            size=sum(size for _, size, _ in entries),
            limit=self.limit,
            hits=self._hits,
            misses=self._misses,
            damaged=self._damaged,
            writes=self._writes,
        )

    def clear(self) -> int:
        """Remove every entry; returns how many there were."""
        entries = self._entries() if self._usable else []
        for _, _, path in entries:
            with suppress(OSError):
                os.unlink(path)
        return len(entries)

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError(f"a key is 64 hexadecimal digits, not {key!r}")
        return self._root / key[:2] / key

    def _prepare(self) -> bool:
        """Make the folder; whether it may be used."""
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_owner(self._root.stat(), self._root)
        except (OSError, _DistrustError) as error:
            _debug(f"no disk cache: {error}")
            return False
        return True

    @contextmanager
    def _opened(self, shard: Path) -> Iterator[int]:
        """A handle of a folder of entries. Raises `_DistrustError` where others may write to it."""
        root = os.open(self._root, _FOLDER)
        try:
            _check_owner(os.fstat(root), self._root)
            handle = os.open(shard.name, _FOLDER | os.O_NOFOLLOW, dir_fd=root)
        finally:
            os.close(root)
        try:
            _check_owner(os.fstat(handle), shard)
            yield handle
        finally:
            os.close(handle)

    def _evict(self) -> None:
        entries = self._entries()
        total = sum(size for _, size, _ in entries)
        if total <= self.limit:
            return
        entries.sort()
        for _, size, path in entries:
            if total <= self.limit * 7 // 8:
                break
            # Gone already means that another process evicts as well.
            with suppress(OSError):
                os.unlink(path)
            total -= size

    def _entries(self) -> list[tuple[float, int, str]]:
        """Last use, bytes and path of each entry. Removes temporary files that were left over."""
        files = []
        for shard in _listing(self._root):
            for item in _listing(shard.path) if shard.is_dir(follow_symlinks=False) else ():
                try:
                    status = item.stat(follow_symlinks=False)
                    age = time.time() - status.st_mtime
                    if _KEY.fullmatch(item.name):
                        files.append((status.st_mtime, status.st_size, item.path))
                    elif item.name.startswith(UNFINISHED) and age > _UNFINISHED_SECONDS:
                        os.unlink(item.path)
                except OSError:
                    continue  # another process was faster
        return files


def open_disk_cache() -> DiskCache:
    """The disk cache that the settings ask for."""
    current = settings()
    return DiskCache(current.cache_dir, current.cache_size, current.cache_enabled)


def encode(key: str, payload: bytes, meta: dict[str, Any]) -> tuple[bytes, bytes]:
    """The file for an entry: what is in front of ``payload``, and that."""
    text = json.dumps(meta, separators=(",", ":")).encode()
    start = _SIZES.pack(MAGIC, FORMAT_VERSION, len(text), len(payload)) + bytes.fromhex(key)
    return b"".join((start, _checksum(start, text, payload), text)), payload


def decode(key: str, head: bytes, payload: bytes | None = None) -> Entry | None:
    """The entry for ``key`` in a file's contents, of which ``payload`` may have been read apart;
    None if it is anything else."""
    if len(head) < HEADER_BYTES:
        return None
    magic, version, meta_bytes, payload_bytes = _SIZES.unpack_from(head)
    if payload is None:
        head, payload = head[: HEADER_BYTES + meta_bytes], head[HEADER_BYTES + meta_bytes :]
    start = head[: HEADER_BYTES - 32]
    checksum, text = head[HEADER_BYTES - 32 : HEADER_BYTES], head[HEADER_BYTES:]
    if (
        magic != MAGIC
        or version != FORMAT_VERSION
        or len(text) != meta_bytes
        or len(payload) != payload_bytes
        or start[_SIZES.size :] != bytes.fromhex(key)
        or _checksum(start, text, payload) != checksum
    ):
        return None
    try:
        meta = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return Entry(key, payload, meta) if isinstance(meta, dict) else None


def _checksum(*parts: bytes) -> bytes:
    """Of parts one after the other: of the constants of a network, each copy takes its time."""
    checksum = hashlib.sha256()
    for part in parts:
        checksum.update(part)
    return checksum.digest()


class _DistrustError(Exception):
    """What lies there may be another user's."""


def _check_owner(status: os.stat_result, path: Path) -> None:
    if status.st_uid not in (os.geteuid(), 0) or stat.S_IMODE(status.st_mode) & 0o022:
        raise _DistrustError(f"others may write to {path}")


def _contents(path: Path, folder: int, limit: int) -> tuple[bytes, bytes, float]:
    """What is in the file ``path``, whose folder is open: up to the payload, which its header says,
    and the rest; and seconds since it was marked as used.

    Raises `_DistrustError` for what is no entry's file: it is not read.
    """
    with open(os.open(path.name, _FILE, dir_fd=folder), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise _DistrustError(f"{path} is no regular file")
        if status.st_size > limit:
            raise _DistrustError(f"{path} is larger than an entry can be")
        _check_owner(status, path)
        head = file.read(HEADER_BYTES)
        if len(head) == HEADER_BYTES:
            head += file.read(min(_SIZES.unpack_from(head)[2], status.st_size))
        return head, file.read(status.st_size), time.time() - status.st_mtime


def _listing(folder: Path | str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as items:
            return list(items)
    except OSError:
        return []


def _debug(message: str) -> None:
    if settings().debug >= 1:
        print(f"tilewright: disk cache: {message}", file=sys.stderr)
