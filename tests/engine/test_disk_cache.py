"""The disk cache: what is damaged is a miss, and nothing that goes wrong on disk is an error."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright import writing
from tilewright.engine import disk_cache
from tilewright.engine.disk_cache import (
    HEADER_BYTES,
    DiskCache,
    content_key,
    decode,
    encode,
    open_disk_cache,
)

KEY = content_key(b"kernel")
META = {"entry": "kernel", "threads": 2, "names": ["a", "b"]}
MEBIBYTE = 2**20


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "cache", MEBIBYTE)


def file_of(cache: DiskCache, key: str) -> Path:
    return cache.folder / "v1" / key[:2] / key


def test_round_trip(cache: DiskCache) -> None:
    assert cache.get(KEY) is None
    cache.put(KEY, b"\0code\xff", META)
    entry = cache.get(KEY)
    assert entry is not None
    assert (entry.key, entry.payload, entry.meta) == (KEY, b"\0code\xff", META)
    cache.put(KEY, b"", {})
    replaced = cache.get(KEY)
    assert replaced is not None and replaced.payload == b"" and replaced.meta == {}
    again = DiskCache(cache.folder, MEBIBYTE).get(KEY)
    assert again is not None and again.payload == b""


def test_stats_and_clear(cache: DiskCache) -> None:
    cache.get(KEY)
    for number in range(5):
        cache.put(content_key(bytes([number])), bytes(100), {})
    cache.get(content_key(b"\1"))
    stats = cache.stats()
    assert stats.usable
    assert (stats.entries, stats.hits, stats.misses, stats.writes) == (5, 1, 1, 5)
    assert stats.size == 5 * (HEADER_BYTES + 100 + 2)
    assert cache.clear() == 5
    assert cache.stats().entries == 0
    assert cache.get(content_key(b"\1")) is None


def test_keys() -> None:
    assert content_key(b"ab", b"c") != content_key(b"a", b"bc")
    assert content_key(b"ab", b"c") == content_key(b"ab", b"c")


@pytest.mark.parametrize("key", ["", "../../../etc/passwd", "AB" * 32, "0" * 63, "0" * 64 + "\n"])
def test_what_is_no_key(cache: DiskCache, key: str) -> None:
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        cache.get(key)


@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_any_changed_byte_is_a_miss(flip: int) -> None:
    good = b"".join(encode(KEY, b"payload", META))
    assert decode(KEY, good) is not None
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= flip
        assert decode(KEY, bytes(bad)) is None, position


def test_any_other_length_is_a_miss() -> None:
    good = b"".join(encode(KEY, b"payload", META))
    for length in range(len(good)):
        assert decode(KEY, good[:length]) is None
    assert decode(KEY, good + b"\0") is None


def test_another_keys_entry_is_a_miss() -> None:
    assert decode(content_key(b"other"), b"".join(encode(KEY, b"payload", META))) is None


@pytest.mark.parametrize(
    "contents", [b"", b"junk", bytes(200), b"".join(encode("0" * 64, b"x", {}))]
)
def test_damaged_files_are_removed(cache: DiskCache, contents: bytes) -> None:
    cache.put(KEY, b"payload", META)
    file_of(cache, KEY).write_bytes(contents)
    assert cache.get(KEY) is None
    assert not file_of(cache, KEY).exists()
    assert cache.stats().damaged == 1
    cache.put(KEY, b"payload", META)
    assert cache.get(KEY) is not None


class KilledError(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("survives", [0, 1, HEADER_BYTES, HEADER_BYTES + 3])
def test_killed_while_writing(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch, survives: int
) -> None:
    cache.put(KEY, b"old", {})

    def write_some(path: Path, *parts: bytes) -> None:
        (path.parent / ".writing-killed").write_bytes(b"".join(parts)[:survives])
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(disk_cache, "write_whole", write_some)
        with pytest.raises(KilledError):
            cache.put(KEY, b"new", {})
    entry = cache.get(KEY)
    assert entry is not None and entry.payload == b"old"
    left_over = file_of(cache, KEY).parent / ".writing-killed"
    assert cache.stats().entries == 1
    assert left_over.exists()  # it might be in the making
    os.utime(left_over, (time.time() - 3600,) * 2)
    assert cache.stats().entries == 1
    assert not left_over.exists()


def test_killed_before_the_rename(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_replace(source: str, target: Path) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(writing.os, "replace", no_replace)
        with pytest.raises(KilledError):
            cache.put(KEY, b"new", {})
    assert cache.get(KEY) is None


def test_size_is_bounded_and_the_oldest_go(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 20_000)
    keys = [content_key(bytes([number])) for number in range(60)]
    for age, key in enumerate(keys):
        cache.put(key, bytes(1500), {})
        if file_of(cache, key).exists():
            os.utime(file_of(cache, key), (time.time() - 3600 + age,) * 2)
        cache.get(keys[0])  # in use: stays
    assert cache.stats().size <= 20_000
    assert cache.get(keys[0]) is not None
    assert cache.get(keys[-1]) is not None
    assert cache.get(keys[1]) is None
    cache.put(KEY, bytes(30_000), {})
    assert cache.get(KEY) is None, "an entry over the limit is not stored"


def test_a_write_seldom_looks_at_all_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    monkeypatch.setattr(DiskCache, "_evict", lambda self: looks.append(1))
    cache = DiskCache(tmp_path, 100 * MEBIBYTE)
    for number in range(200):
        cache.put(content_key(bytes([number])), bytes(1000), {})
    assert len(looks) < 10


def test_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    user = os.geteuid()
    if user == 0:  # root may write everywhere: be nobody for a while
        os.seteuid(65534)
    try:
        works_without(DiskCache(tmp_path / "cache", MEBIBYTE))
    finally:
        os.seteuid(user)
        tmp_path.chmod(0o700)


def test_folders_that_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    works_without(DiskCache(tmp_path / "file", MEBIBYTE))
    works_without(DiskCache(Path("/proc/none"), MEBIBYTE))
    works_without(DiskCache(tmp_path / ("x" * 300), MEBIBYTE))
    assert capsys.readouterr().err == ""


def test_a_folder_that_others_may_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "1")
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1").chmod(0o777)
    works_without(DiskCache(tmp_path, MEBIBYTE))
    assert "others may write" in capsys.readouterr().err


@pytest.mark.parametrize("which", ["root", "shard", "file"])
def test_what_belongs_to_others(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    cache.put(KEY, b"payload", META)
    path = file_of(cache, KEY)
    others = {"root": path.parent.parent, "shard": path.parent, "file": path}[which].stat().st_ino
    fstat = os.fstat

    def owned(handle: int) -> os.stat_result:
        result = fstat(handle)
        if result.st_ino != others:
            return result
        fields = list(result)
        fields[stat.ST_UID] = os.geteuid() + 12345
        return os.stat_result(fields)

    assert cache.get(KEY) is not None
    # Only root may give files away.
    monkeypatch.setattr(disk_cache.os, "fstat", owned)
    assert cache.get(KEY) is None
    monkeypatch.undo()
    assert cache.get(KEY) is not None


def _linked(path: Path, target: str) -> None:
    path.rename(path.with_name("other"))
    path.symlink_to(target)


def _moved(path: Path) -> None:
    """The entry lies in another folder, to which there is a link."""
    elsewhere = path.parent.with_name("elsewhere")
    path.parent.rename(elsewhere)
    path.parent.symlink_to(elsewhere)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DISTRUSTED: dict[str, Callable[[Path], object]] = {
    "a shard for all": lambda path: path.parent.chmod(0o777),
    "a shard for the group": lambda path: path.parent.chmod(0o770),
    "a shard elsewhere": _moved,
    "a file for all": lambda path: path.chmod(0o666),
    "a file for the group": lambda path: path.chmod(0o620),
    "a link": lambda path: _linked(path, "other"),
    "an endless device": lambda path: _linked(path, "/dev/zero"),
    "a pipe": _pipe,
    "a folder": _folder,
    "a huge file": lambda path: os.truncate(path, 2**40),
}


@pytest.mark.parametrize("how", DISTRUSTED)
def test_what_is_not_taken(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    """Neither read nor waited for; a file in an entry's place gives way to a new entry."""
    cache.put(KEY, b"payload", META)
    path = file_of(cache, KEY)
    DISTRUSTED[how](path)
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "1")
    assert cache.get(KEY) is None
    assert cache.stats().damaged == 0
    cache.put(KEY, b"again", META)
    entry = cache.get(KEY)
    if "shard" in how or how == "a folder":
        assert entry is None
    else:
        assert entry is not None and entry.payload == b"again"
    if how.startswith("a shard for"):
        assert "others may write" in capsys.readouterr().err


