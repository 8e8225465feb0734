"""One spatial dim of a convolution or a pooling: a window that slides over a padded row.

Deduction follows benchdnn (``tests/benchdnn/conv`` of oneDNN 3.x): an output size that is not
given follows from symmetric padding (0 unless given); padding that is not given follows from the
output size. A whole dim that is not given is taken over from the one before: h from d, w from h.
Where benchdnn goes on with an odd result (a kernel larger than the padded input whose output
comes out as 1 by rounding, an explicit ``pw0`` overruled by ``ph1``) we refuse.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypedDict

from tilewright.errors import ProblemError
from tilewright.problems.descriptor import Fields, write
from tilewright.problems.problem import Problem, Shape, check_minibatch

AXES = "dhw"
# What a descriptor says of a dim: input, output, kernel size, stride, padding, dilation.
SPATIAL_KEYS = tuple(letter + axis for letter in "iokspd" for axis in AXES)


@dataclass(frozen=True, slots=True)
class Window:
    """Output ``o`` and tap ``k`` read input ``o * stride - pad_l + k * (dilation + 1)``.

    Sizes are in elements; dilation 0 is dense. Reads outside ``0 .. size - 1`` are padding.
    """

    size: int
    kernel: int
    out: int
    stride: int = 1
    dilation: int = 0
    pad_l: int = 0

    @property
    def reach(self) -> int:
        """Input elements from the first tap to the last, both included."""
        return (self.kernel - 1) * (self.dilation + 1) + 1

    @property
    def pad_r(self) -> int:
        """Padding behind the input that the last output needs; negative when input is left."""
        return (self.out - 1) * self.stride + self.reach - self.size - self.pad_l

    @property
    def valid_taps(self) -> int:
        """Pairs (output, tap) that read the input and not padding."""
        taps, outs = (self.kernel, self.dilation + 1), (self.out, self.stride)
        few, many = sorted((taps, outs))
        return sum(len(self._inside(many, i * few[1])) for i in range(few[0]))

    @property
    def empty_outputs(self) -> bool:
        """Whether some output reads padding only."""
        taps = (self.kernel, self.dilation + 1)
        return not all(self._inside(taps, o * self.stride) for o in range(self.out))

    def tap(self, k: int) -> tuple[slice, slice]:
        """The outputs whose tap ``k`` reads the input and not padding, and what they read."""
        offset = k * (self.dilation + 1)
        outs = self._inside((self.out, self.stride), offset)
        start = outs.start * self.stride + offset - self.pad_l
        end = start + len(outs) * self.stride
        return slice(outs.start, outs.stop), slice(start, end, self.stride)

    def _inside(self, run: tuple[int, int], offset: int) -> range:
        """For which j, below a number, ``offset + j * step - pad_l`` lies in the input."""
        number, step = run
        first = max(0, -((offset - self.pad_l) // step))
        last = min(number - 1, (self.size - 1 + self.pad_l - offset) // step)
        return range(first, max(first, last + 1))


def complete(
    size: int, kernel: int, stride: int, dilation: int, out: int | None, pad: int | None
) -> Window | None:
    """The window whose missing output size or padding is deduced; None if there is none.

    There is none when the kernel spans more than the padded input and no output is given, or when
    more than ``stride`` elements at the end of the input would stay unread.
    """
    reach = (kernel - 1) * (dilation + 1) + 1
    if out is None:
        pad = pad or 0
        room = size + 2 * pad - reach
        return None if room < 0 else Window(size, kernel, room // stride + 1, stride, dilation, pad)
    if pad is None:
        # Where strides leave input over, no padding is needed: negative padding does not exist.
        pad = max(0, (out - 1) * stride + reach - size) // 2
    window = Window(size, kernel, out, stride, dilation, pad)
    return None if window.pad_r < -stride else window


def deduce_windows(fields: Fields) -> tuple[Window, ...]:
    """One window per spatial dim, from d to w. Raises `ProblemError` for an impossible shape."""
    fields.refuse_zeros([letter + axis for letter in "ioks" for axis in AXES])
    said = "".join(axis for axis in AXES if _is_said(fields, axis))
    if not said:
        raise ProblemError(
            "there is no spatial dim",
            where=fields.locate(),
            why="a window needs an input and a kernel size",
            cure="add ih and kh (2D, square), or iw and kw (1D), or id and kd (3D, cubic)",
        )
    if said in ("dh", "dw"):
        missing = "w" if said == "dh" else "h"
        raise ProblemError(
            f"a 3D problem needs both h and w or neither; {missing} is missing",
            where=fields.locate(f"i{said[1]}", f"k{said[1]}", f"o{said[1]}"),
            cure=f"add i{missing} and k{missing}, or leave out all of {said[1]}",
        )
    windows = {axis: _deduce(fields, axis) for axis in said}
    if len(said) == 1:
        for axis in AXES[AXES.index(said) + 1 :]:
            _check_promoted(fields, said, axis, windows[said])
            windows[axis] = windows[said]
    return tuple(windows[axis] for axis in AXES if axis in windows)


def _is_said(fields: Fields, axis: str) -> bool:
    """Whether the descriptor gives this dim: values that are the defaults do not count."""
    return (
        any(fields.get(letter + axis) for letter in "iokd")
        or fields.get(f"s{axis}") not in (None, 1)
        or fields.get(f"p{axis}") not in (None, 0)
    )


def _check_promoted(fields: Fields, source: str, axis: str, window: Window) -> None:
    promoted = {"s": window.stride, "p": window.pad_l, "d": window.dilation}
    for letter, value in promoted.items():
        said = fields.get(letter + axis)
        if said is not None and said != value:
            raise ProblemError(
                f"{letter}{axis}{said} contradicts {letter}{source}{value}",
                where=fields.locate(letter + axis),
                why=f"i{axis} and k{axis} are not given, so all of {axis} is taken from {source}",
                cure=f"add i{axis} and k{axis}, or leave out {letter}{axis}",
            )


def _deduce(fields: Fields, axis: str) -> Window:
    i, k, o, p = (letter + axis for letter in "ikop")
    for key, other in ((i, k), (k, i)):
        if fields.get(key) is None:
            field_name = next(n + axis for n in "iokspd" if fields.get(n + axis) is not None)
            raise ProblemError(
                f"{key} is missing",
                where=fields.locate(other, field_name),
                why=f"{field_name} gives dim {axis}, which needs an input and a kernel size",
                cure=f"add {key} and a number, or leave out all of {axis}",
            )
    size, kernel = fields.get(i) or 0, fields.get(k) or 0
    stride, dilation = fields.get(f"s{axis}") or 1, fields.get(f"d{axis}") or 0
    out, pad = fields.get(o), fields.get(p)
    window = complete(size, kernel, stride, dilation, out, pad)
    if window is not None:
        return window
    reach = (kernel - 1) * (dilation + 1) + 1
    if out is None:
        padded = size + 2 * (pad or 0)
        raise ProblemError(
            f"the kernel does not fit: it spans {reach} elements of {axis}, "
            f"and the padded input has {padded}",
            where=fields.locate(k),
            why=f"{o} would be 0 or less",
            cure=f"add padding, {p}{-(-(reach - size) // 2)} or more, or give {o}",
        )
    whole = max(1, (size + 2 * (pad or 0) - reach) // stride + 1)
    raise ProblemError(
        f"{o}{out} leaves input unread at the end of {axis}",
        where=fields.locate(o),
        why=f"{whole} outputs fit in {i}{size}",
        cure=f"write {o}{whole}, or leave {o} out to have it deduced",
    )


def describe(windows: Sequence[Window]) -> Callable[[str], str]:
    """A function from a letter (``i o k s p d``) to its part of the shortest descriptor."""
    axes = AXES[-len(windows) :]
    if all(window == windows[0] for window in windows):
        axes, windows = axes[0], windows[:1]
    fields: dict[str, list[str]] = {letter: [] for letter in "iokspd"}
    for axis, window in zip(axes, windows, strict=True):
        for letter, value in _shortest(window).items():
            fields[letter].append(f"{letter}{axis}{value}")
    return lambda letter: "".join(fields[letter])


def _shortest(window: Window) -> dict[str, int]:
    """The fewest characters from which the window can be deduced."""
    always = {"i": window.size, "k": window.kernel}
    if window.stride != 1:
        always["s"] = window.stride
    if window.dilation != 0:
        always["d"] = window.dilation
    choices = []
    for out, pad in (
        (None, None),
        (None, window.pad_l),
        (window.out, None),
        (window.out, window.pad_l),
    ):
        # benchdnn deduces a negative padding, which oneDNN refuses: rather say it.
        if out is not None and pad is None and window.pad_l + window.pad_r < -1:
            continue
        size, kernel, stride, dilation = window.size, window.kernel, window.stride, window.dilation
        if complete(size, kernel, stride, dilation, out, pad) == window:
            said = {"o": out, "p": pad}
            choices.append({key: value for key, value in said.items() if value is not None})
    return always | min(choices, key=lambda said: sum(2 + len(str(v)) for v in said.values()))


class WindowFields(TypedDict):
    """A problem's spatial fields, one number per dim from d to w."""

    src_size: Shape
    kernel: Shape
    dst_size: Shape
    stride: Shape
    dilation: Shape
    pad_l: Shape


