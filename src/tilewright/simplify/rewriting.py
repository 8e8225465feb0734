"""Applying the rules: bottom-up, until none applies, with results cached per `Facts`.

The walk keeps its own stack: an unrolled sum is thousands of nodes deep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tilewright.dtypes import boolean, s64
from tilewright.facts import Facts, affine
from tilewright.ir.expr import Binary, Const, Expr, Select, Unary, Var, const, select
from tilewright.ir.load import Load, load
from tilewright.ir.operators import COMPARISONS
from tilewright.ir.visit import children, reads_memory, rebuild, walk
from tilewright.simplify import (
    add,
    bits,
    compare,
    divmod,
    float,
    logic,
    minmax,
    mul,
    select_cast,
    xor,
)
from tilewright.simplify.rules import Rule, RuleIndex

# Called with the rule's name, the expression before and the expression after.
Trace = Callable[[str, Expr, Expr], None]
_tracing: ContextVar[Trace | None] = ContextVar("tilewright.simplify.tracing", default=None)


@contextmanager
def traced(trace: Trace) -> Iterator[None]:
    """Inside it, ``trace`` sees each rewrite that has no trace of its own."""
    token = _tracing.set(trace)
    try:
        yield
    finally:
        _tracing.reset(token)


_OTHER_RULES = RuleIndex(
    (
        *add.RULES,
        *mul.RULES,
        *divmod.RULES,
        *xor.RULES,
        *bits.RULES,
        *minmax.RULES,
        *compare.RULES,
        *logic.RULES,
        *select_cast.RULES,
        *float.RULES,
    )
)
_SUM_OPERATORS = frozenset({"add", "sub", "mul"})


def all_rules() -> tuple[Rule, ...]:
    """Every rule, by operator family."""
    return add.SUM_RULES + _OTHER_RULES.rules


def simplify(expr: Expr, facts: Facts | None = None, trace: Trace | None = None) -> Expr:
    """An expression of the same value that is no more complex, where ``facts`` hold.

    Simplifying again changes nothing, and gives the same object. ``trace`` sees each rewrite.
    """
    if facts is None:
        facts = Facts.empty()
    cached = facts.simplified.get(expr)
    if cached is not None:
        return cached
    return _Walk(facts, trace if trace is not None else _tracing.get()).simplified(expr)


class _Walk:
    """One bottom-up walk under one scope of facts."""

    def __init__(self, facts: Facts, trace: Trace | None) -> None:
        self.facts = facts
        self.trace = trace

    def simplified(self, root: Expr) -> Expr:
        memo = self.facts.simplified
        # What a node on the stack was rewritten to, while that is being simplified in turn.
        pending: dict[Expr, Expr] = {}
        stack = [root]
        while stack:
            node = stack[-1]
            if node in memo:
                stack.pop()
                continue
            following = pending.get(node)
            if following is None:
                parts = _parts(node)
                missing = [part for part in parts if part not in memo]
                if missing:
                    stack += missing
                    continue
                following = self._rewritten(node, parts)
                if following is node or (following in pending and following not in memo):
                    # Rules that undo each other would go round for ever: the first result stays.
                    memo[node] = node
                    stack.pop()
                    continue
                pending[node] = following
            if following in memo:
                memo[node] = memo[following]
                stack.pop()
            else:
                stack.append(following)
        return memo[root]

    def _rewritten(self, node: Expr, parts: tuple[Expr, ...]) -> Expr:
        """``node`` after one change: of its parts, or by one rule; itself if there is none."""
        memo = self.facts.simplified
        if isinstance(node, Var):
            return self._variable(node)
        if isinstance(node, Const):
            return node
        changed = {part: memo[part] for part in parts if memo[part] is not part}
        if changed:
            return _with_parts(node, changed)
        if add.is_sum(node):
            return self._sum(node)
        if isinstance(node, Load | Select):
            inner = self._under_condition(node)
            if inner is not node:
                return inner
        for rule in _OTHER_RULES.candidates(node):
            result = rule.apply(node, self.facts)
            if result is not None and result is not node:
                if self.trace is not None:
                    self.trace(rule.name, node, result)
                return result
        return node

    def _variable(self, node: Var) -> Expr:
        if node.type.is_integer:
            lo, hi = self.facts.atom_bounds(node)
            if lo is not None and lo == hi:
                return const(lo, node.type)
        elif node.type is boolean:
            truth = self.facts.prove(node)
            if truth is not None:
                return const(truth, boolean)
        return node

    def _sum(self, node: Expr) -> Expr:
        form = affine(node)
        result = form.to_expr()
        name = "canonical-sum"
        if result is node and any(isinstance(atom, Binary) for atom in form.terms):
            for rule in add.SUM_RULES:
                rewritten = rule.apply(node, self.facts)
                if rewritten is not None:
                    result, name = rewritten, rule.name
                    break
        if result is not node and self.trace is not None:
            self.trace(name, node, result)
        return result

    def _under_condition(self, node: Load | Select) -> Expr:
        """Parts that only matter where a condition holds, simplified as if it held."""
        if isinstance(node, Load):
            if node.mask is None:
                return node
            if isinstance(node.mask, Const):
                # Where nothing is loaded, the value is 0.
                return load(node.buffer, node.index) if node.mask.value else const(0, node.type)
            inside = _Walk(self.facts.assume(node.mask), self.trace)
            return load(node.buffer, tuple(map(inside.simplified, node.index)), node.mask)
        then = self._branch(node.a, node.condition, True)
        orelse = self._branch(node.b, node.condition, False)
        return select(node.condition, then, orelse)

    def _branch(self, branch: Expr, condition: Expr, truth: bool) -> Expr:
        # Both branches are evaluated, so the masks of their loads must hold without the condition.
        if not _may_decide(condition, branch):
            return branch
        return _Walk(self.facts.assume(condition, truth), self.trace).simplified(branch)


def _may_decide(condition: Expr, branch: Expr) -> bool:
    """Whether ``condition`` may simplify ``branch``: one without loads, with integers or conditions
    in it, that is more than a variable or a number.

    A condition on floats has to occur in the branch: it implies nothing else, and branches of
    branches would be simplified under each combination of their conditions.
    """
    if isinstance(branch, Var | Const) or reads_memory(branch):
        return False
    atoms = _float_conditions(condition)
    if atoms is None:
        return any(not node.type.is_float for node in walk(branch))
    return any(node in atoms for node in walk(branch))


def _float_conditions(condition: Expr) -> set[Expr] | None:
    """The comparisons and variables that ``condition`` combines; None if some are of integers."""
    conditions: set[Expr] = set()
    stack = [condition]
    while stack:
        node = stack.pop()
        match node:
            case Unary(op="not"):
                stack.append(node.a)
            case Binary(op="and" | "or"):
                stack += [node.a, node.b]
            case Binary() if node.op in COMPARISONS and node.a.type.is_float:
                conditions.add(node)
            case Var():
                conditions.add(node)
            case _:
                return None
    return conditions


def _parts(node: Expr) -> tuple[Expr, ...]:
    """The operands of ``node``, simplified first; of a sum or conjunction, through nested ones."""
    if node.type is s64 and isinstance(node, Binary | Unary):
        if isinstance(node, Unary) or node.op in _SUM_OPERATORS:
            terms = affine(node).terms
            if node not in terms:
                return tuple(terms)
    elif isinstance(node, Binary) and node.op in ("and", "or"):
        return tuple(logic.joined(node))
    if isinstance(node, Load) and node.mask is not None:
        return (node.mask,)
    if isinstance(node, Select):
        # The other branches are simplified under the condition, once: if they were without it,
        # too, the work would double with each link of a chain.
        free = (branch for branch in (node.a, node.b) if not _may_decide(node.condition, branch))
        return (node.condition, *free)
    return children(node)


def _with_parts(node: Expr, changed: dict[Expr, Expr]) -> Expr:
    if add.is_sum(node):
        form = affine(node)
        return form.replaced({atom: affine(new) for atom, new in changed.items()}).to_expr()
    if isinstance(node, Binary) and node.op in ("and", "or"):
        return logic.join(node.op, [changed.get(part, part) for part in logic.joined(node)])
    return rebuild(node, tuple(changed.get(part, part) for part in children(node)))
