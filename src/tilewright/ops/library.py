"""Ops of the library: a record's problem with types and layouts, as a kernel.

The kernel is parsed from the text that the record writes, so that it is what a user would write by
hand, and is scheduled as such: its computes have no names or order that recipes know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

from tilewright.dtypes import DType, f32
from tilewright.errors import ProblemError, UnsupportedError, short
from tilewright.ir.buffer import Buffer, buffer
from tilewright.ir.expr import const
from tilewright.ir.parser import parse_kernel
from tilewright.ir.printer import parameter_text
from tilewright.ir.stmt import Block, Compute, Kernel, Param, Stmt, View
from tilewright.ir.visit import block
from tilewright.ops.argument_forms import direction_of, layouts_of, problem_of, types_of
from tilewright.ops.attribute_arguments import attribute_arguments
from tilewright.ops.attributes import Attributes, check_sources
from tilewright.ops.call_texts import called, direction_text, library_call, types_text
from tilewright.ops.epilogue import Result, epilogue
from tilewright.ops.formulas.call import built
from tilewright.ops.formulas.table import FORMULAS
from tilewright.ops.op import Argument, LayoutSpec, Op, Tensor
from tilewright.problems import Direction, Record
from tilewright.problems.library.record import accumulator_for
from tilewright.tensor.replacing import with_buffers

# One element type, which is what `dtypes.dtype` takes, or several.
Types = Any
R = TypeVar("R", bound=Record)


@dataclass(frozen=True, repr=False)
class LibraryOp(Op):
    """What a record describes."""

    problem: Record

    structured: ClassVar[bool] = False

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Those of the record in this direction."""
        reads = self.attributes.reads_dst
        return tuple(
            Tensor(s.name, s.shape, "inout" if reads and s.name == "dst" else s.access, s.letters)
            for s in self.problem.slots(self.direction)
        )

    @property
    def prepacked(self) -> str | None:
        """Nothing: no recipe packs arrays of these by itself."""
        return None

    def _call(self) -> str | None:
        call = library_call(self.problem)
        if call is None or self._finishes:
            return None
        function, words = call
        roles = {slot.name: slot.role for slot in self.problem.slots(self.direction)}
        types = [self.dtype_of(role) for role in self.problem.roles]
        usual = tuple(types) == self.problem.expanded(types[:1])
        layouts: dict[str, LayoutSpec] = {}
        for name, layout in self.layouts:
            if layouts.setdefault(roles.get(name, name), layout) != layout:
                return None
        return called(
            function,
            *words,
            direction=direction_text(self.direction),
            dtype=types_text(types[:1] if usual else types),
            **layouts,
        )

    @property
    def _finishes(self) -> bool:
        """Whether its result has more to it than the record says."""
        return self.attributes != Attributes()

    def _attribute_arguments(self) -> tuple[Argument, ...]:
        if not self._finishes:
            return ()
        arguments = {tensor.name: self._argument(tensor) for tensor in self.tensors}
        inputs = {"src": arguments["src"]} if "src" in arguments else {}
        return attribute_arguments(self.attributes, arguments["dst"], inputs, driver=self.kind)

    def _statements(self, buffers: Mapping[str, Buffer]) -> Iterable[Stmt]:
        params = tuple(
            Param(buffers[argument.name], argument.access) for argument in self.arguments
        )
        return (self._body(params).body,)

    def _body(self, params: tuple[Param, ...]) -> Kernel:
        if not self._finishes:
            return self._parsed(params, dict(self.types))
        target = next(param for param in params if param.name == "dst")
        wide = Param(buffer("dst", self.accumulator, target.buffer.shape), "out")
        plain = tuple(wide if param is target else param for param in params)
        kernel = self._parsed(plain, dict(self.types) | {"dst": self.accumulator})
        buffers = {array.name: array.buffer for array in kernel.arrays} | {"dst": target.buffer}
        unstored = next(array.buffer for array in kernel.arrays if array.name == "dst")
        statements = kernel.body.body if isinstance(kernel.body, Block) else (kernel.body,)
        body = [self._finished(stmt, unstored, buffers) for stmt in statements]
        arrays = [target if array.name == "dst" else array for array in kernel.arrays]
        return Kernel(kernel.name, tuple(arrays), block(*body))

    def _finished(self, stmt: Stmt, plain: Buffer, buffers: Mapping[str, Buffer]) -> Stmt:
        """``stmt``, with the epilogue where it gives elements of ``plain``, the result as it is in
        the accumulator's type."""
        if not isinstance(stmt, Compute):
            return stmt
        if all(view.buffer is not plain for result in stmt.results for view in result.views):
            return stmt
        if len(stmt.results) > 1 or stmt.combiner is not None or stmt.out.mask is not None:
            raise UnsupportedError(
                f"{self.kind} {self.problem.algorithm} takes no scales and post-ops here",
                why="its result is made bit by bit",
                cure="compute them in an op of their own",
            )
        inputs = {}
        if "src" in buffers:
            # One scale for all of it.
            inputs["src"] = View(buffers["src"], (const(0),) * buffers["src"].rank)
        result = Result(stmt.dims, buffers["dst"], stmt.out.index, self.kind, inputs=inputs)
        return epilogue(stmt.name, stmt.operands, stmt.body, result, self.attributes, buffers)

    def _parsed(self, params: tuple[Param, ...], types: Mapping[str, DType]) -> Kernel:
        formula = FORMULAS.get(type(self.problem))
        if formula is not None:
            graph = built(formula, self.problem, types, self.direction)
            buffers = {param.name: param.buffer for param in params}
            return Kernel(
                self._kernel_name,
                params,
                with_buffers(graph.body, {p.buffer: buffers[p.name] for p in graph.arrays}),
            )
        header = f"kernel {self._kernel_name}({', '.join(map(parameter_text, params))}):"
        body = self.problem.body(types, self.direction)
        lines = (f"  {line}" for line in body.splitlines() if line.strip())
        return _read("\n".join((header, *lines)) + "\n")