class WindowProblem(Problem):
    """What convolution and pooling have in common: windows, as the fields of `WindowFields`."""

    __slots__ = ()

    # The keys of sizes in descriptors.
    keys: ClassVar[tuple[str, ...]]
    mb: int
    ic: int
    src_size: Shape
    kernel: Shape
    dst_size: Shape
    stride: Shape
    dilation: Shape
    pad_l: Shape

    @property
    def pad_r(self) -> Shape:
        """The padding that the output sizes need after the input, per spatial dim."""
        return tuple(window.pad_r for window in self.windows)

    @property
    def src_shape(self) -> Shape:
        """``(mb, ic, *spatial)``."""
        return (self.mb, self.ic, *self.src_size)

    @property
    def ndims(self) -> int:
        """Spatial dims: 1, 2 or 3."""
        return len(self.kernel)

    @property
    def spatial_names(self) -> tuple[str, ...]:
        """``("h", "w")`` for 2D."""
        return tuple(AXES[-self.ndims :])

    @property
    def windows(self) -> tuple[Window, ...]:
        """One sliding window per spatial dim."""
        p = self
        columns = zip(p.src_size, p.kernel, p.dst_size, p.stride, p.dilation, p.pad_l, strict=True)
        return tuple(Window(*column) for column in columns)

    def taps(self) -> Iterator[tuple[Shape, Any, Any]]:
        """Each tap of the kernel, the index of the outputs where it is no padding, and the index of
        the elements that it reads there: both of the spatial dims, which are the last."""
        for tap in itertools.product(*map(range, self.kernel)):
            pairs = [window.tap(k) for window, k in zip(self.windows, tap, strict=True)]
            outputs, elements = zip(*pairs, strict=True)
            yield tap, (..., *outputs), (..., *elements)

    def with_mb(self, mb: int) -> Self:
        """The same of ``mb`` images."""
        check_minibatch(mb)
        return self.changed(mb=mb)

    @classmethod
    def from_sizes(cls, name: str = "", /, **sizes: int) -> Self:
        """The problem with the given sizes by benchdnn's keys: ``ic=64, ih=56, oc=64, kh=3``.

        What is not given is deduced as in a descriptor. Raises `ProblemError`; its place is in the
        descriptor that says the same.
        """
        return cls.parse(write(cls.keys, sizes, name))

    def unit_sizes(self) -> dict[str, int]:
        """The sizes of a window of one element, in as many dims."""
        return {f"{letter}{axis}": 1 for letter in "ik" for axis in self.spatial_names}


