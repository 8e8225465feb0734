"""Lanes whose elements lie side by side, but for a few vectors: neighbours that are clamped to an
array's borders, or go around them.

    vector for i in 16:
      y[x + i] = a[max(x + i - 1, 0)]

No lane is more than one element after the one before it, as clamping only shortens steps: so all
lie side by side if the last lane does, by its distance from the first. Of what may step further,
all lanes are compared. In the vector with the border, lanes follow the first one, come before the
last one, or lie where one of these does: so two loads of vectors and two of single elements have
all of them. Only what is neither is loaded lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.dtypes import boolean, s32, s64
from tilewright.ir.expr import Binary, Cast, Const, Expr, Select
from tilewright.ir.visit import reads_memory, walk
from tilewright.targets.llvm.expressions import Expressions
from tilewright.targets.llvm.lane_places import told_apart
from tilewright.targets.llvm.plan import Address, Loads, Terms
from tilewright.targets.llvm.running import Lanes, differs
from tilewright.targets.llvm.types import lane_mask, lane_numbers
from tilewright.targets.llvm.values import Value
from tilewright.targets.llvm.writer import Writer


@dataclass(frozen=True)
class Near:
    """An i1, ``flag``: whether the elements of the active lanes lie side by side, in order;
    ``by_ends``: the first lane and the last one say it; ``apart``: what tells lanes apart."""

    flag: str
    by_ends: bool
    apart: Terms


@dataclass(frozen=True)
class Ends:
    """Flags of lanes: whose element is that of the ``first`` lane, which ``follow`` it side by
    side, and which ``precede`` the last lane. An i1, ``all``: whether each lane has one of these,
    or has the element of the last lane."""

    first: Value
    follow: Value
    precede: Value
    all: str


def side_by_side(
    w: Writer, address: Address, loads: Loads, lanes: Lanes, exprs: Expressions
) -> Near | None:
    """Whether lanes lie side by side. None where no index looks as if they did, mostly."""
    apart = told_apart(address, lanes, exprs)
    if not apart or not all(map(_has_borders, (atom for atom, _ in apart))):
        return None
    if _steps_at_most_one(address, apart, lanes, exprs):
        return Near(_last_is_near(w, address, apart, loads, lanes, exprs), True, apart)
    return Near(_all_are_near(w, address, apart, loads, lanes, exprs), False, apart)


def at_ends(
    w: Writer, address: Address, apart: Terms, loads: Loads, lanes: Lanes, exprs: Expressions
) -> Ends:
    """Which lanes lie at the first lane's element or at the last one's, or beside these; all lanes
    are active."""
    count = lanes.count
    total = _places(w, address, apart, loads, lanes, exprs)
    numbers = Value(lane_numbers(count, s64), s64, count)

    def of_lane(places: str, lane: int) -> str:
        element = w.assign(f"extractelement <{count} x i64> {places}, i64 {lane}")
        return exprs.value(Value(element, s64), s64, count).text

    def equal(places: str, lane: int) -> Value:
        flags = f"icmp eq <{count} x i64> {places}, {of_lane(places, lane)}"
        return Value(w.assign(flags), boolean, count)

    # Side by side with a lane is as far from the lanes' numbers as that one.
    beside = w.assign(f"sub <{count} x i64> {total}, {numbers.text}")
    first, last = equal(total, 0), equal(total, count - 1)
    follow, precede = equal(beside, 0), equal(beside, count - 1)
    either_end = w.assign(f"or {first.typed}, {last.text}")
    near = w.assign(f"or {follow.typed}, {precede.text}")
    covered = w.assign(f"or {first.type} {either_end}, {near}")
    return Ends(first, follow, precede, _all_hold(w, covered, count))


def _last_is_near(
    w: Writer, address: Address, apart: Terms, loads: Loads, lanes: Lanes, exprs: Expressions
) -> str:
    ends = []
    for lane in (0, lanes.active - 1):
        with exprs.bound(lanes.var, lane):
            total = str(address.lane_coefficient(lanes.var) * lane)
            for atom, step in apart:
                place = exprs.value(exprs.evaluate(atom, loads), s64)
                total = w.assign(f"add i64 {total}, {w.assign(f'mul {place.typed}, {step}')}")
            ends.append(total)
    distance = w.assign(f"sub i64 {ends[1]}, {ends[0]}")
    return w.assign(f"icmp eq i64 {distance}, {lanes.active - 1}")


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
    count, type_ = lanes.count, f"<{lanes.count} x i64>"
    total = _places(w, address, apart, loads, lanes, exprs)
    first = Value(w.assign(f"extractelement {type_} {total}, i64 0"), s64)
    numbers = lane_numbers(count, s64)
    expected = w.assign(f"add {exprs.value(first, s64, count).typed}, {numbers}")
    flags = w.assign(f"icmp eq {type_} {total}, {expected}")
    if lanes.active < count:
        others = w.assign(f"xor <{count} x i1> {lane_mask(lanes.active, count)}, splat (i1 true)")
        flags = w.assign(f"or <{count} x i1> {flags}, {others}")
    return _all_hold(w, flags, count)


def _places(
    w: Writer, address: Address, apart: Terms, loads: Loads, lanes: Lanes, exprs: Expressions
) -> str:
    """The places of all lanes, but for what is the same in each."""
    count = lanes.count
    type_ = f"<{count} x i64>"
    per_lane = address.lane_coefficient(lanes.var)
    numbers = lane_numbers(count, s64)
    total = w.assign(f"mul {type_} {numbers}, splat (i64 {per_lane})") if per_lane else ""
    for atom, step in apart:
        places = exprs.value(exprs.evaluate(atom, loads), s64, count)
        scaled = places.text if step == 1 else w.assign(f"mul {places.typed}, splat (i64 {step})")
        total = w.assign(f"add {type_} {total}, {scaled}") if total else scaled
    return total


def _all_hold(w: Writer, flags: str, count: int) -> str:
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
