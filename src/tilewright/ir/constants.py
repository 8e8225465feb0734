"""Constants: arrays that lie beside a kernel, identified by the hash of their contents."""

from __future__ import annotations

import hashlib
import re
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import ArgumentError
from tilewright.ir.buffer import Buffer
from tilewright.ir.stmt import Param

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def digest_of(array: Any) -> str:
    """The digest of an array's contents, in row-major order: ``sha256:`` and 64 digits."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return "sha256:" + hashlib.sha256(flat.view(np.uint8).data).hexdigest()


# Digests of read-only contents, by identity, as long as these live.
_digests: dict[int, tuple[weakref.ref[Any], str]] = {}


def digest_of_contents(contents: NDArray[Any]) -> str:
    """`digest_of` the result of `contents_of`, computed once."""
    if contents.flags.writeable or contents.base is not None:
        return digest_of(contents)
    key = id(contents)
    cached = _digests.get(key)
    if cached is None or cached[0]() is not contents:
        reference = weakref.ref(contents, lambda _: _digests.pop(key, None))
        cached = _digests[key] = reference, digest_of(contents)
    return cached[1]


def contents_of(buffer: Buffer, array: Any) -> NDArray[Any]:
    """``array`` as the read-only contents of ``buffer``: flat, all that its layout spans.

    `ArgumentError` for another type or length.
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype != buffer.dtype.numpy or len(flat) != buffer.layout.extent:
        raise ArgumentError(
            f"the constant {buffer.name} has {len(flat)} elements of {flat.dtype}",
            where=f"constant {buffer!r}",
            why=f"its memory holds {buffer.layout.extent} elements of {buffer.dtype}",
            cure="pass its contents in the order in which they lie in memory",
        )
    contents = flat.copy()
    contents.flags.writeable = False
    return contents


def constant_defect(param: Param, contents: NDArray[Any] | None) -> tuple[str, str] | None:
    """What is wrong with a constant, and the cure; None where nothing is. Contents may be missing:
    then the kernel can be read, but not run."""
    buffer, digest = param.buffer, param.digest
    if digest is None:
        return None
    if not _DIGEST.fullmatch(digest):
        return f"the digest {digest} of {buffer.name} is none", "write sha256: and 64 digits"
    if param.access != "in":
        return f"the constant {buffer.name} is written", "make it an argument"
    if buffer.symbols:
        return f"the sizes of the constant {buffer.name} are symbolic", "give it sizes as numbers"
    if contents is None:
        return None
    if contents.dtype != buffer.dtype.numpy or contents.shape != (buffer.layout.extent,):
        return (
            f"the constant {buffer.name} has {contents.size} elements of {contents.dtype}, its "
            f"memory holds {buffer.layout.extent} of {buffer.dtype}",
            "pass contents of that length and type",
        )
    if digest_of_contents(contents) != digest:
        return (
            f"the contents of the constant {buffer.name} are not those of its digest: "
            f"{digest_of_contents(contents)}",
            "pass the contents that it was made with, or write the digest of these",
        )
    return None


def missing_constant(param: Param) -> ArgumentError:
    """The error for a constant whose contents are not there when the kernel runs."""
    return ArgumentError(
        f"the contents of the constant {param.name} are missing",
        where=f"constant {param.buffer!r} = {param.digest}",
        why="the text of a kernel has only their digest",
        cure="pass them: parse_kernel(text, constants={digest: array}); on the command line, "
        "--contents FILE.npy",
    )
