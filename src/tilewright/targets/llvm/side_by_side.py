"""Lanes whose elements lie side by side, but for a few vectors: neighbours that are clamped to an
array's borders, or go around them.

    vector for i in 16:
      y[x + i] = a[max(x + i - 1, 0)]

No lane is more than one element after the one before it, as clamping only shortens steps: so all
lie side by side if the last lane does, by its distance from the first. Of what may step further,
all lanes are compared. In the vector with the border, the first lanes mostly stay where the first
one is, and the others come before the last one, or the first ones follow the first, and the others
stay with the last: that is one load of neighbours and one of a single element.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.dtypes import boolean, s32, s64
from tilewright.ir.expr import Binary, Cast, Const, Expr, Select, cast
from tilewright.ir.visit import reads_memory, walk
from tilewright.targets.llvm.expressions import Expressions
from tilewright.targets.llvm.lane_places import told_apart
from tilewright.targets.llvm.plan import Address, Loads, Terms
from tilewright.targets.llvm.running import Lanes, differs
from tilewright.targets.llvm.types import lane_mask, lane_numbers
from tilewright.targets.llvm.values import Result, Value
from tilewright.targets.llvm.writer import Writer


@dataclass(frozen=True)
class Near:
    """An i1, ``flag``: whether the elements of the active lanes lie side by side, in order. If the
    ends of ``apart``, which tells lanes apart, say that: the ``distance`` of the last lane's
    element from the first one's."""

    flag: str
    apart: Terms
    distance: Value | None = None


@dataclass(frozen=True)
class Held:
    """Lanes that are held at an end. An i1, ``flag``: whether they are. Another, ``first``: whether
    at the first lane's element, or else at the last one's. Those with ``flags`` are not: the others
    lie side by side up to the other end's lane."""

    flag: str
    first: str
    flags: Value


def side_by_side(
    w: Writer, address: Address, loads: Loads, lanes: Lanes, exprs: Expressions
) -> Near | None:
    """Whether lanes lie side by side. None where no index looks as if they did, mostly."""
    apart = told_apart(address, lanes, exprs)
    if not apart or not all(map(_has_borders, (atom for atom, _ in apart))):
        return None
    if not _steps_at_most_one(address, apart, lanes, exprs):
        return Near(_all_are_near(w, address, apart, loads, lanes, exprs), apart)
    first, last = (
        _place(w, address, apart, loads, lanes, exprs, lane) for lane in (0, lanes.active - 1)
    )
    distance = w.assign(f"sub {last.typed}, {first.text}")
    flag = w.assign(f"icmp eq i64 {distance}, {lanes.active - 1}")
    return Near(flag, apart, Value(distance, s64))


def held_at_an_end(
    w: Writer, address: Address, near: Near, loads: Loads, lanes: Lanes, exprs: Expressions
) -> Held | None:
    """Which lanes are held at the first one or the last one, where all are active and no lane is
    more than one element after the one before. None where lanes may lie before those before them,
    but by wrapping."""
    parts = [_wrapping(atom, lanes, exprs) for atom, _ in near.apart]
    if near.distance is None or not all(part is not None for part in parts):
        return None
    most = lanes.count - 1

    def place(lane: Result) -> Value:
        return _place(w, address, near.apart, loads, lanes, exprs, lane)

    def same(a: Value, b: Value) -> str:
        return w.assign(f"icmp eq {a.typed}, {b.text}")

    # As far as the places rise, each by one: those are the first lanes, or the last ones.
    distance = near.distance
    climb = Value(w.assign(f"sub i64 {most}, {distance.text}"), s64)
    first = same(place(0), place(climb))
    last = same(place(distance), place(most))
    inside = w.assign(f"icmp ule {distance.typed}, {most}")
    flag = w.assign(f"and i1 {w.assign(f'or i1 {first}, {last}')}, {inside}")
    for part in {part for some in parts for part in some or ()}:
        step = _step(part, lanes, exprs)
        assert step is not None
        expected = exprs.value(step.most * most, s64)
        ends = []
        for lane in (0, most):
            with exprs.bound(lanes.var, lane):
                ends.append(exprs.value(exprs.evaluate(cast(s64, part), loads), s64))
        rise = Value(w.assign(f"sub {ends[1].typed}, {ends[0].text}"), s64)
        flag = w.assign(f"and i1 {flag}, {same(rise, expected)}")
    numbers = Value(lane_numbers(lanes.count, s64), s64, lanes.count)
    least = Value(w.assign(f"select i1 {first}, {climb.typed}, i64 0"), s64)
    greatest = Value(w.assign(f"select i1 {first}, i64 {most}, {distance.typed}"), s64)
    flags = [
        w.assign(f"icmp {op} {numbers.typed}, {exprs.value(end, s64, lanes.count).text}")
        for op, end in (("sge", least), ("sle", greatest))
    ]
    text = w.assign(f"and <{lanes.count} x i1> {flags[0]}, {flags[1]}")
    return Held(flag, first, Value(text, boolean, lanes.count))


def _place(
    w: Writer,
    address: Address,
    apart: Terms,
    loads: Loads,
    lanes: Lanes,
    exprs: Expressions,
    lane: Result,
) -> Value:
    """The place of a lane, but for what is the same in each."""
    coefficient = address.lane_coefficient(lanes.var)
    total = w.assign(f"mul {exprs.value(lane, s64).typed}, {coefficient}")
    with exprs.bound(lanes.var, lane):
        for atom, step in apart:
            place = exprs.value(exprs.evaluate(atom, loads), s64)
            total = w.assign(f"add i64 {total}, {w.assign(f'mul {place.typed}, {step}')}")
    return Value(total, s64)


