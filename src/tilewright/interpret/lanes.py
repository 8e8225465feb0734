"""Lanes: iterations that run in lockstep, with a numpy axis per loop.

A `Frame` gives every variable a value per lane. Statements run once for all lanes of a frame; lanes
that an `If` left out are masked. A serial program has a frame without axes. Workgroups and their
work-items are axes like any other: in a frame, all of them are at the same statement, so that a
barrier is a place in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from tilewright.errors import InterpreterFault
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Var
from tilewright.ir.printer import headline, to_text
from tilewright.ir.stmt import Compute, LoopKind, Stmt

# No temporary has more points than this.
POINT_LIMIT = 2**22


class Identity(Enum):
    """The identity of a lane: numbers that frames hold beside the values of variables."""

    CLUSTER = "cluster"  # how many workgroups it has: the innermost axis around the work-items'
    WORKGROUP = "workgroup"  # among those of the frame
    SUBGROUP = "subgroup"  # of the workgroup
    WORK_ITEM = "work-item"  # of the workgroup
    LANES = "lanes"  # of the subgroup, where it acts as one; 0 where none does
    # The asynchronous op that the lane's subgroup started: a `storage.Started`.
    ASYNCHRONOUS = "asynchronous"

    # Frames are dicts, built all the time, and enumerations hash their name, in Python.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Frame:
    """Values of the variables for all lanes.

    A value is a scalar, or an array with one axis per entry of ``shape`` (of that size, or of 1).
    Values of buffers are where each lane's own copy of the buffer begins. ``mask`` (None: all)
    tells which lanes run. ``vectors`` are the axes whose lanes one instruction may access together,
    ``threads`` those of a `lane` loop.
    """

    values: dict[Var | Buffer | Identity, Any]
    shape: tuple[int, ...] = ()
    mask: Any = None
    vectors: frozenset[int] = frozenset()
    threads: frozenset[int] = frozenset()

    @property
    def lanes(self) -> int:
        """How many lanes there are, masked ones included."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    def scope(self) -> Frame:
        """A frame whose variables can be set without changing this one's."""
        return Frame(dict(self.values), self.shape, self.mask, self.vectors, self.threads)

    def extend(self, var: Var, values: Any, kind: LoopKind = LoopKind.SERIAL) -> Frame:
        """One more, innermost axis, along which ``var`` takes ``values`` (1-D)."""
        values_ = {v: _deeper(value) for v, value in self.values.items()}
        values_[var] = values.reshape((1,) * len(self.shape) + values.shape)
        shape, new = (*self.shape, len(values)), {len(self.shape)}
        vectors = self.vectors | new if kind is LoopKind.VECTOR else self.vectors
        threads = self.threads | new if kind is LoopKind.LANE else self.threads
        return Frame(values_, shape, _deeper(self.mask), vectors, threads)

    def over(self, axes: Sequence[tuple[Var, int]], kind: LoopKind) -> Frame:
        """As `extend`, once for each of ``axes``: a variable that counts up to a number."""
        rank, count = len(self.shape), len(axes)
        values = {v: _deeper(value, count) for v, value in self.values.items()}
        for position, (var, most) in enumerate(axes):
            ones_before, ones_after = (1,) * (rank + position), (1,) * (count - position - 1)
            values[var] = np.arange(most).reshape((*ones_before, most, *ones_after))
        new = set(range(rank, rank + count))
        vectors = self.vectors | new if kind is LoopKind.VECTOR else self.vectors
        threads = self.threads | new if kind is LoopKind.LANE else self.threads
        shape = (*self.shape, *(most for _, most in axes))
        return Frame(values, shape, _deeper(self.mask, count), vectors, threads)

    def restrict(self, condition: Any) -> Frame:
        """The lanes of this frame for which ``condition`` holds."""
        mask = condition if self.mask is None else self.mask & condition
        return Frame(dict(self.values), self.shape, mask, self.vectors, self.threads)

    def narrow(self, box: Sequence[slice]) -> Frame:
        """The lanes within ``box``, one slice per axis."""
        if all(s.stop - s.start == size for s, size in zip(box, self.shape, strict=True)):
            return self
        shape = tuple(s.stop - s.start for s in box)
        values = {v: _cut(value, box) for v, value in self.values.items()}
        return Frame(values, shape, _cut(self.mask, box), self.vectors, self.threads)

    def gather(self, lanes: Any) -> Frame:
        """A frame of one axis: these lanes (numbers in the order of the axes, 1-D), not masked."""
        values = {
            v: np.broadcast_to(value, self.shape).ravel()[lanes] if np.ndim(value) else value
            for v, value in self.values.items()
        }
        return Frame(values, lanes.shape)


