"""Functions of a workgroup or a subgroup: reductions, scans, votes, broadcasts, shuffles.

Those of workgroups use local memory and barriers, those of subgroups shuffles, in steps of doubling
distance. So results are the same on every target, those of floats, too.
"""

from __future__ import annotations

from typing import Any

from tilewright.dtypes import DType, s32, s64, u32, u64
from tilewright.ir import expr as ir
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr
from tilewright.ir.load import load
from tilewright.ir.stmt import View
from tilewright.lang.builtin import Site, builtin
from tilewright.lang.emitter import element, minus, plus

_OPERATORS = ("add", "mul", "min", "max", "and", "or", "xor")


def _operator(site: Site, op: Any, dtype: DType) -> str:
    word = site.one_of(op, "operator", _OPERATORS)
    if word in ("and", "or", "xor") and not dtype.is_integer:
        raise site.refuse(
            f"tw.{site.name} of {dtype} by {word}", cure="combine the bits of integers"
        )
    return word


def _value(site: Site, value: Any) -> Expr:
    typed = site.typed(value)
    if typed.type.kind == "bool":
        raise site.refuse(
            f"tw.{site.name} of bool", cure="convert it: tw.s32(x); or ask any or all"
        )
    named: Expr = site.let("value", typed)
    return named


def _identity(op: str, dtype: DType) -> Expr:
    """The identity of an operator."""
    if op == "and":
        return ir.const(-1 if dtype.kind == "int" else dtype.highest, dtype)
    values = {"add": 0, "mul": 1, "or": 0, "xor": 0, "min": dtype.highest, "max": dtype.lowest}
    return ir.const(values[op], dtype)


# Of workgroups.


class _Scratch:
    """Local memory with an element for each work-item, reused by each call."""

    def __init__(self, site: Site, dtype: DType, number: int) -> None:
        translation = site.translation
        translation.require_local(site)
        self.emitter = site.emitter
        self.items = translation.shape.items
        self.linear = site.emitter.let("item", translation.identities.linear())
        key = (dtype, number)
        if key not in translation.scratch:
            translation.scratch[key] = site.emitter.local("together", dtype, (self.items,))
        self.memory: Buffer = translation.scratch[key]

    def put(self, value: Expr) -> None:
        """Stores the work-item's value."""
        self.emitter.store(self.memory, (self.linear,), value)

    def barrier(self) -> None:
        self.emitter.call("barrier")

    def taken(self, at: Expr | int) -> Expr:
        """The element ``at``, before the memory is reused."""
        value = self.emitter.let("found", element(self.memory, at))
        self.barrier()
        return value


def _group_reduced(site: Site, value: Expr, op: str) -> Expr:
    scratch = _Scratch(site, value.type, 0)
    scratch.put(value)
    stride = 1
    while stride < scratch.items:
        stride *= 2
    while stride > 1:
        stride //= 2
        scratch.barrier()
        both = scratch.linear < min(stride, scratch.items - stride)
        with site.emitter.inside() as stmts:
            mine = element(scratch.memory, scratch.linear)
            other = element(scratch.memory, scratch.linear + stride)
            scratch.put(ir.binary(op, mine, other))
        site.emitter.if_(both, stmts, [], site.emitter.span)
    scratch.barrier()
    return scratch.taken(0)


@builtin
def group_reduce(site: Site, value: Any, operator: Any) -> Any:
    """The values of all work-items of the workgroup, combined by ``operator`` (``"add"``,
    ``"mul"``, ``"min"``, ``"max"``, ``"and"``, ``"or"``, ``"xor"``): all get the result.

    It is a barrier of the workgroup. Floats are combined in pairs, in the same order everywhere.
    """
    typed = _value(site, value)
    return _group_reduced(site, typed, _operator(site, operator, typed.type))