def test_links_are_not_followed_when_entries_go(cache: DiskCache) -> None:
    cache.put(KEY, b"payload", META)
    _moved(file_of(cache, KEY))
    (cache.folder / "v1" / "elsewhere").rename(cache.folder / "elsewhere")
    (cache.folder / "v1" / KEY[:2]).unlink()
    (cache.folder / "v1" / KEY[:2]).symlink_to(cache.folder / "elsewhere")
    assert cache.clear() == 0
    assert (cache.folder / "elsewhere" / KEY).exists()


def test_metadata_that_is_too_deep(cache: DiskCache) -> None:
    text = b"[" * 100_000
    start = b"".join(encode(KEY, b"", {}))[: -len(b"{}") - 32]
    start = disk_cache._SIZES.pack(disk_cache.MAGIC, 1, len(text), 0) + start[-32:]
    whole = start + hashlib.sha256(start + text).digest() + text
    assert decode(KEY, whole) is None


def works_without(cache: DiskCache) -> None:
    cache.put(KEY, b"payload", META)
    assert cache.get(KEY) is None
    assert not cache.stats().usable
    assert cache.clear() == 0


def test_a_write_that_fails(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(writing.tempfile, "mkstemp", full)
        cache.put(KEY, b"payload", META)
    assert cache.get(KEY) is None
    cache.put(KEY, b"payload", META)
    assert cache.get(KEY) is not None


def test_settings_decide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_CACHE_SIZE", "2M")
    monkeypatch.setenv("TILEWRIGHT_CACHE", "1")
    cache = open_disk_cache()
    assert (cache.folder, cache.limit) == (tmp_path, 2 * MEBIBYTE)
    cache.put(KEY, b"payload", META)
    assert cache.get(KEY) is not None
    monkeypatch.setenv("TILEWRIGHT_CACHE", "0")
    works_without(open_disk_cache())


def hammer(folder: Path, seed: int) -> int:
    """Puts, gets, evicts and clears; returns how many entries it found, none of them wrong."""
    cache = DiskCache(folder, 30_000)
    result = 0
    for step in range(150):
        number = (step * 7 + seed) % 20
        key = content_key(bytes([number]))
        payload = hashlib.sha256(bytes([number])).digest() * 60
        cache.put(key, payload, {"number": number})
        entry = cache.get(content_key(bytes([(number + step) % 20])))
        if entry is not None:
            result += 1
            right = hashlib.sha256(bytes([entry.meta["number"]])).digest() * 60
            assert entry.payload == right
        if step % 50 == 49:
            cache.clear()
    assert cache.stats().damaged == 0
    return result


def test_threads_at_once(tmp_path: Path) -> None:
    result: list[int] = []
    threads = [
        threading.Thread(target=lambda seed=seed: result.append(hammer(tmp_path, seed)))
        for seed in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(result) == 4 and sum(result) > 0


def test_processes_at_once(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as workers:
        result = workers.starmap(hammer, [(tmp_path, seed) for seed in range(4)])
    assert sum(result) > 0
