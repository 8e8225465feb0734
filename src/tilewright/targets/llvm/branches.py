"""Branches: taken by all lanes of a vector loop, by the first ones, or by some, with a mask."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.dtypes import boolean
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, conjuncts
from tilewright.targets.llvm.lane_values import both_hold, none_holds
from tilewright.targets.llvm.memory import MemoryMap
from tilewright.targets.llvm.plan import ForPlan, IfPlan, Loads, Plan, WhilePlan, walk_plans
from tilewright.targets.llvm.running import Lanes, any_lane, running
from tilewright.targets.llvm.values import Value


class Branches:
    """Writes the branches of one function; ``emit`` writes their bodies."""

    def __init__(self, memory: MemoryMap, emit: Callable[[list[Plan]], None]) -> None:
        self.memory = memory
        self.emit = emit
        self.w = memory.w
        self.exprs = memory.exprs

    def emit_if(self, plan: IfPlan) -> None:
        outer = self.memory.lanes
        self.memory.lanes, parts = self._tail(plan)
        if self.memory.lanes is None or self.memory.lanes.active:
            self._where(plan, parts)
        self.memory.lanes = outer

    def _tail(self, plan: IfPlan) -> tuple[Lanes | None, list[Expr]]:
        """The lanes that can run, and the conjuncts to test in them. Conjuncts whose value is known
        for each lane, true in the first ones and false in the rest, are not tested."""
        lanes, parts = self.memory.lanes, list(conjuncts(plan.stmt.condition))
        if lanes is None or plan.orelse or plan.loads or self.memory.predicate is not None:
            return lanes, parts
        open_parts: list[Expr] = []
        active = lanes.active
        for part in parts:
            first = self._first_lanes(lanes, part)
            if first is None:
                open_parts.append(part)
            else:
                active = min(active, first)
        return Lanes(lanes.var, active, lanes.count), open_parts

    def _first_lanes(self, lanes: Lanes, condition: Expr) -> int | None:
        """The number of lanes for which ``condition`` holds, if it is known for all and true only
        in the first ones."""
        variables = self.exprs.variables
        vector = variables[lanes.var]
        holds: list[bool] = []
        for lane in range(lanes.active):
            self.exprs.push()
            variables[lanes.var] = lane
            value = self.exprs.evaluate(condition, {})
            self.exprs.pop()
            if isinstance(value, Value):
                break
            holds.append(bool(value))
        variables[lanes.var] = vector
        count = sum(holds)
        return count if len(holds) == lanes.active and all(holds[:count]) else None

    def _where(self, plan: IfPlan, parts: list[Expr]) -> None:
        """Emits ``then`` where all of ``parts`` hold, and ``orelse`` elsewhere."""
        condition, flags = self._condition(parts, plan.loads)
        if flags is not None and isinstance(condition, Value):
            if self.w.dialect.masked_memory or plan.orelse:
                wide = self.exprs.value(condition, boolean, flags.lanes)
                condition, flags = True, self._both(flags, wide)
            else:
                # Without masked instructions, each lane is a branch: a common test saves them.
                self._branch(plan, condition, flags)
                return
        if flags is not None and condition:
            self._predicated(plan, flags)
        elif isinstance(condition, Value):
            self._branch(plan, condition)
        else:
            self.exprs.push()
            self.emit(plan.then if condition else plan.orelse)
            self.exprs.pop()

    def _condition(self, parts: list[Expr], loads: Loads) -> tuple[Value | bool, Value | None]:
        """All of ``parts``: a condition common to all lanes, and a flag for each lane (None: all).

        A part that is known to be false decides alone.
        """
        common: Value | bool = True
        flags: Value | None = None
        for part in parts:
            value = self.exprs.evaluate(part, loads)
            if not isinstance(value, Value):
                if not value:
                    return False, None
            elif value.lanes > 1:
                flags = value if flags is None else self._both(flags, value)
            else:
                common = self._both(common, value) if isinstance(common, Value) else value
        return common, flags

    def _both(self, a: Value, b: Value) -> Value:
        text = self.w.assign(f"and {a.typed}, {b.text}")
        return Value(text, boolean, a.lanes, lane_values=both_hold(a, b))

    def _predicated(self, plan: IfPlan, condition: Value) -> None:
        outer = self.memory.predicate
        if outer is not None:
            condition = self._both(condition, outer)
        self.exprs.push()
        self._arm(plan.then, condition)
        if plan.orelse:
            ones = self.exprs.value(True, boolean, condition.lanes)
            text = self.w.assign(f"xor {condition.typed}, {ones.text}")
            opposite = Value(text, boolean, condition.lanes, lane_values=none_holds(condition))
            if outer is not None:
                opposite = self._both(opposite, outer)
            self._arm(plan.orelse, opposite)
        self.memory.predicate = outer
        self.exprs.pop()

    def _arm(self, plans: list[Plan], flags: Value) -> None:
        """Emits ``plans`` for the lanes of ``flags``. If there are none, loops are jumped over: one
        that is the same for all lanes would not end."""
        self.memory.predicate = flags
        masked = flags.lanes > 1 and self.w.dialect.masked_memory
        if not masked or not any(isinstance(p, ForPlan | WhilePlan) for p in walk_plans(plans)):
            self.emit(plans)
            return

        def emit() -> None:
            self.exprs.push()
            self.emit(plans)
            self.exprs.pop()

        lanes = self.memory.lanes
        assert lanes is not None
        self._fork(any_lane(self.w, running(self.w, lanes, flags)), emit, lambda: None)

    def _branch(self, plan: IfPlan, condition: Value, flags: Value | None = None) -> None:
        """Jumps by ``condition``; ``flags`` are the lanes that run then (None: all)."""

        def emit(plans: list[Plan]) -> None:
            self.exprs.push()
            self.emit(plans)
            self.exprs.pop()

        def then() -> None:
            if flags is not None:
                self._predicated(plan, flags)
            else:
                emit(plan.then)

        self._fork(condition.text, then, lambda: emit(plan.orelse))

    def _fork(self, condition: str, then: Callable[[], None], orelse: Callable[[], None]) -> None:
        """Jumps by ``condition``; afterwards, registers are phis of both ends."""
        w, slots = self.w, self.memory.slots
        labels, join = (w.label("then"), w.label("else")), w.label("join")
        entry = dict(slots)
        w.branch(condition, *labels)
        ends: list[tuple[dict[tuple[Buffer, int], Value], str]] = []
        for label, emit in zip(labels, (then, orelse), strict=True):
            slots.clear()
            slots.update(entry)
            w.start(label)
            emit()
            ends.append((dict(slots), w.block))
            w.jump(join)
        w.start(join)
        slots.clear()
        (first, first_block), (second, second_block) = ends
        for key, value in first.items():
            other = second.get(key)
            if other is None or other.lanes != value.lanes:
                continue
            text = value.text
            if other.text != text:
                text = w.assign(
                    f"phi {value.type} [{text}, %{first_block}], [{other.text}, %{second_block}]"
                )
            slots[key] = Value(text, value.dtype, value.lanes)