@builtin
def group_scan(site: Site, value: Any, operator: Any, exclusive: Any = False) -> Any:
    """The values of the work-items up to this one, combined by ``operator``; with ``exclusive`` of
    those before it. Work-items count with the last dim fastest. It is a barrier."""
    typed = _value(site, value)
    op = _operator(site, operator, typed.type)
    now, then = _Scratch(site, typed.type, 0), _Scratch(site, typed.type, 1)
    now.put(typed)
    distance = 1
    while distance < now.items:
        now.barrier()
        inside = now.linear >= distance
        mine = element(now.memory, now.linear)
        before = load(now.memory, (now.linear - distance,), inside)
        then.put(ir.select(inside, ir.binary(op, before, mine), mine))
        now, then = then, now
        distance *= 2
    now.barrier()
    if not site.flag(exclusive, "exclusive"):
        return now.taken(now.linear)
    first = ir.binary("eq", now.linear, ir.const(0))
    before = load(now.memory, (now.linear - 1,), ir.unary("not", first))
    before_this = site.emitter.let("found", ir.select(first, _identity(op, typed.type), before))
    now.barrier()
    return before_this


@builtin
def group_broadcast(site: Site, value: Any, item: Any = 0) -> Any:
    """The value of the work-item whose number in the workgroup is ``item`` (or whose local ids are
    a tuple). It is a barrier of the workgroup."""
    typed: Expr = site.let("value", site.typed(value))
    scratch = _Scratch(site, typed.type, 0)
    if isinstance(item, tuple):
        local = site.translation.shape.local
        wanted: Expr = ir.const(0)
        for local_id, size in zip(item, local, strict=False):
            wanted = plus(wanted * size, site.scope.to_index(site.number(local_id)))
    else:
        wanted = site.scope.to_index(site.number(item))
    with site.emitter.inside() as stmts:
        site.emitter.store(scratch.memory, (ir.const(0),), typed)
    chosen = ir.binary("eq", scratch.linear, wanted)
    site.emitter.if_(chosen, stmts, [], site.emitter.span)
    scratch.barrier()
    return scratch.taken(0)


def _flag(site: Site, condition: Any) -> Expr:
    holds = site.arithmetic.condition(site.number(condition))
    named: Expr = site.let("flag", site.arithmetic.convert(holds, s32))
    return named


@builtin
def group_any(site: Site, condition: Any) -> Any:
    """Whether ``condition`` holds for some work-item of the workgroup. It is a barrier."""
    return ir.const(0, s32) < _group_reduced(site, _flag(site, condition), "max")


@builtin
def group_all(site: Site, condition: Any) -> Any:
    """Whether ``condition`` holds for all work-items of the workgroup. It is a barrier."""
    return ir.const(0, s32) < _group_reduced(site, _flag(site, condition), "min")


@builtin
def subgroup_ballot(site: Site, condition: Any) -> Any:
    """The lanes of the subgroup for which ``condition`` holds, as bits: bit i is lane i's; u32, or
    u64 where there are more lanes. All have to come."""
    lane = _lane(site)
    type_ = u32 if site.translation.shape.subgroup <= 32 else u64
    bit = ir.const(1, type_) << ir.cast(type_, lane)
    holds = ir.binary("ne", _flag(site, condition), ir.const(0, s32))
    return _subgroup_reduced(site, ir.select(holds, bit, ir.const(0, type_)), "or")


# Of subgroups.


def _shuffled(site: Site, value: Expr, lane: Expr) -> Expr:
    if site.translation.require_subgroup(site) == 1:
        return value
    memory = site.emitter.private("shuffled", value.type)
    site.emitter.call("shuffle", View(memory, (ir.const(0),)), value, lane)
    received = site.emitter.let("shuffled", element(memory))
    site.translation.together.agreed[received] = lane
    return received


def _lane(site: Site) -> Expr:
    site.translation.require_subgroup(site)
    lane: Expr = site.translation.identities.lane
    return lane


