"""Calls, loops, branches, tuples, tokens, and a program's own checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tilewright.errors import ProblemError, UnsupportedError
from tilewright.frontends.stablehlo.attributes import Symbol
from tilewright.frontends.stablehlo.checks import Check
from tilewright.frontends.stablehlo.elements import Elements
from tilewright.frontends.stablehlo.regions import arrays_of, parts_of, region_of
from tilewright.frontends.stablehlo.syntax import Operation
from tilewright.frontends.stablehlo.translation import (
    DEVICES,
    Translation,
    arrays,
    integer,
    wrong,
)
from tilewright.frontends.stablehlo.types import Integer
from tilewright.frontends.stablehlo.values import Array, Group, Token, Value
from tilewright.ir.expr import select
from tilewright.ir.open_sizes import OpenTruth
from tilewright.tensor.control import Branch, case, if_, while_
from tilewright.tensor.tensor import Tensor


def _returned(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Value]:
    return list(operands)


def _call(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Value]:
    name = "decomposition" if o.name == "stablehlo.composite" else "callee"
    symbol = o.attributes.get(name)
    function = t.module.function(symbol.name) if isinstance(symbol, Symbol) else None
    if function is None:
        raise wrong(o, name, "a function of this module, as @f")
    return t.call(function, operands, o.span)


def _while(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Value]:
    states, tokens = _without_tokens(o, operands)
    elements = [array.element for array in states]
    condition = region_of(o, 0, takes=len(operands))
    body = region_of(o, 1, takes=len(operands))

    def test(values: Sequence[Tensor]) -> Tensor:
        (result,) = arrays(
            o, t.region(condition, _with_tokens(arrays_of(values, elements), tokens)), 1
        )
        return result.parts[0]

    def step(values: Sequence[Tensor]) -> Sequence[Tensor]:
        results = t.region(body, _with_tokens(arrays_of(values, elements), tokens))
        kept, _ = _without_tokens(o, results)
        return parts_of(kept)

    with t.control():
        tensors = while_(parts_of(states), test, step, t.builder)
    return _with_tokens(arrays_of(tensors, elements), tokens)


def _without_tokens(o: Operation, values: Sequence[Value]) -> tuple[list[Array], list[bool]]:
    tokens = [isinstance(value, Token) for value in values]
    return arrays(o, [v for v in values if not isinstance(v, Token)]), tokens


def _with_tokens(values: Sequence[Array], tokens: Sequence[bool]) -> list[Value]:
    rest = iter(values)
    return [Token() if token else next(rest) for token in tokens]


def _branch(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Value]:
    """``if`` and ``case``: only the arm that is chosen is computed."""
    (chooser,) = arrays(o, operands, 1)
    regions = [region_of(o, n, takes=0) for n in range(max(1, len(o.regions)))]
    if o.name == "stablehlo.if" and len(regions) != 2:
        raise ProblemError(
            f"{o.name} has {len(regions)} regions", where=o.span, cure="write one for each case"
        )
    kinds: list[list[Value]] = []

    def arm(number: int) -> Sequence[Tensor]:
        results = t.region(regions[number], [])
        kinds.append(results)
        kept, _ = _without_tokens(o, results)
        return parts_of(kept)

    with t.control():
        tensors = _arms(t, o, chooser, len(regions), arm)
    kept, tokens = _without_tokens(o, kinds[0])
    return _with_tokens(arrays_of(tensors, [array.element for array in kept]), tokens)


def _arms(
    t: Translation,
    o: Operation,
    chooser: Array,
    count: int,
    arm: Callable[[int], Sequence[Tensor]],
) -> tuple[Tensor, ...]:
    test = chooser.parts[0]
    if o.name == "stablehlo.if":
        if chooser.element != Integer(1) or chooser.rank:
            raise ProblemError(
                f"the condition of {o.name} is {chooser.type}",
                where=o.span,
                cure="give one truth value: tensor<i1>",
            )
        arms = [partial(arm, 0), partial(arm, 1)]
        return _both(t, test, arms) if t.scalar else if_(test, *arms)
    if t.scalar:
        raise UnsupportedError(
            "a case within a region that is an expression",
            where=o.span,
            cure="use stablehlo.select",
        )
    return case(test, [partial(arm, number) for number in range(count)])


def _both(t: Translation, test: Tensor, arms: Sequence[Branch]) -> tuple[Tensor, ...]:
    """In an expression, both arms are computed."""
    then, orelse = (arm() for arm in arms)
    return tuple(
        Tensor(t.builder, (), select(test.value, a.value, b.value))
        for a, b in zip(then, orelse, strict=True)
    )


def _tuple(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Value]:
    return [Group(tuple(operands))]


def _tuple_element(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Value]:
    index = integer(o, "index")
    group = operands[0] if len(operands) == 1 else None
    if not isinstance(group, Group) or not 0 <= index < len(group.parts):
        raise wrong(o, "index", "a part of a tuple")
    return [group.parts[index]]


def _token(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Value]:
    return [Token()]


# Of annotations and their like, each gives what it takes.
_TRANSPARENT = (
    "Sharding",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "annotate_device_placement",
    "LayoutConstraint",
    "mhlo.optimization_barrier",
    "xla.sdy.FuncResultSharding",
)
_CALLS = {"mhlo.topk": "chlo.top_k", "mhlo.erf": "chlo.erf", "mhlo.tan": "stablehlo.tan"}


def _custom_call(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Value]:
    target = o.attributes.get("call_target_name")
    name = target.name if isinstance(target, Symbol) else target
    if not isinstance(name, str):
        raise wrong(o, "call_target_name", "a name")
    if name.startswith("check."):
        return list(_check(t, o, operands, name.removeprefix("check.")))
    if name == "shape_assertion" and not o.results:
        return _asserted(t, o, operands)
    if name in _TRANSPARENT and len(operands) == len(o.results) == 1:
        return list(operands)
    other = t.handlers.get(_CALLS.get(name, ""))
    if other is not None:
        return list(other(t, o, operands))
    raise UnsupportedError(
        f"the custom call @{name[:80]} is not translated",
        where=o.span,
        why=DEVICES.get(name) or "it is code of another compiler's runtime",
        cure="export the program without it",
    )


def _asserted(t: Translation, o: Operation, operands: Sequence[Value]) -> list[Value]:
    """What is asserted of shapes holds, or is refused. A graph does not stop for what data
    decide."""
    (condition,) = arrays(o, operands[:1], 1)
    if condition.known is None:
        return []
    for truth in condition.known.reshape(-1):
        if isinstance(truth, OpenTruth) and t.asserted is not None:
            t.asserted(truth.expr)
        if not truth:
            message = str(o.attributes.get("error_message", "the shapes do not fit"))
            values = {f"{{{n}}}": array.known for n, array in enumerate(arrays(o, operands[1:]))}
            for place, value in values.items():
                message = message.replace(place, place if value is None else str(value))
            raise ProblemError(message, where=o.span, cure="give other sizes")
    return []


def _check(t: Translation, o: Operation, operands: Sequence[Value], name: str) -> Sequence[Value]:
    """A check's two sides become results of the graph."""
    kind = name.removeprefix("expect_").removesuffix("_const")
    called = o.name == "stablehlo.custom_call"
    if kind not in ("eq", "close", "almost_eq"):
        raise UnsupportedError(
            f"the check {name[:80]} is not translated",
            where=o.span,
            why="it compares with files of another interpreter",
            cure="use check.expect_eq",
        )
    sources = arrays(o, operands)
    value = o.attributes.get("value")
    if isinstance(value, Elements):
        sources.append(t.constant(value))
    if len(sources) != 2 or sources[0].type != sources[1].type:
        raise ProblemError(
            f"{name} compares two tensors of one type", where=o.span, cure="give two"
        )
    if t.inside:
        raise UnsupportedError(
            f"{name} within a loop or a branch", where=o.span, cure="check what comes out of it"
        )
    number = len(t.checks)
    sides = []
    for side, array in (("actual", sources[0]), ("expected", sources[1])):
        names = [f"check{number}_{side}{n or ''}" for n in range(len(array.parts))]
        for label, part in zip(names, array.parts, strict=True):
            t.builder.output(label, part)
        sides.append(tuple(names))
    ulps = o.attributes.get("max_ulp_difference", 3)
    # Calls are judged less strictly than operations, as StableHLO's own interpreter does.
    loose = called and kind == "almost_eq"
    if name == "eq" and not isinstance(sources[0].element, Integer):
        kind = "almost_eq"
    tolerance = o.attributes.get("tolerance", 1e-3 if loose else 1e-4)
    t.checks.append(Check(kind, sides[0], sides[1], o.span, int(ulps), float(tolerance)))
    if o.results:
        return [t.constant_of(np.array(True), Integer(1))]
    return []


def _check_operation(t: Translation, o: Operation, operands: Sequence[Value]) -> Sequence[Value]:
    return _check(t, o, operands, o.name.removeprefix("check."))


HANDLERS = {
    "check.expect_almost_eq": _check_operation,
    "check.expect_almost_eq_const": _check_operation,
    "check.expect_close": _check_operation,
    "check.expect_eq": _check_operation,
    "check.expect_eq_const": _check_operation,
    "check.expect_serialized_eq": _check_operation,
    "func.call": _call,
    "func.return": _returned,
    "chlo.return": _returned,
    "stablehlo.after_all": _token,
    "stablehlo.case": _branch,
    "stablehlo.composite": _call,
    "stablehlo.create_token": _token,
    "stablehlo.custom_call": _custom_call,
    "stablehlo.get_tuple_element": _tuple_element,
    "stablehlo.if": _branch,
    "stablehlo.return": _returned,
    "stablehlo.tuple": _tuple,
    "stablehlo.while": _while,
}
