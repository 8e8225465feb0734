"""Convolution: one function of three tensors, and three ways to view them.

The function is ``C[pure dims] += A[...] * B[...]`` over named dims. What differs by direction is
which tensors A, B and C are, and so which dims are reduced:

    forward              C = dst      A = src   B = weights   reduced: ic, taps
    backward by data     C = src      A = dst   B = weights   reduced: oc, taps
    backward by weights  C = weights  A = src   B = dst       reduced: mb, output positions

Dims: ``mb``, ``g`` (with groups), ``oc`` and ``ic`` (within a group), ``od oh ow`` or ``id ih iw``
(positions), ``kd kh kw`` (taps). By data, a tap's output position exists where the stride divides,
so transposed convolution is this direction too.

Source: oneDNN's developer guide, "Convolution"; dilation 0 is dense, as there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from tilewright.dtypes import DType, f32, f64
from tilewright.errors import UnsupportedError
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Var, cast, var
from tilewright.ir.stmt import Allocate, Compute, Dim, Stmt, View
from tilewright.ops.attribute_arguments import attribute_arguments
from tilewright.ops.attributes import Attributes
from tilewright.ops.contraction import Contraction, contract
from tilewright.ops.domain import (
    accumulator,
    combination,
    dim,
    fill,
    mask_of,
    middle_of,
    operand,
    source_of,
    target_of,
)
from tilewright.ops.epilogue import Result, epilogue
from tilewright.ops.op import (
    Argument,
    LayoutSpec,
    Op,
    Tensor,
    accumulator_words,
    check_types,
    chosen_accumulator,
)
from tilewright.problems import ConvProblem, Direction

# Which tensors are A, B and C.
_ROLES = {
    Direction.FWD_D: ("src", "weights", "dst"),
    Direction.FWD_B: ("src", "weights", "dst"),
    Direction.BWD_D: ("dst", "weights", "src"),
    Direction.BWD_W: ("src", "dst", "weights"),
    Direction.BWD_WB: ("src", "dst", "weights"),
}


@dataclass(frozen=True, repr=False)
class Convolution(Op):
    """A convolution in one direction; see the module.

    By data, the epilogue is that of a transposed convolution: bias and post-ops on ``src``.
    """

    problem: ConvProblem

    function_name: ClassVar[str] = "convolution"
    shares_tags: ClassVar[bool] = True

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """A and B (inputs), then C, then the gradient of the bias where there is one."""
        spatial = "".join(self.problem.spatial_names)
        letters = {"src": f"nc{spatial}", "dst": f"nc{spatial}"}
        letters["weights"] = f"oi{spatial}" if self.problem.g == 1 else f"goi{spatial}"
        shapes = self.problem.shapes
        accesses = ("in", "in", self.attributes.result_access)
        tensors = [
            Tensor(name, shapes[name], access, letters[name])
            for name, access in zip(_ROLES[self.direction], accesses, strict=True)
        ]
        if self.direction is Direction.BWD_WB:
            tensors.append(Tensor("bias", (self.problem.oc,), "out"))
        return tuple(tensors)

    def _call(self) -> str | None:
        # The type of a bias' gradient is none that a call says.
        usual = f64 if self.accumulator is f64 else f32
        return super()._call() if dict(self.types).get("bias", usual) is usual else None

    def _settings(self) -> tuple[str, ...]:
        a, b, _ = _ROLES[self.direction]
        return accumulator_words(self.accumulator, self.dtype_of(a), self.dtype_of(b))

    def _attribute_arguments(self) -> tuple[Argument, ...]:
        a, b, c = (self._argument(tensor) for tensor in self.tensors[:3])
        inputs = {self._called(a.name): a, b.name: b}
        return attribute_arguments(self.attributes, c, inputs, driver="conv", grouped=self._grouped)

    def _called(self, tensor: str) -> str:
        """What attributes call an input: by data backward, which is a transposed convolution,
        ``dst`` is what is multiplied, and ``src`` the result."""
        return "src" if self.direction is Direction.BWD_D and tensor == "dst" else tensor

    @property
    def _grouped(self) -> tuple[str, ...]:
        return ("weights",) if self.problem.g > 1 else ()

    def _statements(self, buffers: Mapping[str, Buffer]) -> Iterable[Stmt]:
        views = contraction_of(self.problem, self.direction, buffers)
        result = Result(
            views.kept,
            views.c.buffer,
            views.c.index,
            driver="conv",
            inputs={self._called(view.buffer.name): view for view in (views.a, views.b)},
            grouped=self._grouped,
        )
        yield from contract(views, self.accumulator, result, self.attributes, buffers)
        if self.direction is Direction.BWD_WB:
            yield from self._bias_gradient(views.b, buffers["bias"])

    def _bias_gradient(self, dst: View, bias: Buffer) -> Iterable[Stmt]:
        """``bias = sum of dst`` over images and positions: a reduction of its own."""
        problem = self.problem
        domain = dst_dims(problem)
        kept = [d for d in domain if d.var.name in ("g", "oc")]
        reduced = [d for d in domain if d not in kept]
        acc = accumulator("bias_acc", self.accumulator, kept)
        yield Allocate(acc)
        yield fill("bias_init", acc, kept, 0)
        out = View(acc, tuple(d.var for d in kept))
        element = operand("b", dst.buffer, dst.index)
        body = cast(self.accumulator, element.var)
        yield Compute.single("bias_main", (*kept, *reduced), out, (element,), body, "add")
        result = Result(tuple(kept), bias, (dst.index[1],), driver="conv")
        total = operand("acc", acc, out.index)
        yield epilogue("bias_epilogue", (total,), total.var, result, Attributes(), {})


def convolution_op(
    problem: ConvProblem,
    direction: Direction = Direction.FWD_D,
    types: Mapping[str, DType] | DType = f32,
    layouts: Mapping[str, LayoutSpec] | None = None,
    attributes: Attributes | None = None,
    accumulator: DType | None = None,
) -> Convolution:
    """The convolution ``problem`` in one direction.

    ``types`` is one element type, or one for each of ``src``, ``weights``, ``dst`` (and ``bias``:
    f32 unless given); ``layouts`` by the same names. ``accumulator`` is derived unless given.

    Raises `UnsupportedError` and `LayoutError`.
    """
    attributes = attributes if attributes is not None else Attributes()
    if isinstance(types, DType):
        types = dict.fromkeys(problem.shapes, types)
    a, b, _ = _ROLES[direction]
    acc = chosen_accumulator(accumulator, types[a], types[b])
    bias = types.get("bias", f64 if acc is f64 else f32)
    if direction.is_forward:
        if direction.has_bias and attributes.bias is None:
            attributes = replace(attributes, bias=bias)
        direction = Direction.FWD_D if attributes.bias is None else Direction.FWD_B
    else:
        _check_backward(direction, attributes)
    chosen = {name: types[name] for name in problem.shapes}
    if direction is Direction.BWD_WB:
        chosen["bias"] = bias
    check_types("conv", chosen)
    return Convolution(
        problem, tuple(chosen.items()), acc, tuple((layouts or {}).items()), attributes, direction
    )


def contraction_of(
    problem: ConvProblem, direction: Direction, buffers: Mapping[str, Buffer]
) -> Contraction:
    """The views of one direction. The only place that knows one direction from another."""
    if direction.is_forward:
        return _forward(problem, buffers)
    if direction is Direction.BWD_D:
        return _backward_data(problem, buffers)
    return _backward_weights(problem, buffers)


def _forward(problem: ConvProblem, buffers: Mapping[str, Buffer]) -> Contraction:
    kept = dst_dims(problem)
    reduced = (dim("ic", problem.ic // problem.g), *tap_dims(problem))
    return Contraction(
        a=_src_at_taps(problem, buffers["src"]),
        b=View(buffers["weights"], _weights_index(problem)),
        c=_positions(problem, buffers["dst"], "o"),
        kept=kept,
        reduced=reduced,
        middle={
            var(f"o{axis}"): middle
            for axis, window in zip(problem.spatial_names, problem.windows, strict=True)
            if (middle := middle_of(window)) is not None
        },
    )


def _backward_data(problem: ConvProblem, buffers: Mapping[str, Buffer]) -> Contraction:
    taps = tuple(
        target_of(window, var(f"i{axis}"), var(f"k{axis}"))
        for axis, window in zip(problem.spatial_names, problem.windows, strict=True)
    )
    index = (var("mb"), _channel(problem, "oc"), *(tap.index for tap in taps))
    return Contraction(
        a=View(buffers["dst"], index, mask_of(taps)),
        b=View(buffers["weights"], _weights_index(problem)),
        c=_positions(problem, buffers["src"], "i"),
        kept=(*_head(problem), dim("ic", problem.ic // problem.g), *_spatial(problem, "i")),
        reduced=(dim("oc", problem.oc // problem.g), *tap_dims(problem)),
    )


def _backward_weights(problem: ConvProblem, buffers: Mapping[str, Buffer]) -> Contraction:
    groups = (dim("g", problem.g),) if problem.g > 1 else ()
    channels = (dim("oc", problem.oc // problem.g), dim("ic", problem.ic // problem.g))
    return Contraction(
        a=_src_at_taps(problem, buffers["src"]),
        b=_positions(problem, buffers["dst"], "o"),
        c=View(buffers["weights"], _weights_index(problem)),
        kept=(*groups, *channels, *tap_dims(problem)),
        reduced=(dim("mb", problem.mb), *_spatial(problem, "o")),
    )


def dst_dims(problem: ConvProblem) -> tuple[Dim, ...]:
    """``mb``, ``g`` (with groups), ``oc``, and the output positions."""
    return (*_head(problem), dim("oc", problem.oc // problem.g), *_spatial(problem, "o"))


def tap_dims(problem: ConvProblem) -> tuple[Dim, ...]:
    """``kh``, ``kw`` and so on."""
    return _spatial(problem, "k")


def _head(problem: ConvProblem) -> tuple[Dim, ...]:
    groups = (dim("g", problem.g),) if problem.g > 1 else ()
    return (dim("mb", problem.mb), *groups)


def _spatial(problem: ConvProblem, letter: str) -> tuple[Dim, ...]:
    sizes = {"i": problem.src_size, "k": problem.kernel, "o": problem.dst_size}[letter]
    names = zip(problem.spatial_names, sizes, strict=True)
    return tuple(dim(f"{letter}{axis}", size) for axis, size in names)


def _channel(problem: ConvProblem, name: str) -> Expr:
    """The channel of all groups together that is ``name`` within its group."""
    if problem.g == 1:
        return var(name)
    channels = problem.ic if name == "ic" else problem.oc
    return combination(((var("g"), channels // problem.g), (var(name), 1)))


def _positions(problem: ConvProblem, tensor: Buffer, letter: str) -> View:
    """``src`` (letter i) or ``dst`` (letter o) at each of its positions."""
    spatial = tuple(var(f"{letter}{axis}") for axis in problem.spatial_names)
    return View(tensor, (var("mb"), _channel(problem, f"{letter}c"), *spatial))


def _src_at_taps(problem: ConvProblem, src: Buffer) -> View:
    taps = tuple(
        source_of(window, var(f"o{axis}"), var(f"k{axis}"))
        for axis, window in zip(problem.spatial_names, problem.windows, strict=True)
    )
    index = (var("mb"), _channel(problem, "ic"), *(tap.index for tap in taps))
    return View(src, index, mask_of(taps))


def _weights_index(problem: ConvProblem) -> tuple[Var, ...]:
    names = ["oc", "ic", *(f"k{axis}" for axis in problem.spatial_names)]
    return tuple(var(name) for name in (["g", *names] if problem.g > 1 else names))


def _check_backward(direction: Direction, attributes: Attributes) -> None:
    """Raises `UnsupportedError` for attributes that a backward direction does not take."""
    if direction.is_backward_weights and replace(attributes, fpmath=None) != Attributes():
        raise UnsupportedError(
            f"conv {direction.value} takes no scales, zero points and post-ops",
            why="the gradient of weights is stored as it is",
            cure="leave them out, or apply them in an op of their own",
        )
