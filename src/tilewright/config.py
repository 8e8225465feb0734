"""Every setting, and its environment variable; no other module reads the environment.

| variable                   | meaning                                           | default         |
| -------------------------- | ------------------------------------------------- | --------------- |
| `TILEWRIGHT_DEBUG`         | 0 to 5: how much is printed while compiling       | 0               |
| `TILEWRIGHT_CACHE`         | 0 keeps compiled kernels in memory only           | 1               |
| `TILEWRIGHT_CACHE_DIR`     | where compiled kernels are stored                 | user's cache    |
| `TILEWRIGHT_CACHE_SIZE`    | bytes they may take there; K, M, G: 2^10, ...     | 512M            |
| `TILEWRIGHT_THREADS`       | threads that run one kernel, including the caller | process's cores |
| `TILEWRIGHT_SPIN_US`       | microseconds an idle worker spins before sleeping | 1000            |
| `TILEWRIGHT_OPENCL_DEVICE` | part of the name of the device that `spirv` means | the first       |
| `TILEWRIGHT_DB`            | the database that is asked for tuned configs      | none            |

A variable that is set to the empty string counts as not set. `OCL_ICD_VENDORS` is OpenCL's own: the
folder, or library, in which its loader looks for devices.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import platformdirs

from tilewright.errors import SettingError

MAX_THREADS = 256

_DATABASE = "TILEWRIGHT_DB"
_VARIABLES = (
    "TILEWRIGHT_DEBUG",
    "TILEWRIGHT_CACHE",
    "TILEWRIGHT_CACHE_DIR",
    "TILEWRIGHT_CACHE_SIZE",
    "TILEWRIGHT_THREADS",
    "TILEWRIGHT_SPIN_US",
    "TILEWRIGHT_OPENCL_DEVICE",
    _DATABASE,
)
_OPENCL_VENDORS = "OCL_ICD_VENDORS"
_SUFFIXES = {"K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the environment, checked. ``cache_size`` is in bytes."""

    debug: int
    cache_enabled: bool
    cache_dir: Path
    cache_size: int
    threads: int
    spin_us: int
    opencl_device: str
    database: Path | None


# Of one call, instead of the environment's: a path, or "" for none.
_database: ContextVar[str | None] = ContextVar("database", default=None)


def settings() -> Settings:
    """The settings as the environment has them now.

    Raises `SettingError` for a wrong value. Parsed values are cached.
    """
    *values, database = (os.environ.get(name, "") for name in _VARIABLES)
    chosen = _database.get()
    return _parse((*values, database if chosen is None else chosen), _process_cores())


def named_database() -> str:
    """What names the database now, as it is written: for keys, as `settings` takes longer."""
    chosen = _database.get()
    return os.environ.get(_DATABASE, "") if chosen is None else chosen


@lru_cache(maxsize=64)
def _parse(values: tuple[str, ...], cores: int) -> Settings:
    by_name = dict(zip(_VARIABLES, values, strict=True))
    return Settings(
        debug=_integer(by_name, "TILEWRIGHT_DEBUG", 0, 0, 5),
        cache_enabled=bool(_integer(by_name, "TILEWRIGHT_CACHE", 1, 0, 1)),
        cache_dir=_path(by_name, "TILEWRIGHT_CACHE_DIR")
        or Path(platformdirs.user_cache_dir("tilewright", appauthor=False)),
        cache_size=_size(by_name, "TILEWRIGHT_CACHE_SIZE", 512 * 2**20),
        threads=_integer(by_name, "TILEWRIGHT_THREADS", min(cores, MAX_THREADS), 1, MAX_THREADS),
        spin_us=_integer(by_name, "TILEWRIGHT_SPIN_US", 1000, 0, 10_000_000),
        opencl_device=by_name["TILEWRIGHT_OPENCL_DEVICE"].strip(),
        database=_path(by_name, _DATABASE),
    )