def _subgroup_reduced(site: Site, value: Expr, op: str) -> Expr:
    lane, distance = _lane(site), 1
    while distance < site.translation.shape.subgroup:
        other = _shuffled(site, value, lane ^ distance)
        value = site.emitter.let("value", ir.binary(op, value, other))
        if value.type is s32:
            # As an index, too, it is the exchanged value, not a sum that was widened before.
            site.emitter.means(value, ir.cast(s64, value))
        distance *= 2
    site.translation.together.agreed[value] = ir.const(0)
    return value


@builtin
def subgroup_reduce(site: Site, value: Any, operator: Any) -> Any:
    """The values of all lanes of the subgroup, combined by ``operator``, as in `group_reduce`: all
    lanes get the result. All have to call it."""
    typed = _value(site, value)
    return _subgroup_reduced(site, typed, _operator(site, operator, typed.type))


@builtin
def subgroup_scan(site: Site, value: Any, operator: Any, exclusive: Any = False) -> Any:
    """The values of the lanes up to this one, combined by ``operator``; with ``exclusive`` of those
    before it. All lanes have to come."""
    scanned = _value(site, value)
    op = _operator(site, operator, scanned.type)
    lane, distance = _lane(site), 1
    while distance < site.translation.shape.subgroup:
        before = _shuffled(site, scanned, ir.maximum(minus(lane, ir.const(distance)), 0))
        inside = lane >= distance
        both = ir.select(inside, ir.binary(op, before, scanned), scanned)
        scanned = site.emitter.let("value", both)
        distance *= 2
    if not site.flag(exclusive, "exclusive"):
        return scanned
    before = _shuffled(site, scanned, ir.maximum(lane - 1, 0))
    return ir.select(lane < 1, _identity(op, scanned.type), before)


@builtin
def subgroup_broadcast(site: Site, value: Any, lane: Any = 0) -> Any:
    """The value of the lane ``lane`` of the subgroup. All lanes have to come."""
    typed: Expr = site.let("value", site.typed(value))
    return _shuffled(site, typed, site.scope.to_index(site.number(lane)))


@builtin
def subgroup_any(site: Site, condition: Any) -> Any:
    """Whether ``condition`` holds for some lane of the subgroup. All lanes have to come."""
    return ir.const(0, s32) < _subgroup_reduced(site, _flag(site, condition), "max")


@builtin
def subgroup_all(site: Site, condition: Any) -> Any:
    """Whether ``condition`` holds for all lanes of the subgroup. All lanes have to come."""
    return ir.const(0, s32) < _subgroup_reduced(site, _flag(site, condition), "min")


@builtin
def shuffle(site: Site, value: Any, lane: Any) -> Any:
    """The value of the lane number ``lane`` of the subgroup. All lanes have to come."""
    typed: Expr = site.let("value", site.typed(value))
    return _shuffled(site, typed, site.scope.to_index(site.number(lane)))


@builtin
def shuffle_xor(site: Site, value: Any, mask: Any) -> Any:
    """The value of the lane whose number differs by the bits of ``mask``. All have to come."""
    typed: Expr = site.let("value", site.typed(value))
    return _shuffled(site, typed, _lane(site) ^ site.scope.to_index(site.number(mask)))


@builtin
def shuffle_up(site: Site, value: Any, delta: Any = 1) -> Any:
    """The value of the lane ``delta`` before this one; its own where there is none."""
    typed: Expr = site.let("value", site.typed(value))
    lane = _lane(site)
    other = lane - site.scope.to_index(site.number(delta))
    return _shuffled(site, typed, ir.select(other < 0, lane, other))


@builtin
def shuffle_down(site: Site, value: Any, delta: Any = 1) -> Any:
    """The value of the lane ``delta`` after this one; its own where there is none."""
    typed: Expr = site.let("value", site.typed(value))
    lane = _lane(site)
    other = lane + site.scope.to_index(site.number(delta))
    return _shuffled(site, typed, ir.select(other < site.translation.shape.subgroup, other, lane))
