"""What an op of the library is: one record, which says all that the project knows of it.

A record is a frozen dataclass whose fields are the sizes and settings of one problem. To add an op,
write one, list it in `library`, and write the function that users call (as `ops.softmax` does):

- ``driver``, ``example``: its name on the command line, and a descriptor;
- ``parse``: its grammar; ``knobs``: options of the command line that set fields (``--axis``);
- ``slots``: its tensors in a direction, inputs first;
- ``body``: what it computes, as statements in the language of kernels (`docs/ir.md`), which is why
  the op runs on every target, in the interpreter, and fuses with its neighbours; those of an op
  that `tensor` has are built there instead (`ops.formulas.table`);
- ``answers``: the same in float64 numpy, written independently, and what its rounding errors are
  relative to;
- ``drawn``, ``data``, ``types``: random problems, what they are verified on, types that it takes;
- ``finished``: whether its result may have scales and post-ops;
- ``peer``: PyTorch's way to compute the same.

Everything that works on ops reads it there: parsers, ``verify``, ``check``, ``bench``, ``show``.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.dtypes import DType, bf16, f8_e4m3, f8_e5m2, f16, f32, f64, s8, s32, s64, tf32, u8
from tilewright.errors import ProblemError, UnsupportedError, short
from tilewright.problems.knobs import Direction
from tilewright.problems.problem import Answer, Array, Problem, Shape

FLOATS = (f32, bf16, f16, f64, tf32, f8_e4m3, f8_e5m2)
# What most ops compute on; sums of integers are kept in f32, unless a record says otherwise.
NUMBERS = (*FLOATS, s32, s8, u8)


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor: ``role`` is whose type and layout it has, another's or its own; ``""`` for numbers
    that the op computes or takes beside its data (statistics, factors): of ``dtype``, or else f32,
    or f64 with f64. ``letters`` name its dims in tags."""

    name: str
    shape: Shape
    access: str
    role: str
    letters: str | None = None
    dtype: DType | None = None


@dataclass(frozen=True)
class Record(Problem):
    """The base of all records: what most of them have in common."""

    example: ClassVar[str]
    # Types that are computed on: those of the first role, and of others.
    data_types: ClassVar[tuple[DType, ...]] = NUMBERS
    # Whether ``dst`` may have scales, zero points and post-ops (`ops.epilogue`), forward.
    finished: ClassVar[bool] = False
    # Work for each element of the largest tensor.
    work: ClassVar[int] = 1

    @abstractmethod
    def slots(self, direction: Direction) -> tuple[Slot, ...]:
        """The tensors, inputs first."""

    def body(self, types: Mapping[str, DType], direction: Direction) -> str:
        """The statements, where each tensor is called by its name, and has the type given; none,
        where they are built elsewhere."""
        return ""

    @abstractmethod
    def answers(self, values: Mapping[str, Array], direction: Direction) -> dict[str, Answer]:
        """What each result is, of inputs in float64 (integers: as they are)."""

    @property
    def places(self) -> int:
        """How many places the inputs in `indices` may name, from 0 on; 0 without such inputs."""
        return 0

    def data(
        self, name: str, shape: Shape, dtype: DType, rng: Any, direction: Direction
    ) -> Array | None:
        """What an input is verified on, where any small numbers won't do (None: they do), in f64 or
        as integers; ``rng`` is numpy's."""
        return None

    def check(self, types: Mapping[str, DType], direction: Direction) -> None:
        """Raises `UnsupportedError` for types that the op does not take."""
        for role in self.roles:
            allowed = (s32, s64) if role in self.indices else self.data_types
            if types[role] not in allowed:
                raise UnsupportedError(
                    f"{self.driver} takes no {types[role]} here",
                    where=role,
                    cure="choose one of " + ", ".join(map(str, allowed)),
                )
            if role in self.indices and self.greatest_index > types[role].highest:
                raise UnsupportedError(
                    f"{types[role]} does not hold {short(self.greatest_index)}",
                    where=role,
                    why=f"{self.driver} has indices as great as that",
                    cure=f"choose {s64}",
                )

    @property
    def greatest_index(self) -> int:
        """The greatest number that the tensors of `indices` are given."""
        return 0

    @property
    def shapes(self) -> dict[str, Shape]:
        """Logical shapes of all tensors of the first direction."""
        return {slot.name: slot.shape for slot in self.slots(self.directions[0])}

    @property
    def nominal_flops(self) -> int:
        """So many operations for each element of the largest tensor."""
        return self.work * max(map(math.prod, self.shapes.values()))

    def _check_shapes(self) -> None:
        self._check_fields(**self.shapes)


def checked_axis(axis: object, shape: Shape, driver: str, usual: int | None = None) -> int:
    """``axis`` counted from the front; ``usual`` means the only dim where there is no other. Raises
    `ProblemError` for a dim that is not there."""
    rank = len(shape)
    if type(axis) is int and axis == usual and rank == 1:
        return 0
    if type(axis) is not int or not -rank <= axis < rank:
        raise ProblemError(
            f"{driver} has no dim {short(axis)}",
            where="axis",
            cure=f"choose a number from 0 to {rank - 1}, or from -{rank} to -1",
        )
    return axis % rank


def checked_flags(flags: object, meanings: Mapping[str, str], *, once: bool = False) -> str:
    """The letters of ``flags``, each once, in the order of ``meanings``, which say what they ask
    for. Raises `ProblemError` for others, and with ``once`` for a letter that stands twice, which
    benchdnn takes of its own drivers."""
    letters = flags if isinstance(flags, str) else "?"
    for n, letter in enumerate(letters):
        if once and letter in letters[:n]:
            raise ProblemError(f"flag {letter!r} stands twice", where="flags", cure="write it once")
        if letter not in meanings:
            meant = ", ".join(f"{name} ({meaning})" for name, meaning in meanings.items())
            raise ProblemError(
                f"unknown flag {letter!r}", where="flags", cure=f"choose some of {meant}"
            )
    return "".join(letter for letter in meanings if letter in letters)


def accumulator_for(types: Mapping[str, DType]) -> DType:
    """What floats are computed in: f64 if one is f64, else f32."""
    return f64 if f64 in types.values() else f32
