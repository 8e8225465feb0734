"""Descriptors of lists between ``:``, numbers between ``x``: ``4x5:1x-1:0x2``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from tilewright.errors import ProblemError, Span, short
from tilewright.problems.descriptor import MAX_SIZE
from tilewright.problems.library.record import Record, checked_axis
from tilewright.problems.pieces import Piece, split_name
from tilewright.problems.problem import name_suffix

Numbers = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A list of a descriptor, which is the field ``name``: numbers from ``low``. One that is
    ``optional`` may be left out with all behind it: the field is empty then."""

    name: str
    low: int = 1
    optional: bool = False


@dataclass(frozen=True)
class ListsRecord(Record):
    """A record whose descriptor gives some of its fields as lists, in this order."""

    parts: ClassVar[tuple[Part, ...]] = (Part("shape"),)
    # The field ``axis``, where there is one, is counted from the front; this means an only dim.
    usual_axis: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        for part in self.parts:
            object.__setattr__(self, part.name, self._checked(part))
        if "axis" in self.__dataclass_fields__:
            values: Any = self
            axis = checked_axis(values.axis, values.shape, self.driver, self.usual_axis)
            object.__setattr__(self, "axis", axis)
        self._complete()
        self._check_shapes()

    def _complete(self) -> None:
        """Checks what fields have to do with each other, and fills in what was left out."""

    def _checked(self, part: Part) -> Numbers:
        numbers = getattr(self, part.name)
        if not isinstance(numbers, tuple | list) or any(
            type(number) is not int for number in numbers
        ):
            raise ProblemError(
                f"{short(numbers)} is no list of numbers",
                where=part.name,
                cure="give a tuple of integers, such as (8, 16)",
            )
        for number in numbers:
            if not part.low <= number <= MAX_SIZE:
                raise self._out_of_range(number, part, part.name)
        if not numbers and not part.optional:
            raise ProblemError(
                f"{part.name} of {self.driver} has no dims",
                where=part.name,
                cure="give a scalar the shape (1,)",
            )
        return tuple(numbers)

    @classmethod
    def _out_of_range(cls, number: int, part: Part, where: str | Span) -> ProblemError:
        return ProblemError(
            f"a number of {part.name} must be at least {part.low}, not {short(number)}"
            if number < part.low
            else f"a number of {part.name} is too large",
            where=where,
            cure=f"write one from {part.low} to 2^60",
        )

    @classmethod
    def parse(cls, text: str) -> Self:
        body, name = split_name(text)
        pieces = body.split(":") if body.word else []
        if len(pieces) > len(cls.parts):
            raise ProblemError(
                "there are too many lists",
                where=Span(text, pieces[len(cls.parts)].start, body.end),
                cure=f"the form is {cls._form()}",
            )
        result: dict[str, Any] = {}
        for part, piece in zip(cls.parts, pieces, strict=False):
            result[part.name] = tuple(cls._number(part, word) for word in piece.split("x"))
        for part in cls.parts[len(pieces) :]:
            if not part.optional:
                raise ProblemError(
                    f"{part.name} of {cls.driver} is missing",
                    where=Span(text, body.end, body.end + 1),
                    cure=f"the form is {cls._form()}, such as {cls.example}",
                )
        construct: Any = cls
        problem: Self = construct(**result, name=name)
        return problem

    @classmethod
    def _form(cls) -> str:
        words = [part.name.upper() for part in cls.parts if not part.optional]
        optional = "".join(f"[:{part.name.upper()}]" for part in cls.parts if part.optional)
        return ":".join(words) + optional

    @classmethod
    def _number(cls, part: Part, piece: Piece) -> int:
        number = piece.integer(f"a number of {part.name}")
        if not part.low <= number <= MAX_SIZE:
            raise cls._out_of_range(number, part, piece.span)
        return number

    def descriptor(self) -> str:
        lists = ["x".join(map(str, getattr(self, part.name))) for part in self.parts]
        while lists and not lists[-1]:
            lists.pop()
        return ":".join(lists) + name_suffix(self.name)

    def same_length(self, *names: str) -> None:
        """Raises `ProblemError` unless fields have as many numbers as the first of them."""
        first, *others = names
        length = len(getattr(self, first))
        for name in others:
            if len(getattr(self, name)) != length:
                raise ProblemError(
                    f"{name} has {len(getattr(self, name))} numbers, and {first} has {length}",
                    where=name,
                    cure="give one for each dim",
                )
