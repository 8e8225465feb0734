"""What all problems have in common: named tensors with shapes, work, a descriptor."""

from __future__ import annotations

import math
import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from tilewright.dtypes import DType, s32
from tilewright.errors import ProblemError, UnsupportedError, short
from tilewright.problems.knobs import Direction
from tilewright.problems.pieces import Piece, plain_name, unknown

Shape = tuple[int, ...]
Array = Any

# Offsets in bytes are signed 64-bit numbers, and an element takes up to 8 bytes.
MAX_ELEMENTS = 2**60
# oneDNN's DNNL_MAX_NDIMS; tags have so many letters, too.
MAX_DIMS = 12
_COUNT = re.compile(r"\*([0-9]{1,9})$")


@dataclass(frozen=True, slots=True)
class Answer:
    """Results in float64 (or integers), with errors of at most ``roundings`` of the accumulator's
    type, relative to ``magnitude``, and ``last`` more, relative to the results. None of them: the
    numbers are exact.

    What lies ``between`` has the type of the tensor called so, and is rounded once, relative to
    ``magnitude``. ``summed``: the former are those of adding or multiplying elements, of which
    there are none on data for which that is exact. A value of a type wider than float64 has no
    errors of its own.
    """

    value: Array
    magnitude: Array = 0.0
    roundings: int = 0
    last: int = 0
    summed: bool = False
    between: str = ""