def _deeper(value: Any, count: int = 1) -> Any:
    if isinstance(value, np.ndarray) and value.ndim:
        return value[(..., *(None,) * count)]
    return value


def _cut(value: Any, box: Sequence[slice]) -> Any:
    if not isinstance(value, np.ndarray) or value.ndim == 0:
        return value
    whole = slice(None)
    return value[tuple(s if n > 1 else whole for s, n in zip(box, value.shape, strict=True))]


def spread(value: Any, shape: tuple[int, ...]) -> Any:
    """``value`` broadcast to ``shape``, without numpy's overhead where it has that shape."""
    if isinstance(value, np.ndarray) and value.shape == shape:
        return value
    return np.broadcast_to(value, shape)


def together(*values: Any) -> list[Any]:
    """``values`` in one shape; `np.broadcast_arrays` takes longer than small sums do."""
    shape = np.broadcast(*values).shape
    arrays: list[Any] = []
    for value in values:
        if not (isinstance(value, np.ndarray) and value.shape == shape):
            array, value = np.asarray(value), np.empty(shape, np.asarray(value).dtype)
            value[...] = array
        arrays.append(value)
    return arrays


def anywhere(condition: Any) -> bool:
    """Whether ``condition`` (bool, of any shape) holds for a lane; quicker than `np.any`."""
    return bool(np.count_nonzero(condition))


def both(a: Any, b: Any) -> Any:
    """The conjunction of two masks, where None holds everywhere."""
    if a is None:
        return b
    return a if b is None else a & b


class Site(NamedTuple):
    """The source of an access: the statement, and the lanes that run it."""

    stmt: Stmt
    frame: Frame

    def count(self, bad: Any) -> int:
        """The number of lanes for which ``bad`` holds."""
        return int(np.count_nonzero(np.broadcast_to(bad, self.frame.shape)))


def first_lane(bad: Any) -> tuple[int, ...]:
    """The position of the first lane for which ``bad`` holds (of rank 0 if it is a scalar)."""
    array = np.asarray(bad)
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(array)), array.shape))


def at_lane(value: Any, lane: tuple[int, ...]) -> Any:
    """The value that an array (or a scalar) has for one lane."""
    if not isinstance(value, np.ndarray) or value.ndim == 0:
        return value
    if len(lane) < value.ndim:
        lane = (0,) * value.ndim
    return value[tuple(i if n > 1 else 0 for i, n in zip(lane, value.shape, strict=True))]


def fault(what: str, site: Site, lane: tuple[int, ...], *, why: str, cure: str) -> InterpreterFault:
    """The error for a fault of the statement of ``site`` in one of its lanes."""
    stmt = site.stmt
    values = ", ".join(
        f"{v.name}={at_lane(x, lane)}" for v, x in site.frame.values.items() if isinstance(v, Var)
    )
    if isinstance(stmt, Compute):
        text = to_text(stmt)
    elif stmt.span is None:
        text = headline(stmt)
    else:  # the line of the source, with its names
        text = stmt.span.text[stmt.span.start : stmt.span.end].split("\n")[0]
    where = f"{text}\n  with {values}" if values else text
    return InterpreterFault(what, where=where, why=why, cure=cure, span=stmt.span)
