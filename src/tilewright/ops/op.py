"""What all structured ops have in common: what defines them, their arguments, their kernel.

An op's kernel is *naive*: whole-tensor computes in sequence, without a loop. Its computes are

- ``init``: the accumulator is set to the neutral element;
- ``main``: the reduction into the accumulator;
- ``epilogue``: what `ops.epilogue` describes, from the accumulator to the result;
- ``NAME_paddingD``: padding of a blocked result set to 0, one for each padded dim;
- computes of their own for what is a reduction of its own (bias gradient, compensation).

Ops without a reduction consist of the epilogue alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import ClassVar, Self

from tilewright.dtypes import DType, bf16, f16, f32, f64, s32, s64
from tilewright.errors import ArgumentError, LayoutError, UnsupportedError, one_of
from tilewright.ir.buffer import Buffer, Layout, buffer
from tilewright.ir.stmt import Block, Kernel, Param, Stmt
from tilewright.ir.visit import block
from tilewright.layout.strides import check_blocks, check_reach, from_strides, overlaps
from tilewright.layout.tags import ANY, layout_of
from tilewright.ops.attributes import Attributes
from tilewright.ops.call_texts import called, direction_text, epilogue_text, knobs, types_text
from tilewright.ops.domain import padding_fills
from tilewright.problems import Direction, Problem, Shape

# Dims from the outermost in memory to the innermost, for ``any``.
_MEMORY_ORDER = "ndhwigoc"

# A tag, strides in elements, or a layout.
LayoutSpec = str | tuple[int, ...] | Layout

# What naive kernels call their temporaries, and what calls of a kernel take beside its arguments.
RESERVED = (
    "acc",
    "bias_acc",
    "weight_sums",
    "compensation",
    "dequantized",
    "dequantized_src",
    "out",
    "stream",
)


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an op's kernel, as a caller sees it.

    ``shape`` is logical; ``access`` is ``"in"``, ``"out"`` or ``"inout"``; ``role`` says what it
    is for: ``"src"``, ``"weights"``, ``"bias"``, ``"dst"``, ``"post_op"``, ``"scale"`` or
    ``"zero_point"``.
    """

    name: str
    shape: Shape
    dtype: DType
    layout: Layout
    access: str
    role: str


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a problem as an op uses it; ``letters`` name its dims in tags (``"nchw"``)."""

    name: str
    shape: Shape
    access: str
    letters: str | None = None


@dataclass(frozen=True, repr=False)
class Op(ABC):
    """A structured op: everything that determines its kernel, and nothing about how it runs.

    ``types`` and ``layouts`` are given by the tensor's name; a tensor without a layout has
    ``any``, which is row-major here and may be replaced (`with_layouts`) by whoever compiles.
    ``accumulator`` is the type that sums are kept in.
    """

    # Whether computes have the names and the order that the module describes, which recipes know.
    structured: ClassVar[bool] = True

    problem: Problem
    types: tuple[tuple[str, DType], ...]
    accumulator: DType
    layouts: tuple[tuple[str, LayoutSpec], ...] = ()
    attributes: Attributes = field(default_factory=Attributes)
    direction: Direction = Direction.FWD_D

    def __post_init__(self) -> None:
        """Meets every error of types, layouts, names and attributes now instead of in `kernel`."""
        self._check_layouts()
        self._check_nibbles()
        names = [argument.name for argument in self.arguments]
        for position, name in enumerate(names):
            if not name.isidentifier() or name in (*names[:position], *RESERVED):
                raise ArgumentError(
                    f"an argument cannot be called {name!r}",
                    why="the name is taken" if name.isidentifier() else "it is no identifier",
                    cure="name the operand of the post-op otherwise",
                )
        self.kernel()

    def _check_layouts(self) -> None:
        names = [tensor.name for tensor in self.tensors]
        for name, _ in self.layouts:
            if name not in names:
                raise LayoutError(
                    f"a layout is given for {name!r}, which {self.kind} does not have",
                    cure="choose one of " + ", ".join(names),
                )

    def _check_nibbles(self) -> None:
        """Only weights that are read may have 4 bits, those of convolution and matmul, and their
        zero points."""
        for argument in self.arguments:
            read = argument.role in ("weights", "zero_point") and argument.access == "in"
            if argument.dtype.is_nibble and not read:
                raise UnsupportedError(
                    f"{self.kind} takes no {argument.dtype} here",
                    where=argument.name,
                    why="only weights that are read, of convolution and matmul, may have 4 bits",
                    cure=f"use {'s8' if argument.dtype.kind == 'int' else 'u8'}",
                )

    @property
    def kind(self) -> str:
        """The driver: ``"conv"`` and so on."""
        return self.problem.driver

    @property
    def function_name(self) -> str:
        """The function of the face that makes it."""
        return self.kind

    @property
    def shares_tags(self) -> bool:
        """Whether the tag of one of source and result is the other's in that function, where that
        has none."""
        return False

    @property
    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """Inputs and results, inputs first, without those that attributes add."""

    @abstractmethod
    def _attribute_arguments(self) -> tuple[Argument, ...]:
        """The arguments that attributes add."""

    @abstractmethod
    def _statements(self, buffers: Mapping[str, Buffer]) -> Iterable[Stmt]:
        """The body of the naive kernel on the buffers of the arguments."""

    @property
    def identity(self) -> str:
        """Everything that determines the kernel, as text."""
        said = (f"{part.name}={getattr(self, part.name)!r}" for part in fields(self))
        return f"{type(self).__name__}({', '.join(said)})"

    def __repr__(self) -> str:
        """The call that makes it; its fields, where no call does."""
        return self._call() or self.identity

    def _call(self) -> str | None:
        result = next(tensor.name for tensor in self.tensors if tensor.access != "in")
        types = {name: type_ for name, type_ in self.types if name in self.problem.roles}
        epilogue = epilogue_text(self.attributes, tuple(types.values()), types[result])
        said = knobs(
            direction=direction_text(self.direction),
            dtype=types_text(types.values()),
            fpmath=self.attributes.fpmath and self.attributes.fpmath.name,
            **self._said_layouts(),
        )
        words = [repr(self.problem.descriptor()), *self._settings(), *said]
        return called(self.function_name, *words, *([f"epilogue={epilogue}"] if epilogue else []))

    def _said_layouts(self) -> dict[str, LayoutSpec]:
        layouts = dict(self.layouts)
        for name, other in (("src", "dst"), ("dst", "src")) if self.shares_tags else ():
            if isinstance(layouts.get(name), str):
                layouts.setdefault(other, ANY)
        return layouts

    def _settings(self) -> tuple[str, ...]:
        """The arguments of that call that other ops do not have."""
        return ()

    def dtype_of(self, tensor: str) -> DType:
        """The element type of a tensor of the problem."""
        return dict(self.types)[tensor]

    def layout_of(self, tensor: str) -> LayoutSpec:
        """What was said of a tensor's layout, ``any`` when nothing was."""
        return dict(self.layouts).get(tensor, ANY)

    def with_layouts(self, **layouts: LayoutSpec) -> Self:
        """The same op with other layouts for the named tensors."""
        return replace(self, layouts=tuple((dict(self.layouts) | layouts).items()))

    def resolved(self) -> Self:
        """The same op with a layout for each ``any`` whose tensor has named dims: channels last,
        and results that are weights with their outputs innermost.

        Weights that are only read stay ``any``: they may be packed before the kernel runs.
        """
        chosen = {
            tensor.name: "".join(sorted(tensor.letters, key=_MEMORY_ORDER.index))
            for tensor in self.tensors
            if tensor.letters is not None
            and set(tensor.letters) <= set(_MEMORY_ORDER)
            and self.layout_of(tensor.name) == ANY
            and not (tensor.name == "weights" and tensor.access == "in")
        }
        return self.with_layouts(**chosen) if chosen else self

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """The kernel's arguments in order: inputs, bias, what attributes add, results."""
        ours = [self._argument(tensor) for tensor in self.tensors]
        inputs = [argument for argument in ours if argument.access == "in"]
        results = [argument for argument in ours if argument.access != "in"]
        return (*inputs, *self._attribute_arguments(), *results)

    def _argument(self, tensor: Tensor) -> Argument:
        layout = resolve(self.layout_of(tensor.name), tensor.shape, tensor)
        name, type_ = tensor.name, self.dtype_of(tensor.name)
        return Argument(name, tensor.shape, type_, layout, tensor.access, role=name)

    def argument(self, name: str) -> Argument:
        """The argument called ``name``. Raises `ArgumentError` when there is none."""
        for argument in self.arguments:
            if argument.name == name:
                return argument
        raise ArgumentError(
            f"{self.kind} has no argument {name!r}",
            cure=one_of(name, [argument.name for argument in self.arguments]),
        )

    def kernel(self) -> Kernel:
        """The naive kernel: the meaning of the op, which the interpreter can run."""
        return self._naive

    @property
    def title(self) -> str:
        """The op in reports, beside its kind: what it computes, as a descriptor."""
        return self.problem.descriptor()

    @property
    def flops(self) -> int:
        """The work that counts: of a convolution, without what meets padding."""
        return int(getattr(self.problem, "valid_flops", 0))

    def exact_kernel(self) -> Kernel:
        """The naive kernel without the rounding that its fpmath allows."""
        if self.attributes.fpmath is None:
            return self.kernel()
        return replace(self, attributes=replace(self.attributes, fpmath=None)).kernel()

    @property
    def prepacked(self) -> str | None:
        """The argument that may be packed beforehand: weights whose layout is ``any``."""
        for tensor in self.tensors:
            if tensor.name == "weights" and tensor.access == "in":
                return "weights" if self.layout_of("weights") == ANY else None
        return None

    @cached_property
    def _naive(self) -> Kernel:
        params = tuple(Param(_buffer(argument), argument.access) for argument in self.arguments)
        return self._with_padding(self._body(params))

    def _body(self, params: tuple[Param, ...]) -> Kernel:
        """The kernel of these arguments, without what fills the padding of results."""
        statements = self._statements({param.name: param.buffer for param in params})
        return Kernel(self._kernel_name, params, block(*statements))

    @property
    def _kernel_name(self) -> str:
        return f"{self.kind}_{self.direction.value.lower()}"

    def _with_padding(self, kernel: Kernel) -> Kernel:
        fills: list[Stmt] = []
        for param in kernel.arrays:
            if param.access != "in":
                fills += padding_fills(param.buffer)
        notes = {"problem": self.problem.descriptor(), "direction": self.direction.value}
        body = kernel.body.body if isinstance(kernel.body, Block) else (kernel.body,)
        return replace(kernel, body=block(*body, *fills), notes=notes)


