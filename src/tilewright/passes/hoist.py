"""Loop-invariant code motion.

No later stage moves code out of loops: LLVM's optimization passes are not run, and its code
generator sees addresses only after they were written out. So loop-invariant expressions are named
outside of the loop, except for affine sums, which cost nothing as part of an address.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import is_

from tilewright.dtypes import bf16, boolean, f16, s64
from tilewright.facts import Facts
from tilewright.ir.buffer import Space
from tilewright.ir.expr import Binary, Cast, Const, Expr, Fma, Select, Unary, Var, const, var
from tilewright.ir.load import Load
from tilewright.ir.stmt import (
    Block,
    Call,
    Compute,
    For,
    If,
    Kernel,
    Let,
    LoopKind,
    Opaque,
    Stmt,
    Store,
    View,
    While,
)
from tilewright.ir.visit import (
    block,
    children,
    loads_in,
    map_exprs,
    map_kernel,
    map_views,
    nested,
    reads_memory,
    rebuild,
    variables,
    walk_stmts,
)

# Most names at a place: each is a register while the loops after it run.
INTEGER_BUDGET = 12
FLOAT_BUDGET = 6

_HERE = frozenset({LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTOR})
_SUMS = frozenset({"add", "sub", "neg"})


def hoist(kernel: Kernel) -> Kernel:
    """Names loop-invariant expressions outside of their loops.

        for oh in 28:
          for ow in 28:
            for c in 4:
              dst[oh, ow, c] = src[(oh + 1) // 2, ow, c] * scale[0] / f32(3 - max(1 - ow, 0))
    ->  for oh in 28:
          t = (oh + 1) // 2
          for ow in 28:
            t2: f32 = scale[0]
            t3: f32 = f32(3 - max(1 - ow, 0))
            for c in 4:
              dst[oh, ow, c] = src[t, ow, c] * t2 / t3

    - Integers and conditions go to the outermost place where they can be computed, so that loops
      next to each other share them. All operators have a value for all operands, so it does no harm
      to compute one where no iteration would have.
    - Floats and loads stay directly before the loops that use them, as long as no other loops run
      there: a vector register must not be taken while these run. Loads are those of read-only
      arguments; the element must be inside the buffer, without an ``if`` or mask around it.
    - Expressions of unrolled variables alone are numbers when code is written, and indices of
      private memory must be such numbers: both stay.
    - Nothing is put between the loops that are launched together (``parallel for`` in ``parallel
      for``), nor outside of them, as only memory reaches the threads.
    - Nothing leaves an opaque nest.
    """
    return map_kernel(kernel, _Hoister(kernel).run)


@dataclass(slots=True)
class _Place:
    """A place for names: at most ``budget`` of them, by their expressions."""

    facts: Facts
    budget: int
    names: dict[Expr, Let] = field(default_factory=dict)

    @property
    def lets(self) -> tuple[Let, ...]:
        return tuple(self.names.values())


@dataclass(slots=True)
class _Loop:
    """A loop around the present statement. ``depth`` counts the places down to its body."""

    kind: LoopKind
    depth: int
    before: _Place
    guards: int  # conditions around it
    crowded: bool  # other loops run next to it
    launched: bool  # nothing can be put in front of it


class _Hoister:
    def __init__(self, kernel: Kernel) -> None:
        self.read_only = {p.buffer for p in kernel.arrays if p.access == "in"}
        self.taken = {param.name for param in kernel.scalars}
        self.taken |= {n.var.name for n in walk_stmts(kernel.body) if isinstance(n, For | Let)}
        for node in walk_stmts(kernel.body):
            if isinstance(node, Compute):
                self.taken |= {d.var.name for d in node.dims} | {o.var.name for o in node.operands}
        self.places = [_Place(Facts.of(kernel), 0)]
        self.loops: list[_Loop] = []
        # the outermost place in which a variable is defined
        self.depth: dict[Var, int] = {}
        self.static: set[Var] = set()  # numbers when code is written
        self.guards = 0
        self.crowded = False
        self.heavy: dict[Stmt, bool] = {}

    def run(self, body: Stmt) -> Stmt:
        return block(*self._visit(body))

    # Statements: each gives its replacement, after the lets for names before it.

    def _visit(self, stmt: Stmt) -> list[Stmt]:
        match stmt:
            case Block():
                inner = self._block(stmt)
                same = len(inner) == len(stmt.body) and all(map(is_, inner, stmt.body))
                return [stmt if same else Block(tuple(inner), stmt.span)]
            case For():
                return self._loop(stmt)
            case While():
                return self._while(stmt)
            case If():
                return [self._if(stmt)]
            case Opaque():
                return [self._opaque(stmt)]
            case Compute():
                return [self._compute(stmt)]
            case Store():
                return [self._store(stmt)]
            case Call():
                args = tuple(
                    self._view(a) if isinstance(a, View) else self._expr(a) for a in stmt.args
                )
                return [stmt if all(map(is_, args, stmt.args)) else replace(stmt, args=args)]
            case _:
                return [map_exprs(stmt, self._expr)]

    def _block(self, stmt: Block) -> list[Stmt]:
        body: list[Stmt] = []
        places_after_lets: list[tuple[int, _Place]] = []  # (position in the body, place)
        crowded, heavy = self.crowded, sum(map(self._is_heavy, stmt.body))
        for part in stmt.body:
            self.crowded = crowded or heavy > self._is_heavy(part)
            new = self._visit(part)
            body += new
            if isinstance(part, Let):
                (let,) = new
                assert isinstance(let, Let)
                self._define(let.var, self._is_static(let.value))
                facts = self.places[-1].facts.bind(let.var, let.value)
                budget = INTEGER_BUDGET if self.loops else 0
                self.places.append(_Place(facts, budget))
                places_after_lets.append((len(body), self.places[-1]))
        for position, place in reversed(places_after_lets):
            body[position:position] = place.lets
            self.places.pop()
        self.crowded = crowded
        return body

    def _loop(self, stmt: For) -> list[Stmt]:
        extent = self._expr(stmt.extent)
        outer = self.places[-1]
        facts = outer.facts.loop(stmt.var, extent)
        self._define(stmt.var, stmt.kind is LoopKind.UNROLLED)
        if stmt.kind not in _HERE and isinstance(stmt.body, For) and stmt.body.kind not in _HERE:
            # Launched together: names for both go inside.
            self.places[-1] = replace(outer, facts=facts)
            (body,) = self._visit(stmt.body)
            self.places[-1] = outer
            same = extent is stmt.extent and body is stmt.body
            return [stmt if same else replace(stmt, extent=extent, body=body)]
        new, before, inside = self._inside(stmt, stmt.kind, facts)
        same = not inside.names and len(new) == 1 and new[0] is stmt.body
        body = stmt.body if same else block(*inside.lets, *new)
        result = stmt if same and extent is stmt.extent else replace(stmt, extent=extent, body=body)
        return [*before.lets, result]

    def _while(self, stmt: While) -> list[Stmt]:
        # As a fact for the body, it keeps its form.
        condition = self._expr(stmt.condition, conditions=False)
        facts = self.places[-1].facts
        new, before, inside = self._inside(stmt, LoopKind.SERIAL, facts)
        same = not inside.names and len(new) == 1 and new[0] is stmt.body
        if same and condition is stmt.condition:
            return [*before.lets, stmt]
        body = stmt.body if same else block(*inside.lets, *new)
        return [*before.lets, replace(stmt, condition=condition, body=body)]

    def _inside(
        self, stmt: For | While, kind: LoopKind, facts: Facts
    ) -> tuple[list[Stmt], _Place, _Place]:
        """The body of a loop in which ``facts`` hold; the places before the loop, and at the
        beginning of its body."""
        before = _Place(self.places[-1].facts, FLOAT_BUDGET)
        launched = kind not in _HERE or not self.loops
        depth = len(self.places)
        self.loops.append(_Loop(kind, depth, before, self.guards, self.crowded, launched))
        inside = _Place(facts, INTEGER_BUDGET)
        self.places.append(inside)
        crowded, self.crowded = self.crowded, False
        new = self._visit(stmt.body)
        self.crowded = crowded
        self.places.pop()
        self.loops.pop()
        return new, before, inside

    def _opaque(self, stmt: Opaque) -> Stmt:
        """Nothing leaves the nest: inside of it, only its own loops count."""
        loops, self.loops = self.loops, []
        body = self._branch(stmt.body)
        self.loops = loops
        return stmt if body is stmt.body else replace(stmt, body=body)

    def _if(self, stmt: If) -> Stmt:
        # As a fact for the branches, the condition as a whole keeps its form.
        condition = self._expr(stmt.condition, conditions=False)
        self.guards += 1
        then = self._branch(stmt.then)
        orelse = self._branch(stmt.orelse) if stmt.orelse is not None else None
        self.guards -= 1
        if condition is stmt.condition and then is stmt.then and orelse is stmt.orelse:
            return stmt
        return replace(stmt, condition=condition, then=then, orelse=orelse)

    def _branch(self, stmt: Stmt) -> Stmt:
        new = self._visit(stmt)
        return new[0] if len(new) == 1 else block(*new)

    def _store(self, stmt: Store) -> Stmt:
        value = self._expr(stmt.value)
        index = stmt.index
        if stmt.buffer.space is not Space.PRIVATE:
            index = tuple(map(self._expr, index))
        if value is stmt.value and all(map(is_, index, stmt.index)):
            return stmt
        return replace(stmt, index=index, value=value)

    def _compute(self, stmt: Compute) -> Stmt:
        """Moves addresses only: an instruction was matched with the body. Asynchronous ops compute
        their addresses once, and are recognized by their views as they are."""
        if stmt.completion is not None:
            return stmt
        for dim in stmt.dims:  # an outer loop of that name is another variable
            self.depth.pop(dim.var, None)
            self.static.discard(dim.var)
        for operand in stmt.operands:
            self.depth.pop(operand.var, None)
            self.static.discard(operand.var)
        return map_views(stmt, self._view)

    def _view(self, view: View) -> View:
        index, mask = view.index, view.mask
        if view.buffer.space is not Space.PRIVATE:
            index = tuple(map(self._expr, index))
        if mask is not None:
            mask = self._expr(mask)
        if mask is view.mask and all(map(is_, index, view.index)):
            return view
        return View(view.buffer, index, mask)

    def _is_heavy(self, stmt: Stmt) -> bool:
        """Whether a loop runs in ``stmt``, or an instruction that needs registers."""
        heavy = self.heavy.get(stmt)
        if heavy is None:
            itself = isinstance(stmt, Compute | While) or (
                isinstance(stmt, For) and stmt.kind not in (LoopKind.UNROLLED, LoopKind.VECTOR)
            )
            heavy = itself or any(map(self._is_heavy, nested(stmt)))
            self.heavy[stmt] = heavy
        return heavy

    def _define(self, variable: Var, static: bool) -> None:
        """Defines ``variable`` at the next place; an earlier one of that name is another."""
        self.depth[variable] = len(self.places)
        (self.static.add if static else self.static.discard)(variable)

    # Expressions.

    def _expr(self, expr: Expr, conditions: bool = True) -> Expr:
        return self._moved(expr, self.loops, conditions)

    def _moved(self, root: Expr, loops: Sequence[_Loop], conditions: bool = True) -> Expr:
        """``root`` with names for the parts that are invariant in the innermost of ``loops``."""
        if isinstance(root, Var | Const) or not loops:
            return root
        done: dict[Expr, Expr] = {}
        opened: set[Expr] = set()
        stack = [root]
        while stack:
            node = stack[-1]
            if node in done:
                stack.pop()
                continue
            if node not in opened:
                opened.add(node)
                name = self._name(node, loops, conditions)
                if name is not None:
                    done[node] = name
                    continue
            parts = self._parts(node)
            missing = [part for part in parts if part not in done]
            if missing:
                stack += reversed(missing)
                continue
            # What has no part here comes first, and stays, also where it has a name elsewhere.
            kept = children(node)[: len(children(node)) - len(parts)]
            new = (*kept, *[done[part] for part in parts])
            same = all(map(is_, new, children(node)))
            done[node] = node if same else rebuild(node, new)
        return done[root]

    def _parts(self, node: Expr) -> tuple[Expr, ...]:
        """The last sub-expressions, which may get names: not the index of private memory."""
        if isinstance(node, Load) and node.buffer.space is Space.PRIVATE:
            return () if node.mask is None else (node.mask,)
        return children(node)

    def _name(self, node: Expr, loops: Sequence[_Loop], conditions: bool) -> Expr | None:
        """The name of ``node`` if it is worth one, and invariant in some loop."""
        if not _is_work(node) or (node.type is boolean and not conditions):
            return None
        # Most processors have no registers for 16-bit floats: the expressions that use it move.
        if node.type in (bf16, f16):
            return None
        names = variables(node)
        if self._is_static(node) or not all(name in self.depth for name in names):
            return None
        home = max((self.depth[name] for name in names), default=0)
        if node.type.is_float or reads_memory(node):
            crossed = self._crossable(node, [loop for loop in loops if loop.depth > home])
            place = crossed[0].before if crossed else None
        else:
            # Outermost inside the first loop: values from outside do not reach the threads.
            home = max(home, loops[0].depth)
            crossed = [loop for loop in loops if loop.depth > home]
            place = self.places[home]
            if node in place.names:
                return place.names[node].var
        if place is None or all(loop.kind is LoopKind.VECTOR for loop in crossed):
            return None
        return self._put(node, place, loops[: len(loops) - len(crossed)])

    def _crossable(self, node: Expr, loops: Sequence[_Loop]) -> list[_Loop]:
        """The loops, innermost last, that a float or a load may be moved out of."""
        crossed: list[_Loop] = []
        loads = list(loads_in(node))
        for loop in reversed(loops):
            if loop.launched or (loads and loop.guards != self.guards):
                break
            if not all(self._is_readable(part, loop.before.facts) for part in loads):
                break
            crossed.insert(0, loop)
            if loop.crowded:
                break
        return crossed

    def _is_readable(self, node: Load, facts: Facts) -> bool:
        """Whether the load gives the same wherever ``facts`` hold, and stays inside its buffer."""
        return (
            node.buffer in self.read_only
            and node.mask is None
            and all(
                facts.prove(const(0) <= index) is True and facts.prove(index < size) is True
                for index, size in zip(node.index, node.buffer.sizes, strict=True)
            )
        )

    def _put(self, node: Expr, place: _Place, loops: Sequence[_Loop]) -> Expr | None:
        let = place.names.get(node)
        if let is not None:
            return let.var
        if len(place.names) >= place.budget:
            return None
        # Its parts may go even further out.
        parts = tuple(self._moved(part, loops) for part in children(node))
        same = all(map(is_, parts, children(node)))
        value = node if same else rebuild(node, parts)
        name = self._fresh(node)
        place.names[node] = Let(name, value)
        return name

    def _fresh(self, node: Expr) -> Var:
        count = 1
        while (name := "t" if count == 1 else f"t{count}") in self.taken:
            count += 1
        self.taken.add(name)
        return var(name, node.type)

    def _is_static(self, expr: Expr) -> bool:
        return variables(expr) <= self.static and not reads_memory(expr)


def _is_work(node: Expr) -> bool:
    """Whether ``node`` takes an instruction that an address would not hide."""
    if isinstance(node, Var | Const):
        return False
    if node.type is not s64:
        return True
    if isinstance(node, Binary | Unary) and node.op in _SUMS:
        return False
    if isinstance(node, Binary) and node.op == "mul":
        return not (isinstance(node.a, Const) or isinstance(node.b, Const))
    return isinstance(node, Binary | Unary | Select | Fma | Cast | Load)
