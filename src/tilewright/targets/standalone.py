"""Programs of several kernels for callers without Python: what a target writes files of."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.dtypes import DType
from tilewright.targets.linking import Plan
from tilewright.targets.program import Abi

# The first bytes of a file of constants: this word, then the digest of what follows them.
MAGIC = b"TILEWRIGHTCONST1"
HEAD = 64


@dataclass(frozen=True)
class StandaloneArgument:
    """An array that a caller passes: ``access`` is ``"in"``, ``"out"`` or ``"inout"``, strides are
    in elements, ``bytes`` go from the first element to the end of the last."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    access: str
    bytes: int

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class StandaloneFunction:
    """One entry point. In its plan, programs are numbers of `Standalone.kernels`, and the place of
    a constant is its offset in the file of constants."""

    name: str
    title: str
    arguments: tuple[StandaloneArgument, ...]
    plan: Plan


@dataclass(frozen=True)
class ConstantsFile:
    """The file of constants: its name, the digest in its head, and its bytes, `HEAD`
    included."""

    name: str
    digest: bytes
    size: int

    @property
    def head(self) -> bytes:
        """The first bytes of the file."""
        return (MAGIC + self.digest).ljust(HEAD, b"\0")


@dataclass(frozen=True)
class Standalone:
    """All that is written as one: functions over common kernels and constants.

    ``name`` is what its files and symbols begin with, ``threads`` so many as the kernels were made
    for.
    """

    name: str
    functions: tuple[StandaloneFunction, ...]
    kernels: tuple[tuple[bytes, Abi], ...]
    constants: ConstantsFile | None
    threads: int