@lru_cache(maxsize=64)
def _read(text: str) -> Kernel:
    """The kernel of a text: networks have the same one in each of their blocks."""
    return parse_kernel(text)


def library_op(
    problem: Record,
    direction: Direction = Direction.FWD_D,
    types: Mapping[str, DType] | DType = f32,
    layouts: Mapping[str, LayoutSpec] | None = None,
    attributes: Attributes | None = None,
) -> LibraryOp:
    """The op of ``problem``; ``types`` and ``layouts`` for the record's roles (a type for all:
    indices are s32).

    Raises `UnsupportedError` for types, directions and attributes that the record does not take,
    and `LayoutError`.
    """
    if isinstance(types, DType):
        types = dict(zip(problem.roles, problem.expanded((types,)), strict=True))
    problem.check_direction(direction)
    attributes = attributes or Attributes()
    _check_attributes(problem, direction, attributes)
    problem.check(types, direction)
    acc = accumulator_for(types)
    slots = problem.slots(direction)
    slot_types = {slot.name: types[slot.role] if slot.role else slot.dtype or acc for slot in slots}
    chosen = {**types, **slot_types}
    chosen_layouts = layouts or {}
    placed = {slot.name: chosen_layouts[slot.role] for slot in slots if slot.role in chosen_layouts}
    unknown = set(chosen_layouts) - set(problem.roles)
    if unknown:
        placed |= {name: chosen_layouts[name] for name in unknown}
    return LibraryOp(
        problem, tuple(chosen.items()), acc, tuple(placed.items()), attributes, direction
    )


def _check_attributes(problem: Record, direction: Direction, attributes: Attributes) -> None:
    """Raises `UnsupportedError` for attributes that the op does not take: a scale of src is a
    factor of the result, and one."""
    if attributes.bias is not None or attributes.fpmath is not None:
        raise UnsupportedError(
            f"{problem.driver} takes no bias and no fpmath", cure="use a post-op, add with per_oc"
        )
    if attributes != Attributes() and not (problem.finished and direction.is_forward):
        raise UnsupportedError(
            f"{problem.driver} takes no scales and post-ops here",
            cure="compute them in an op of their own, or in a kernel from text",
        )
    check_sources(problem.driver, attributes, "always")
    source = attributes.scale("src")
    if source is not None and source.policy.name != "common":
        raise UnsupportedError(
            f"{problem.driver} takes one scale for src",
            where=source.describe(),
            cure="use policy common",
        )


def asked(values: object, kind: type[R], **settings: Any) -> R:
    """The problem that a descriptor, a shape or an object says, with these settings (None: as the
    descriptor says): what the functions that users call are made of. Raises `ProblemError`."""
    algorithm = settings.pop("algorithm", None)
    said = {name: value for name, value in settings.items() if value is not None}
    if isinstance(values, tuple | list) and fields(kind)[0].name in ("shape", "sources"):
        construct: Any = kind
        result: R = construct(values, **said)
    else:
        result = problem_of(values, kind).changed(**said)
    return result if algorithm is None else result.with_alg(algorithm)


def switch(value: object, name: str) -> bool:
    """``value``, which is True or False. Raises `ProblemError` for anything else."""
    if not isinstance(value, bool):
        raise ProblemError(
            f"{name} is yes or no, not {short(value)}", where=name, cure="write True or False"
        )
    return value


def op_of(problem: Record, direction: object, dtype: Types, **layouts: object) -> LibraryOp:
    """The op that a function which users call gives, of what it was given: one type or several,
    layouts by role."""
    types: Mapping[str, DType] = types_of(dtype, problem.roles)
    if len(set(types.values())) == 1:
        one = problem.expanded((next(iter(types.values())),))
        types = dict(zip(problem.roles, one, strict=True))
    return library_op(problem, direction_of(direction), types, layouts_of(**layouts))
