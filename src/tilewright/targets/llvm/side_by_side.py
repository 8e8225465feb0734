"""Lanes whose elements lie side by side, but for a few vectors: neighbours that are clamped to an
array's borders, or go around them.

    vector for i in 16:
      y[x + i] = a[max(x + i - 1, 0)]

Only the vector with the border has to be loaded lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.dtypes import s64
from tilewright.ir.expr import Binary, Expr, Select
from tilewright.ir.visit import reads_memory, walk
from tilewright.targets.llvm.expressions import Expressions
from tilewright.targets.llvm.lane_places import told_apart
from tilewright.targets.llvm.plan import Address, Loads
from tilewright.targets.llvm.running import Lanes
from tilewright.targets.llvm.types import lane_mask, lane_numbers
from tilewright.targets.llvm.values import Value
from tilewright.targets.llvm.writer import Writer


def side_by_side(
    w: Writer, address: Address, loads: Loads, lanes: Lanes, exprs: Expressions
) -> str | None:
    """An i1: whether the elements of the active lanes lie side by side, in order. None where no
    index looks as if they did, mostly."""
    apart = told_apart(address, lanes, exprs)
    if not apart or not all(map(_has_borders, (atom for atom, _ in apart))):
        return None
    count = lanes.count
    type_ = f"<{count} x i64>"
    numbers = lane_numbers(count, s64)
    own = address.lane_coefficient(lanes.var)
    total = w.assign(f"mul {type_} {numbers}, splat (i64 {own})") if own else ""
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