def resolve(spec: LayoutSpec, shape: Shape, tensor: Tensor | None = None) -> Layout:
    """The layout of a tensor of ``shape`` that a tag, strides or a layout says.

    Raises `LayoutError`; for a result also when two of its elements would share memory.
    """
    where = tensor.name if tensor is not None else None
    if isinstance(spec, str):
        layout = layout_of(spec, shape, tensor.letters if tensor is not None else None)
        check_reach(layout, where)
        return layout
    written = tensor is not None and tensor.access != "in"
    if isinstance(spec, tuple):
        return from_strides(shape, spec, written=written)
    check_blocks(spec, len(shape), where)
    held = spec.padded_shape(len(shape))
    if any(have < need for have, need in zip(held, shape, strict=True)):
        raise LayoutError(
            f"the layout holds {held}, less than the tensor's {shape}",
            where=where,
            cure="make a layout for this shape",
        )
    if spec.offset or spec.swizzle is not None:
        raise LayoutError(
            "the layout has an offset" if spec.offset else "the layout is swizzled",
            where=where,
            why="a kernel is passed the address of the first element of a strided array",
            cure="pass an array that begins there"
            if spec.offset
            else "swizzle a shared copy of it",
        )
    if written and overlaps(spec):
        raise LayoutError(
            "elements of a result overlap in memory",
            where=where,
            why="two indices have the same offset",
            cure="give the blocks of a result strides under which every element has its own place",
        )
    return spec


