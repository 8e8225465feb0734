"""Well-formedness: `verify` refuses a malformed kernel, with the place and the cure.

Every name is defined once on the path to where it is used; types agree; indices fit their buffer;
what is written may be written; loops nest in an order that a machine can run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from tilewright.dtypes import DType, boolean, s64
from tilewright.errors import VerificationError
from tilewright.ir.buffer import MAX_EXTENT, Buffer, Space
from tilewright.ir.constants import constant_defect
from tilewright.ir.expr import Const, Expr, Var
from tilewright.ir.functions import FUNCTIONS
from tilewright.ir.load import Load
from tilewright.ir.opaque import declaration_defect
from tilewright.ir.printer import headline, to_text
from tilewright.ir.scope import Scope
from tilewright.ir.sizes import Sizes
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Call,
    Combiner,
    Compute,
    For,
    If,
    Kernel,
    Let,
    Opaque,
    ScalarParam,
    Stmt,
    Store,
    View,
    While,
)
from tilewright.ir.verify_computes import compute_defect, shape_defect
from tilewright.ir.verify_groups import (
    Defect,
    allocation_defect,
    call_defect,
    completion_defect,
    in_threads,
    loop_defect,
    may_nest,
    sharing_defect,
)
from tilewright.ir.verify_lanes import Sources, extent_defect, repetition_defect
from tilewright.ir.verify_layout import layout_defect, symbolic_layout_defect
from tilewright.ir.verify_scalars import scalar_defect
from tilewright.ir.verify_uniform import runs_equally_often
from tilewright.ir.visit import reads_memory, variables, walk

ACCESSES = ("in", "out", "inout")

__all__ = ["may_nest", "verify"]


# Those in which nothing is wrong: kernels do not change, and are asked about again and again.
_right: WeakSet[Kernel] = WeakSet()


def verify(kernel: Kernel) -> None:
    """Raises `VerificationError` for the first thing that is wrong with ``kernel``."""
    if kernel not in _right:
        _Verifier(kernel).run()
        _right.add(kernel)


class _Verifier:
    def __init__(self, kernel: Kernel) -> None:
        self.variables: Scope[DType] = Scope()
        self.buffers: Scope[Buffer] = Scope()
        self.read_only = {id(p.buffer) for p in kernel.arrays if p.access == "in"}
        # Scalar parameters, and their bounds and divisors.
        self.scalars = frozenset(param.var for param in kernel.scalars)
        self.bounds = Sizes(kernel.scalars)
        # Buffers allocated outside of loops over work-items.
        self.shared: set[int] = set()
        self.sources = Sources()
        # The enclosing statements, and the present one.
        self.path: list[Stmt] = []
        self.kernel = kernel

    def refuse(self, what: str, cure: str, why: str | None = None) -> VerificationError:
        """The error about the present statement."""
        lines = [f"`{headline(stmt)}`" for stmt in self.path if not isinstance(stmt, Block)]
        place = " in ".join(reversed(lines)) or "the parameters"
        spans = [stmt.span for stmt in reversed(self.path) if stmt.span is not None]
        return VerificationError(
            what,
            where=f"{place} in kernel {self.kernel.name}",
            why=why,
            cure=cure,
            span=spans[0] if spans else self.kernel.span,
        )

    def check(self, defect: Defect | None) -> None:
        if defect is not None:
            raise self.refuse(*defect)

    # Kernels and declarations.

    def run(self) -> None:
        """All of the kernel."""
        kernel = self.kernel
        self.name(kernel.name)
        self.names(kernel)
        for param in kernel.params:
            if isinstance(param, ScalarParam):
                self.check(scalar_defect(param))
                self.define(param.var)
                continue
            name = param.name
            if param.access not in ACCESSES:
                cure = "use one of " + ", ".join(ACCESSES)
                raise self.refuse(f"the parameter {name} has the access {param.access!r}", cure)
            if param.buffer.space not in (Space.GLOBAL, Space.CONSTANT):
                space = param.buffer.space.value
                cure = "pass global or constant memory, and copy it inside"
                raise self.refuse(f"the parameter {name} is in {space} memory", cure)
            if param.digest is not None:
                defect = constant_defect(param, kernel.constants.get(param.digest))
                if defect is not None:
                    raise self.refuse(*defect)
            self.declare(param.buffer, written=param.access != "in")
        self.stmt(kernel.body)

    def names(self, kernel: Kernel) -> None:
        """Parameters have distinct names: calls pass them by name."""
        seen = {param.name for param in kernel.arrays}
        for param in kernel.scalars:
            if param.name in seen:
                cure = "give it a name of its own"
                raise self.refuse(f"two parameters are called {param.name}", cure)
            seen.add(param.name)

    def declare(self, buffer: Buffer, written: bool) -> None:
        """A parameter or an allocation."""
        self.name(buffer.name)
        if self.buffers.get(buffer.name) is not None:
            cure = "give it a name of its own"
            raise self.refuse(f"a buffer called {buffer.name} is in scope already", cure)
        if written and buffer.space is Space.CONSTANT:
            cure = "make it global, or pass it as `in`"
            raise self.refuse(f"{buffer.name} is written, but constant memory cannot be", cure)
        if buffer.symbols:
            self.sizes(buffer)
            defect = symbolic_layout_defect(buffer, written, self.bounds)
        else:
            defect = layout_defect(buffer, written)
        if defect is not None:
            raise self.refuse(f"the layout of {buffer.name} {defect[0]}", defect[1])
        self.buffers.define(buffer.name, buffer)

    def sizes(self, buffer: Buffer) -> None:
        """The sizes of a symbolic buffer are expressions of scalar parameters."""
        layout = buffer.layout
        for size in (
            *buffer.sizes,
            *(size for part in layout.parts for size in (part.size, part.stride)),
            layout.start,
        ):
            if not isinstance(size, Expr):
                continue
            self.expr(size, s64, f"a size of {buffer.name}")
            if reads_memory(size) or not variables(size) <= self.scalars:
                raise self.refuse(
                    f"a size of {buffer.name} is `{to_text(size)}`",
                    "compute sizes from scalar parameters only",
                    "memory is laid out before the kernel runs",
                )
        if buffer.space not in (Space.GLOBAL, Space.CONSTANT):
            names = ", ".join(sorted(symbol.name for symbol in buffer.symbols))
            raise self.refuse(
                f"the sizes of {buffer.name} depend on {names}, and it is in "
                f"{buffer.space.value} memory",
                "give it sizes that are numbers, or global memory",
            )

    def define(self, variable: Var) -> None:
        """A variable that is new here."""
        self.name(variable.name)
        if self.variables.get(variable.name) is not None:
            cure = "rename one of them: a name means one thing on the way to its use"
            raise self.refuse(f"{variable.name} is defined twice", cure)
        self.variables.define(variable.name, variable.type)

    def name(self, name: str) -> None:
        if not name or "`" in name or not name.isprintable():
            cure = "choose printable characters, without backquotes"
            raise self.refuse(f"{name!r} is no name", cure)

    @contextmanager
    def scope(self) -> Iterator[None]:
        with self.variables.nested(), self.buffers.nested():
            yield

    # Expressions.

    def expr(self, expr: Expr, type_: DType | None, what: str) -> None:
        """``expr`` uses what is in scope, and has that type."""
        for node in walk(expr):
            if isinstance(node, Var):
                self.use(node)
            elif isinstance(node, Load):
                self.access(node.buffer, node.index, node.mask)
        if type_ is not None and expr.type is not type_:
            cure = f"convert it: `{type_}(...)`"
            raise self.refuse(f"{what} must be {type_}, `{to_text(expr)}` is {expr.type}", cure)

    def extent(self, expr: Expr, what: str) -> None:
        """How often a loop or a dim counts: no further than memory reaches."""
        self.expr(expr, s64, what)
        if isinstance(expr, Const) and expr.value > MAX_EXTENT:
            why = "nothing has so many elements, and sums of such numbers overflow"
            raise self.refuse(f"{what} is {expr.value}", "stay below 2^60", why)

    def use(self, variable: Var) -> None:
        type_ = self.variables.get(variable.name)
        if type_ is None:
            cure = "define it by a loop or a let around, or before it in its block"
            raise self.refuse(f"{variable.name} is used where it is not defined", cure)
        if type_ is not variable.type:
            raise self.refuse(
                f"{variable.name} is defined as {type_} and used as {variable.type}",
                "use one variable, and convert its value",
            )

    def access(self, buffer: Buffer, index: tuple[Expr, ...], mask: Expr | None) -> None:
        """The place in a buffer; the names in ``index`` and ``mask`` are checked by `expr`."""
        if self.buffers.get(buffer.name) is not buffer:
            in_scope = self.buffers.get(buffer.name) is not None
            raise self.refuse(
                f"{buffer.name} is another buffer than the one of that name in scope"
                if in_scope
                else f"the buffer {buffer.name} is not in scope",
                "make it a parameter, or allocate it before its use in the block or around it",
            )
        if id(buffer) in self.shared:
            self.check(sharing_defect(buffer, self.path))
        if len(index) != buffer.rank:
            raise self.refuse(
                f"{buffer.name} has {buffer.rank} dims, but {len(index)} indices are given",
                f"give one index per dim of {buffer}",
            )
        for part in index:
            if part.type is not s64:
                what = f"an index must be s64, `{to_text(part)}` is {part.type}"
                raise self.refuse(what, "convert it: `s64(...)`")
        if mask is not None and mask.type is not boolean:
            what = f"a mask must be bool, `{to_text(mask)}` is {mask.type}"
            raise self.refuse(what, "compare it: `x != 0`")

    def view(self, view: View) -> None:
        self.access(view.buffer, view.index, view.mask)
        for part in (*view.index, *(() if view.mask is None else (view.mask,))):
            self.expr(part, None, "")

    def written(self, buffer: Buffer) -> None:
        if id(buffer) in self.read_only:
            cure = "make the parameter `out` or `inout`"
            raise self.refuse(f"{buffer.name} is an `in` parameter, but is written", cure)

    # Statements.

    def stmt(self, stmt: Stmt) -> None:
        self.path.append(stmt)
        _CHECKS[type(stmt)](self, stmt)
        self.path.pop()

    def nested(self, *stmts: Stmt) -> None:
        """Statements with a scope of their own each."""
        for stmt in stmts:
            with self.scope():
                self.stmt(stmt)

    def block(self, stmt: Block) -> None:
        with self.scope():
            for part in stmt.body:
                self.stmt(part)

    def loop(self, stmt: For) -> None:
        if stmt.var.type is not s64:
            cure = "count in s64, and convert the index where it is used"
            raise self.refuse(f"the loop variable {stmt.var.name} is {stmt.var.type}", cure)
        self.extent(stmt.extent, "an extent")
        self.check(loop_defect(self.path))
        self.repetition(stmt)
        with self.scope(), self.sources.inside(stmt):
            self.define(stmt.var)
            self.stmt(stmt.body)

    def repeat(self, stmt: While) -> None:
        self.expr(stmt.condition, boolean, "a condition")
        self.repetition(stmt)
        with self.sources.inside(stmt):
            self.nested(stmt.body)

    def repetition(self, stmt: For | While) -> None:
        """A loop around barriers runs equally often in all that meet there."""
        defect = repetition_defect(stmt, self.sources)
        if defect is not None and not runs_equally_often(self.kernel, self.path):
            self.check(defect)

    def opaque(self, stmt: Opaque) -> None:
        self.name(stmt.name)
        defect = declaration_defect(stmt, set(self.buffers.names()))
        if defect is not None:
            raise self.refuse(*defect)
        self.nested(stmt.body)

    def condition(self, stmt: If) -> None:
        self.expr(stmt.condition, boolean, "a condition")
        with self.sources.inside(stmt):
            self.nested(stmt.then, *(() if stmt.orelse is None else (stmt.orelse,)))

    def let(self, stmt: Let) -> None:
        self.expr(stmt.value, stmt.var.type, f"the value of {stmt.var.name}")
        self.define(stmt.var)
        self.sources.let(stmt.var, stmt.value)

    def allocate(self, stmt: Allocate) -> None:
        self.declare(stmt.buffer, written=True)
        self.check(allocation_defect(stmt.buffer, self.path))
        self.sources.allocate(stmt.buffer)
        if not in_threads(self.path):
            self.shared.add(id(stmt.buffer))

    def store(self, stmt: Store) -> None:
        self.view(View(stmt.buffer, stmt.index))
        self.written(stmt.buffer)
        self.expr(stmt.value, stmt.buffer.dtype, f"what {stmt.buffer.name} holds")

    def call(self, stmt: Call) -> None:
        function = FUNCTIONS.get(stmt.function)
        if function is None:
            cure = "call one of " + ", ".join(FUNCTIONS)
            raise self.refuse(f"there is no function {stmt.function}", cure)
        if len(stmt.args) != len(function.parameters):
            names = ", ".join(p.name for p in function.parameters)
            count = len(function.parameters)
            what = f"{function.name} takes {count} arguments, not {len(stmt.args)}"
            raise self.refuse(what, f"write `{function.name}({names})`")
        for arg, parameter in zip(stmt.args, function.parameters, strict=True):
            if isinstance(arg, View) != (parameter.access != "value"):
                kind = "a value" if parameter.access == "value" else "a view"
                what = f"the argument {parameter.name} of {function.name} must be {kind}"
                raise self.refuse(
                    what, "write `&buffer[...]` for a view, an expression for a value"
                )
            if isinstance(arg, View):
                self.view(arg)
                if parameter.access in ("out", "inout"):
                    self.written(arg.buffer)
            else:
                self.expr(arg, None, "")
        self.check(call_defect(function, self.path))

    def compute(self, stmt: Compute) -> None:
        self.name(stmt.name)
        self.check(shape_defect(stmt))
        for dim in stmt.dims:
            self.extent(dim.extent, f"the extent of {dim.var.name}")
            if dim.var.type is not s64:
                cure = "count in s64, and convert the index where it is used"
                raise self.refuse(f"the dim {dim.var.name} is {dim.var.type}", cure)
        self.check(extent_defect(stmt, self.sources))
        with self.scope():
            for dim in stmt.dims:
                self.define(dim.var)
            if isinstance(stmt.completion, View):
                self.view(stmt.completion)
            for operand in stmt.operands:
                self.view(operand.view)
                self.operand(operand.var, operand.view.buffer)
            for view in stmt.outputs:
                self.view(view)
                self.written(view.buffer)
            for result in stmt.results:
                for view, value in zip(result.views, result.values, strict=True):
                    self.expr(value, view.buffer.dtype, f"what {view.buffer.name} holds")
                if isinstance(result.combiner, Combiner):
                    self.name(result.combiner.name)
                    for variable in (*result.combiner.old, *result.combiner.new):
                        self.name(variable.name)
        self.check(compute_defect(stmt))
        if stmt.completion is not None:
            self.check(completion_defect(self.path))

    def operand(self, variable: Var, buffer: Buffer) -> None:
        if variable.type is not buffer.dtype:
            what = f"{variable.name} is {variable.type}, but {buffer.name} holds {buffer.dtype}"
            raise self.refuse(what, f"make it {buffer.dtype}, and convert it in the body")
        self.define(variable)


_CHECKS: dict[type[Stmt], Callable[[_Verifier, Any], None]] = {
    Block: _Verifier.block,
    For: _Verifier.loop,
    While: _Verifier.repeat,
    If: _Verifier.condition,
    Opaque: _Verifier.opaque,
    Let: _Verifier.let,
    Allocate: _Verifier.allocate,
    Store: _Verifier.store,
    Call: _Verifier.call,
    Compute: _Verifier.compute,
}