class Problem(ABC):
    """A well-formed request: sizes and settings, without types, layouts or direction.

    Problems are frozen: two with the same sizes, settings and name are equal and hash alike.
    """

    __slots__ = ()

    driver: ClassVar[str]
    # Tensors whose types ``--dt`` gives, in its order; those named in `indices` hold integers.
    roles: ClassVar[tuple[str, ...]] = ("src", "dst")
    indices: ClassVar[tuple[str, ...]] = ()
    directions: ClassVar[tuple[Direction, ...]] = (Direction.FWD_D,)
    # Options of the command line that set fields; ``alg`` is the algorithm.
    knobs: ClassVar[tuple[str, ...]] = ()
    algorithms: ClassVar[tuple[str, ...]] = ()
    algorithm: str = ""
    name: str

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> Self:
        """The problem that a descriptor asks for. Raises `ProblemError`, with the place in it."""

    @classmethod
    @abstractmethod
    def drawn(cls, rng: random.Random) -> Self:
        """A random problem, small enough for the interpreter."""

    @property
    @abstractmethod
    def shapes(self) -> dict[str, Shape]:
        """The logical shape of each tensor, inputs first, ``"dst"`` last."""

    @property
    @abstractmethod
    def nominal_flops(self) -> int:
        """Scalar operations as if padding were data; a multiply-add counts two."""

    @property
    def valid_flops(self) -> int:
        """Scalar operations that results depend on; a multiply-add counts two. All, by default."""
        return self.nominal_flops

    @abstractmethod
    def descriptor(self) -> str:
        """The shortest benchdnn descriptor that parses back to this problem."""

    def with_mb(self, mb: int) -> Self:
        """The same problem with another minibatch (images): the first dim of ``shape``.

        Raises `ProblemError` where the problem has no minibatch.
        """
        shape = getattr(self, "shape", None)
        if shape is None:
            raise no_minibatch(self.driver)
        check_minibatch(mb)
        return self.changed(shape=(mb, *shape[1:]))

    def smallest(self) -> Self:
        """The problem on next to nothing, of the same rank: what a call costs is measured on it. By
        default, of a ``shape`` of one element."""
        shape = getattr(self, "shape", None)
        return self if shape is None else self.changed(shape=(1,) * len(shape))

    def check_direction(self, direction: Direction) -> None:
        """Raises `UnsupportedError` for a direction that the problem does not have."""
        if direction not in self.directions:
            names = ", ".join(direction_.value for direction_ in self.directions)
            raise UnsupportedError(
                f"{self.driver} has no direction {direction.value}", cure=f"choose one of {names}"
            )

    def peer(
        self, torch: Any, values: Mapping[str, Any], direction: Direction
    ) -> Callable[[], Any]:
        """PyTorch's way to compute the results of tensors by name; gives one or a tuple of them,
        in our order. Raises `UnsupportedError` where it has none."""
        raise UnsupportedError(f"PyTorch has no {self.driver} like this")

    def changed(self, **fields: Any) -> Self:
        """The problem with other values of fields."""
        problem: Any = self
        changed: Self = replace(problem, **fields)
        return changed

    def with_alg(self, text: str) -> Self:
        """The problem with the algorithm that ``--alg`` names."""
        name = plain_name(text, self.algorithms) if isinstance(text, str) else text
        return self.changed(algorithm=name)

    def with_option(self, name: str, text: str) -> Self:
        """The problem with what ``--name`` says, of the type that the field has."""
        if name == "alg":
            return self.with_alg(text)
        usual, piece = getattr(self, name), Piece.whole(text)
        if isinstance(usual, str):
            return self.changed(**{name: text})
        number = piece.integer if isinstance(usual, int) else piece.number
        return self.changed(**{name: number(name)})

    def for_inference(self) -> Self:
        """The problem without results that only a backward pass needs."""
        return self

    def settings(self) -> dict[str, str]:
        """What options say of the problem, by their names, for a command that asks for it again."""
        texts = {}
        for knob in self.knobs:
            value = getattr(self, "algorithm" if knob == "alg" else knob)
            if value != "":
                texts[knob] = str(value)
        return texts

    def expanded(self, types: Sequence[DType]) -> tuple[DType, ...]:
        """One type for each role, of one for all: indices are s32 then."""
        if len(types) == 1:
            return tuple(s32 if role in self.indices else types[0] for role in self.roles)
        return tuple(types)

    @property
    def count(self) -> int:
        """How often the problem occurs in its network: the ``3`` of ``n"res2b*3"``, else 1."""
        result = _COUNT.search(self.name)
        return int(result[1]) if result else 1

    def _check_algorithm(self) -> None:
        """Refuses algorithms that the driver does not have."""
        if not isinstance(self.algorithm, str):
            raise ProblemError(
                f"{short(self.algorithm)} is no algorithm here",
                where="algorithm",
                cure=f"choose one of {', '.join(self.algorithms)}"
                if self.algorithms
                else "write its name, such as relu",
            )
        if self.algorithms and self.algorithm not in self.algorithms:
            raise unknown("algorithm", Piece.whole(self.algorithm), self.algorithms)

    def _check_fields(self, **sizes: int | Shape) -> None:
        """Refuses unknown algorithms, sizes below 1, and tensors beyond 64-bit offsets."""
        self._check_algorithm()
        for field, given_sizes in sizes.items():
            for size in given_sizes if isinstance(given_sizes, tuple) else (given_sizes,):
                if type(size) is not int:
                    raise ProblemError(
                        f"a size of {self.driver} must be a whole number, not {short(size)}",
                        where=field,
                    )
                if size > MAX_ELEMENTS:
                    raise ProblemError(
                        f"a size of {self.driver} is {short(size)}",
                        where=field,
                        why="offsets are 64-bit: a size is at most 2^60",
                        cure="split the problem",
                    )
                if size < 1:
                    raise ProblemError(
                        f"a size of {self.driver} must be at least 1, not {short(size)}",
                        where=field,
                        cure="leave the problem out: there is nothing to compute",
                    )
        for tensor, shape in self.shapes.items():
            if not shape:
                raise ProblemError(
                    f"{tensor} of {self.driver} has no dims",
                    where=tensor,
                    cure="give a scalar the shape (1,)",
                )
            if len(shape) > MAX_DIMS:
                raise ProblemError(
                    f"{tensor} of {self.driver} has {len(shape)} dims",
                    where=tensor,
                    why=f"a tensor has at most {MAX_DIMS}, as in oneDNN",
                    cure="make dims that are neighbours in memory one",
                )
            if math.prod(shape) > MAX_ELEMENTS:
                raise ProblemError(
                    f"{tensor} has {math.prod(shape)} elements",
                    where=self.descriptor(),
                    why=f"offsets are 64-bit: a tensor holds at most 2^60 = {MAX_ELEMENTS}",
                    cure="split the problem",
                )


def name_suffix(name: str) -> str:
    """How a descriptor ends: ``n"name"``, or nothing for an unnamed problem."""
    return f'n"{name}"' if name else ""


def no_minibatch(driver: str) -> ProblemError:
    """The error for ``--mb`` where no dim is a minibatch."""
    return ProblemError(
        f"{driver} has no minibatch that could be set",
        where="--mb",
        cure="write the sizes in the descriptor",
    )


def check_minibatch(mb: int) -> None:
    """Raises `ProblemError` unless ``mb`` is at least 1."""
    if mb < 1:
        raise ProblemError(f"the minibatch must be at least 1, not {mb}", where="--mb")