def drawn_sizes(rng: random.Random) -> dict[str, int]:
    """Random sizes of one to three spatial dims, with any windows, by their keys."""
    sizes: dict[str, int] = {}
    axes = rng.choice(("hw", "hw", "hw", "w", "dhw"))
    for axis in axes:
        size = min(rng.choice((1, 2, 3, 4, 5, 7, 8, 9, 12, 14)), 7 if axes == "dhw" else 14)
        kernel = rng.choice((1, 1, 2, 3, 3, 3, 5, 7))
        stride = rng.choice((1, 1, 1, 2, 2, 3, 4))
        dilation = rng.choice((0, 0, 0, 0, 1, 2))
        reach = (kernel - 1) * (dilation + 1) + 1
        padding = rng.choice((0, 0, kernel // 2, kernel // 2, 1, 2, kernel))
        whole = (size + 2 * padding - reach) // stride + 1
        sizes |= {f"i{axis}": size, f"k{axis}": kernel, f"s{axis}": stride, f"p{axis}": padding}
        sizes[f"d{axis}"] = dilation
        # One output more or less than fits makes the padding asymmetric.
        sizes[f"o{axis}"] = max(1, whole + rng.choice((-1, 0, 0, 0, 0, 1, 2)))
    return sizes


def window_fields(windows: Sequence[Window]) -> WindowFields:
    """The fields that say what ``windows`` say."""
    return {
        "src_size": tuple(window.size for window in windows),
        "kernel": tuple(window.kernel for window in windows),
        "dst_size": tuple(window.out for window in windows),
        "stride": tuple(window.stride for window in windows),
        "dilation": tuple(window.dilation for window in windows),
        "pad_l": tuple(window.pad_l for window in windows),
    }


def check_window_fields(problem: WindowProblem) -> None:
    """Raises `ProblemError` unless the spatial fields agree with each other.

    Descriptors cannot break these rules; problems built field by field can.
    """
    names = tuple(WindowFields.__annotations__)
    lengths = {name: len(getattr(problem, name)) for name in names}
    if len(set(lengths.values())) != 1 or lengths["kernel"] not in (1, 2, 3):
        raise ProblemError(
            "the spatial tuples must have the same length: 1, 2 or 3",
            where=", ".join(f"{name}: {length}" for name, length in lengths.items()),
            cure="give one number per spatial dim in each",
        )
    for axis, window in zip(problem.spatial_names, problem.windows, strict=True):
        if window.dilation < 0 or window.pad_l < 0 or window.pad_r < -window.stride:
            raise ProblemError(
                f"dilation and left padding of {axis} must not be negative, "
                "and right padding not below minus the stride",
                where=f"dilation {window.dilation}, pad_l {window.pad_l}, pad_r {window.pad_r}",
                cure="change the output size",
            )