@contextmanager
def database_in(path: str | os.PathLike[str] | None) -> Iterator[None]:
    """Inside it, in this thread, the database that is asked for tuned configs is ``path``; "" for
    none, None for that of the environment."""
    before = _database.set(_database.get() if path is None else os.fspath(path))
    try:
        yield
    finally:
        _database.reset(before)


@contextmanager
def cache_in(folder: Path) -> Iterator[None]:
    """Inside it, the disk cache is in ``folder``, also that of processes that this one starts."""
    before = os.environ.get("TILEWRIGHT_CACHE_DIR")
    os.environ["TILEWRIGHT_CACHE_DIR"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["TILEWRIGHT_CACHE_DIR"]
        else:
            os.environ["TILEWRIGHT_CACHE_DIR"] = before


def environment_of(cache: Path) -> dict[str, str]:
    """The environment of a process whose disk cache is in ``cache``, and that asks no database."""
    ours = {"TILEWRIGHT_CACHE_DIR": str(cache), _DATABASE: ""}
    return {**os.environ, **ours}


@contextmanager
def opencl_vendors(folder: Path) -> Iterator[None]:
    """Inside it, OpenCL's loader, when it is first used, looks for devices in ``folder``; where
    the user has said where, it looks there."""
    if os.environ.get(_OPENCL_VENDORS):
        yield
        return
    os.environ[_OPENCL_VENDORS] = str(folder)
    try:
        yield
    finally:
        # Processes that this one starts look for themselves.
        del os.environ[_OPENCL_VENDORS]


def join_words_at_colons() -> str:
    """Joins words that bash split at colons for completion: ``x86:avx2`` comes as three. bash
    completes only the part after the last colon, so this part stays a word of its own; the function
    returns the part before it."""
    words = os.environ.get("COMP_WORDS", "").split("\n")
    place = os.environ.get("COMP_CWORD", "")
    if ":" not in words or not place.isdecimal() or int(place) >= len(words):
        return ""
    joined: list[str] = []
    for word in words[: int(place) + 1]:
        if joined and (word == ":" or joined[-1].endswith(":")):
            joined[-1] += word
        else:
            joined.append(word)
    front, colon, joined[-1] = joined[-1].rpartition(":")
    os.environ["COMP_WORDS"] = "\n".join(joined)
    os.environ["COMP_CWORD"] = str(len(joined) - 1)
    return front + colon


def _process_cores() -> int:
    # Fewer than os.cpu_count() under taskset and in containers with a CPU set. macOS lacks it.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _integer(by_name: dict[str, str], name: str, default: int, low: int, high: int) -> int:
    text = by_name[name].strip()
    if not text:
        return default
    # isdecimal alone would admit the digits of other scripts, int() underscores and signs.
    if not (text.isascii() and text.isdecimal()):
        raise _wrong(name, text, "it is not a whole number", f"set it to {low} .. {high}")
    # Longer texts are out of range; int() itself refuses those over 4300 digits.
    value = int(text) if len(text) <= 20 else high + 1
    if not low <= value <= high:
        raise _wrong(name, text, "it is out of range", f"set it to {low} .. {high}")
    return value


def _size(by_name: dict[str, str], name: str, default: int) -> int:
    text = by_name[name].strip()
    if not text:
        return default
    digits, factor = text, 1
    if text[-1].upper() in _SUFFIXES:
        digits, factor = text[:-1], _SUFFIXES[text[-1].upper()]
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 20:
        raise _wrong(
            name,
            text,
            "it is not a number of bytes",
            "write a whole number, with K, M or G after it if you like, such as 512M",
        )
    return int(digits) * factor


def _path(by_name: dict[str, str], name: str) -> Path | None:
    if not by_name[name]:
        return None
    # Whether it is usable shows on use: kernels compile without it.
    try:
        return Path(by_name[name]).expanduser()
    except RuntimeError as error:
        raise _wrong(name, by_name[name], "~ is no user's home", "write the whole path") from error


def _wrong(name: str, text: str, why: str, cure: str) -> SettingError:
    return SettingError(
        f"{name} has the wrong value {text!r}",
        where=f"environment variable {name}",
        why=why,
        cure=f"{cure}, or unset it",
    )