def _wrapping(expr: Expr, lanes: Lanes, exprs: Expressions) -> list[Expr] | None:
    """The parts of ``expr`` that rise from lane to lane unless they wrap; None where others than
    these may fall."""
    if not differs(expr, lanes, exprs.variables):
        return []
    step = _step(expr, lanes, exprs)
    if step is not None and step.exact:
        return [expr] if expr.type is s32 else []
    match expr:
        case Binary(op="min" | "max" | "add"):
            a, b = _wrapping(expr.a, lanes, exprs), _wrapping(expr.b, lanes, exprs)
            return None if a is None or b is None else a + b
        case Cast():
            return _wrapping(expr.a, lanes, exprs)
    return None


def _steps_at_most_one(address: Address, apart: Terms, lanes: Lanes, exprs: Expressions) -> bool:
    """Whether no lane is more than one element after the one before."""
    most = address.lane_coefficient(lanes.var)
    for atom, factor in apart:
        step = _step(atom, lanes, exprs)
        if step is None or factor < 0:
            return False
        most += step.most * factor
    return most == 1


@dataclass(frozen=True)
class _Step:
    """How far an expression goes from lane to lane: ``most`` (0 or more) at most; ``exact``: so
    far, where it does not wrap."""

    most: int
    exact: bool


def _step(expr: Expr, lanes: Lanes, exprs: Expressions) -> _Step | None:
    """The step of ``expr``; None where nothing is known."""
    if not differs(expr, lanes, exprs.variables):
        return _Step(0, exact=True)
    if expr is lanes.var:
        return _Step(1, exact=True)
    match expr:
        case Binary(op="min" | "max"):
            a, b = _step(expr.a, lanes, exprs), _step(expr.b, lanes, exprs)
            return None if a is None or b is None else _Step(max(a.most, b.most), exact=False)
        case Binary(op="mod") if expr.type is s64 and not differs(expr.b, lanes, exprs.variables):
            a = _step(expr.a, lanes, exprs)
            return None if a is None or not a.exact else _Step(a.most, exact=False)
        case Cast():
            a = _step(expr.a, lanes, exprs)
            if a is None or (expr.type, expr.a.type) == (s64, s32):
                # An s32 that wraps falls.
                return None if a is None else _Step(a.most, exact=False)
            narrowed = a.exact and (expr.type, expr.a.type) == (s32, s64)
            return a if narrowed else None
        case Binary(op="add" | "sub" | "mul"):
            step = _of_arithmetic(expr, lanes, exprs)
            # What fell by wrapping, and wraps again, would rise.
            is_exact = step is not None and (expr.type is s64 or step.exact)
            return step if is_exact and expr.type in (s32, s64) else None
    return None


def _of_arithmetic(expr: Binary, lanes: Lanes, exprs: Expressions) -> _Step | None:
    a, b = _step(expr.a, lanes, exprs), _step(expr.b, lanes, exprs)
    if a is None or b is None:
        return None
    if expr.op == "add":
        return _Step(a.most + b.most, a.exact and b.exact)
    if expr.op == "sub":
        return a if not differs(expr.b, lanes, exprs.variables) else None
    factor = expr.b.value if isinstance(expr.b, Const) else -1
    return _Step(a.most * int(factor), a.exact) if factor >= 0 else None


def _all_are_near(
    w: Writer, address: Address, apart: Terms, loads: Loads, lanes: Lanes, exprs: Expressions
) -> str:
    count = lanes.count
    type_ = f"<{count} x i64>"
    numbers = lane_numbers(count, s64)
    per_lane = address.lane_coefficient(lanes.var)
    total = w.assign(f"mul {type_} {numbers}, splat (i64 {per_lane})") if per_lane else ""
    for atom, step in apart:
        places = exprs.value(exprs.evaluate(atom, loads), s64, count)
        scaled = places.text if step == 1 else w.assign(f"mul {places.typed}, splat (i64 {step})")
        total = w.assign(f"add {type_} {total}, {scaled}") if total else scaled
    first = Value(w.assign(f"extractelement {type_} {total}, i64 0"), s64)
    expected = w.assign(f"add {exprs.value(first, s64, count).typed}, {numbers}")
    flags = w.assign(f"icmp eq {type_} {total}, {expected}")
    if lanes.active < count:
        others = w.assign(f"xor <{count} x i1> {lane_mask(lanes.active, count)}, splat (i1 true)")
        flags = w.assign(f"or <{count} x i1> {flags}, {others}")
    bits = w.assign(f"bitcast <{count} x i1> {flags} to i{count}")
    return w.assign(f"icmp eq i{count} {bits}, -1")


def either(
    w: Writer,
    exprs: Expressions,
    condition: str,
    usual: Callable[[], Value],
    other: Callable[[], Value],
) -> Value:
    """``usual`` where ``condition`` holds, as it mostly does, else ``other``."""
    labels, after = (w.label("usual"), w.label("other")), w.label("either")
    w.branch(condition, *labels, w.mostly())
    ends: list[tuple[Value, str]] = []
    for label, make in zip(labels, (usual, other), strict=True):
        w.start(label)
        exprs.push()
        ends.append((make(), w.block))
        exprs.pop()
        w.jump(after)
    w.start(after)
    (a, first), (b, second) = ends
    text = w.assign(f"phi {a.type} [{a.text}, %{first}], [{b.text}, %{second}]")
    return Value(text, a.dtype, a.lanes)


def _has_borders(atom: Expr) -> bool:
    """Whether ``atom`` bends what it is made of, which is linear otherwise."""
    if reads_memory(atom):
        return False
    nodes = list(walk(atom))
    bends = any(
        isinstance(node, Select) or (isinstance(node, Binary) and node.op in ("min", "max", "mod"))
        for node in nodes
    )
    return bends and not any(isinstance(node, Binary) and node.op == "floordiv" for node in nodes)