def accumulator_of(*types: DType) -> DType:
    """The type that products of ``types`` are summed in.

    s32 when all are integers (those of 4 bits, too); f64 when one is f64; else f32. That is
    what oneDNN does.
    """
    if all(dtype.is_integer for dtype in types):
        return s32
    return f64 if f64 in types else f32


def chosen_accumulator(asked: DType | None, a: DType, b: DType) -> DType:
    """The type that products of ``a`` and ``b`` are summed in: ``asked``, or else derived.

    f32 and f64 hold sums of anything that is no wider, f16 and bf16 of floats that are no wider,
    s32 and s64 of integers. Raises `UnsupportedError` for what would not hold them.
    """
    if asked is None:
        return accumulator_of(a, b)
    floats = [dtype for dtype in (a, b) if not dtype.is_integer]
    choices = [f64, f32] if f64 not in floats else [f64]
    if not floats:
        choices += [s32, s64]
    elif len(floats) == 2 and a.bits <= 16 and b.bits <= 16:
        choices += [f16, bf16]
    if asked not in choices:
        raise UnsupportedError(
            f"sums of products of {a} and {b} are not kept in {asked}",
            where="accumulator",
            why="it is no type that a sum fits in"
            if asked not in (f64, f32, f16, bf16, s32, s64)
            else "it would lose what the operands hold",
            cure="choose one of " + ", ".join(map(str, choices)) + ", or leave it out",
        )
    return asked


def accumulator_words(accumulator: DType, a: DType, b: DType) -> tuple[str, ...]:
    """What a call says of the type that products of ``a`` and ``b`` are summed in."""
    usual = accumulator is accumulator_of(a, b)
    return () if usual else (f"accumulator={accumulator.name!r}",)


def check_types(kind: str, types: Mapping[str, DType]) -> None:
    """Raises `UnsupportedError` for element types that no op computes on."""
    for tensor, dtype in types.items():
        if dtype.kind == "bool":
            raise UnsupportedError(
                f"{kind} does not compute on {dtype.name}", where=tensor, cure="use u8"
            )


def _buffer(argument: Argument) -> Buffer:
    return buffer(argument.name, argument.dtype, argument.shape, argument.layout)
