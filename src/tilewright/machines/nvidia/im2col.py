"""Columns: the copies of pixels, one after the other, that a unit makes for one tap.

The unit walks over a tensor of channels, one to three spatial dims, and images. From a first pixel
it goes on along the innermost spatial dim, in steps, and at the end of a row to the next one, and
from image to image. Where rows and images begin and end a box says: that of what the first tap of a
convolution meets. What it copies lies as far from there as the tap does. Pixels outside of the
tensor are zero.

A copy has this form where its pixels are digits of one number that counts them: as in

    src[(m + 128) // 196, c, (m + 128) // 14 % 14 + kh - 1, (m + 2) % 14 + kw - 1]

Source: NVIDIA, PTX ISA, "Tensor, im2col mode".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.facts.affine import Affine, affine, difference, is_linear
from tilewright.facts.scope import Facts
from tilewright.ir.expr import Binary, Const, Expr, Var, const
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Compute, View
from tilewright.ir.visit import substitute, variables
from tilewright.machines.nvidia.boxes import (
    MOST_BOX,
    Box,
    box_of,
    first_of,
    hidden_inside,
    sizes_of,
    steps_of,
    wrong_steps,
)
from tilewright.simplify import simplify

# By the dims of the tensor: what the corners of the box may be, and how far away taps at most.
CORNERS = {3: (-32768, 32767), 4: (-128, 127), 5: (-16, 15)}
_FARTHEST = {3: 65535, 4: 255, 5: 31}
# Steps between pixels, and pixels of a copy, at most.
_LONGEST_STEP, MOST_PIXELS = 8, 1024
_ZERO = const(0)
_NO_IMAGES = "no dim is one of images"


@dataclass(frozen=True)
class Im2col:
    """A copy of ``pixels`` pixels with ``channels`` each. By the tensor's dims, innermost first:
    ``order`` (which dim of the source's buffer each is; None: of the images there is only one, and
    the buffer has no such dim), and ``corner``, the index of what the first tap meets for the first
    pixel. By spatial dims: ``steps`` from pixel to pixel, the box's corners ``lower`` (relative to
    the first element) and ``upper`` (to the last), and ``taps``, how far away the tap is. ``first``
    is the offset in the destination, in elements, where the copy begins."""

    order: tuple[int | None, ...]
    channels: int
    pixels: int
    corner: tuple[Expr, ...]
    steps: tuple[int, ...]
    lower: tuple[int, ...]
    upper: tuple[int, ...]
    taps: tuple[Expr, ...]
    first: Expr


def tile_of(compute: Compute, facts: Facts) -> Box | Im2col | str:
    """What ``compute`` is as a copy that a unit makes by itself; or why it is none. ``facts`` hold
    around it."""
    box = box_of(compute, facts)
    if not isinstance(box, str):
        return box
    column = im2col_of(compute, facts)
    if not isinstance(column, str):
        return column
    inner = {dim.var for dim in compute.dims}
    views = [operand.view for operand in compute.operands]
    return box if all(is_linear(i, inner) for view in views for i in view.index) else column


def im2col_of(compute: Compute, facts: Facts) -> Im2col | str:
    """What ``compute`` is as a copy of a column; or why it is none. ``facts`` hold around it."""
    sizes = sizes_of(compute)
    if isinstance(sizes, str):
        return sizes
    for dim in compute.dims:
        facts = facts.loop(dim.var, dim.extent)
    source = compute.operands[0].view
    steps = steps_of(source.buffer.layout, len(source.index))
    if isinstance(steps, str):
        return steps
    order = sorted((d for d in range(len(steps)) if steps[d]), key=lambda d: steps[d])
    reason = wrong_steps(source, [steps[d] for d in order])
    if reason is not None:
        return reason
    if any(index is not const(0) for d, index in enumerate(source.index) if d not in order):
        return "it goes along a dim of one element"
    channel, pixel = _dims(source.index[order[0]], [v for v in sizes if v is not None])
    if channel is None or pixel is None:
        return f"it goes along other dims than pixels and channels ({to_text(source)})"
    if sizes[channel] > MOST_BOX or sizes[pixel] > MOST_PIXELS:
        most = f"more than {MOST_PIXELS} or {MOST_BOX}"
        return f"it copies {sizes[pixel]} pixels with {sizes[channel]} channels each, {most}"
    axes = _Walk(source, order[1:], (pixel, sizes[pixel]), facts).axes()
    if isinstance(axes, str):
        return axes
    reason = _too_far(axes, facts)
    if reason is not None:
        return reason
    first = first_of(compute.out, [channel, pixel], sizes, facts)
    if isinstance(first, str):
        return first
    begin = substitute(source.index[order[0]], {channel: const(0)})
    corner = [begin, *(axis.corner for axis in axes)]
    origin = {pixel: const(0)}
    spatial = axes[:-1]
    return Im2col(
        (order[0], *(axis.dim for axis in axes)),
        sizes[channel],
        sizes[pixel],
        tuple(simplify(substitute(expr, origin), facts) for expr in corner),
        tuple(axis.step for axis in spatial),
        tuple(axis.lower for axis in spatial),
        tuple(axis.upper for axis in spatial),
        tuple(simplify(axis.tap, facts) for axis in spatial),
        first,
    )


def _dims(index: Expr, dims: Sequence[Var]) -> tuple[Var | None, Var | None]:
    """The dim along the channels, whose ``index`` is given, and the one of the pixels."""
    if len(dims) != 2:
        return None, None
    used = [v for v in dims if v in variables(index)]
    if len(used) != 1 or used[0] in variables((affine(index) - affine(used[0])).to_expr()):
        return None, None
    (pixel,) = (v for v in dims if v is not used[0])
    return used[0], pixel


@dataclass(frozen=True)
class _Axis:
    """A dim of the tensor on the walk: as in `Im2col`; ``corner`` may depend on the pixel."""

    dim: int | None
    corner: Expr
    step: int = 1
    lower: int = 0
    upper: int = 0
    tap: Expr = _ZERO


@dataclass(frozen=True)
class _Digit:
    """``position // weight % radix * step + rest``, where the position counts pixels. Without a
    radix, it is the last digit. ``value`` is the digit alone."""

    step: int
    value: Expr
    position: Affine
    weight: int
    radix: int | None
    rest: Affine


def _digit(index: Expr, pixel: Var) -> _Digit | str | None:
    """``index`` as a digit of what counts pixels; None where it does not depend on these."""
    form = affine(index)
    counting = [atom for atom in form.terms if pixel in variables(atom)]
    if not counting:
        return None
    value, position, weight, radix = counting[0], affine(counting[0]), 1, None
    match value:
        case Binary(op="mod", a=left, b=Const() as right):
            position, radix = affine(left), int(right.value)
    # Of (m + 8) // 4, all that is divided evenly may stand outside: m // 4 + 2.
    for atom in list(position.terms):
        match atom:
            case Binary(op="floordiv", a=left, b=Const() as right) if pixel in variables(left):
                weight = int(right.value)
                outside = position - affine(atom).scaled(position.terms[atom])
                position = affine(left) + outside.scaled(weight)
    others = [atom for atom in position.terms if atom is not pixel and pixel in variables(atom)]
    step = form.terms[value]
    if len(counting) > 1 or others or position.terms.get(pixel) != 1 or step < 1:
        return f"{to_text(index)} is no digit of a number that counts '{pixel.name}'"
    rest = form - affine(value).scaled(step)
    return _Digit(step, value, position, weight, radix, rest)


class _Walk:
    """The walk along the dims ``order`` (but the channels) of the tensor that ``view`` reads, over
    so many ``pixels``: the variable that counts them, and how many."""

    def __init__(
        self, view: View, order: Sequence[int], pixels: tuple[Var, int], facts: Facts
    ) -> None:
        self.view, self.order, self.facts = view, order, facts
        self.pixel, self.pixels = pixels

    def axes(self) -> list[_Axis] | str:
        """Those of the spatial dims, and that of the images."""
        digits: list[_Digit | None] = []
        for dim in self.order:
            digit = _digit(self.view.index[dim], self.pixel)
            if isinstance(digit, str):
                return digit
            digits.append(digit)
        split = self._with_images(digits)
        if not isinstance(split, str):
            return split
        single = self._one_image(digits)
        return split if isinstance(single, str) and split != _NO_IMAGES else single

    def _with_images(self, digits: Sequence[_Digit | None]) -> list[_Axis] | str:
        """The walk where the outermost dim is that of the images."""
        if len(digits) < 2:
            return _NO_IMAGES
        index, end = self.view.index[self.order[-1]], digits[-1]
        least = self.facts.bounds(index)[0]
        if least is None or least < 0 or (end is not None and end.step != 1):
            return _NO_IMAGES
        position = None if end is None else end.position.plus(end.rest, end.weight)
        inside = self._spatial(digits[:-1], position)
        if isinstance(inside, str):
            return inside
        axes, weight, position = inside
        if end is not None and end.weight != weight:
            return f"images are counted by {end.weight} pixels, and have {weight}"
        limit = self._limit(position)
        if isinstance(limit, str):
            return limit
        extent = self.view.buffer.shape[self.order[-1]]
        if limit is not None and (end is None or limit < extent * weight):
            return f"its mask hides pixels from {limit} on"
        return [*axes, _Axis(self.order[-1], index)]

    def _one_image(self, digits: Sequence[_Digit | None]) -> list[_Axis] | str:
        """The walk where all dims are spatial ones, of one image."""
        last = max((i for i, digit in enumerate(digits) if digit is not None), default=None)
        if last is None:
            return f"no dim counts '{self.pixel.name}'"
        end = self._beginning(digits[last])
        limit = self._limit(end.position)
        if isinstance(limit, str):
            return limit
        if limit is None:
            inside = self._spatial(digits, None)
            return inside if isinstance(inside, str) else [*inside[0], _Axis(None, const(0))]
        if last != len(digits) - 1 or limit % end.weight:
            return f"its mask hides pixels from {limit} on"
        # Behind the last pixel comes the next image, of which there is none: it is all zero.
        position = end.position.to_expr()
        radix = limit // end.weight
        value = position // end.weight % radix
        closed = _Digit(end.step, value, end.position, end.weight, radix, end.rest)
        inside = self._spatial([*digits[:-1], closed], end.position)
        if isinstance(inside, str):
            return inside
        return [*inside[0], _Axis(None, position // limit)]

    def _beginning(self, digit: _Digit | None) -> _Digit:
        """``digit`` with all of the position that a mask speaks of, which may stand beside it."""
        assert digit is not None
        position, rest = digit.position, digit.rest
        for condition in hidden_inside(self.view, self.facts):
            form = difference(condition)
            if form is None or form.terms.get(self.pixel) != -1:
                continue
            for atom, coefficient in form.terms.items():
                steps, left = divmod(-coefficient, digit.weight)
                if not left and rest.terms.get(atom) == steps * digit.step:
                    term = affine(atom)
                    rest = rest.plus(term, -steps * digit.step)
                    position = position.plus(term, -coefficient)
        return replace(digit, position=position, rest=rest)

    def _spatial(
        self, digits: Sequence[_Digit | None], position: Affine | None
    ) -> tuple[list[_Axis], int, Affine] | str:
        """Axes of spatial dims, how many pixels they count together, and the position that all are
        digits of: what is given, if they are all counted through; otherwise the last one's."""
        through = position is not None
        counting = [digit for digit in digits if digit is not None]
        if position is None:
            if not counting:
                return f"no dim counts '{self.pixel.name}'"
            position = counting[-1].position
        axes: list[_Axis] = []
        weight, left = 1, len(counting)
        for dim, digit in zip(self.order, digits, strict=False):
            left -= digit is not None
            closed = through or left > 0 or self._stays(digit)
            radix = (1 if digit is None else digit.radix) if closed else None
            if digit is not None and (digit.weight != weight or (closed and radix is None)):
                return f"{to_text(digit.value)} is not the next digit, by {weight} pixels"
            if digit is not None and not closed and digit.radix is not None:
                return f"{to_text(digit.value)} begins again, and no dim counts how often"
            if digit is not None:
                period = weight * (radix or 1)
                if not self.facts.divisible((position - digit.position).to_expr(), period):
                    return f"{to_text(digit.value)} is no digit of {to_text(position.to_expr())}"
            axis = self._open(dim, digit) if radix is None else self._closed(dim, digit, radix)
            if isinstance(axis, str):
                return axis
            axes.append(axis)
            weight *= radix or 1
        return axes, weight, position

    def _stays(self, digit: _Digit | None) -> bool:
        """Whether the digit does not begin again within the pixels, though it may elsewhere."""
        if digit is None or digit.radix is None:
            return False
        begin = digit.position - affine(self.pixel)
        whole = digit.weight * digit.radix % self.pixels == 0
        return whole and self.facts.divisible(begin.to_expr(), self.pixels)

    def _closed(self, dim: int, digit: _Digit | None, radix: int) -> _Axis | str:
        """A dim along which the walk begins again after ``radix`` pixels."""
        index, step = self.view.index[dim], 1 if digit is None else digit.step
        tap = (affine(index) if digit is None else digit.rest).to_expr()
        least = self.facts.bounds(tap)[0]
        if least is None:
            return f"{to_text(tap)} has no least value"
        value = const(0) if digit is None else digit.value
        upper = least + step * (radix - 1) - (self.view.buffer.shape[dim] - 1)
        return _Axis(dim, value * step + least, step, least, upper, tap - least)

    def _open(self, dim: int, digit: _Digit | None) -> _Axis | str:
        """A dim along which the walk does not come to an end: the tap may as well be a part of
        where it begins."""
        index = self.view.index[dim]
        least, most = self.facts.bounds(index)
        if least is None or most is None:
            return f"{to_text(index)} is not bounded"
        upper = most - (self.view.buffer.shape[dim] - 1)
        return _Axis(dim, index, 1 if digit is None else digit.step, least, upper)

    def _limit(self, position: Affine) -> int | str | None:
        """The number of pixels, if a mask hides what is counted beyond."""
        limit = None
        for condition in hidden_inside(self.view, self.facts):
            form = difference(condition)
            left = None if form is None else form + position
            if left is None or not left.is_constant:
                text = to_text(condition)
                return f"its mask hides more than what is outside of the tensor: {text}"
            limit = min(limit or left.constant + 1, left.constant + 1)
        return limit


def _too_far(axes: Sequence[_Axis], facts: Facts) -> str | None:
    """What of the walk the unit cannot do."""
    rank = len(axes) + 1
    if rank not in CORNERS:
        return f"the tensor has {rank} dims, with those of channels and images, not 3 to 5"
    least, most = CORNERS[rank]
    for axis in axes[:-1]:
        if axis.step > _LONGEST_STEP:
            return f"pixels are {axis.step} elements apart, more than {_LONGEST_STEP}"
        far = facts.bounds(axis.tap)[1]
        if far is None or far > _FARTHEST[rank]:
            return f"taps are up to {far} elements away, more than {_FARTHEST[rank]}"
        if not (least <= axis.lower <= most and least <= axis.upper <= most):
            return f"its box goes from {axis.lower} to {axis.upper}, beyond {least} to {most}"
    return None
