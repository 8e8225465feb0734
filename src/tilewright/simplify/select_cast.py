"""Selects, casts and bit casts."""

from __future__ import annotations

from tilewright.dtypes import DType, bf16, boolean, f32, f64, s8, s16, s32, s64, u32
from tilewright.facts import Facts
from tilewright.ir.expr import Bitcast, Cast, Expr, bitcast, cast, const, select, var
from tilewright.simplify.rules import (
    FALSE,
    TRUE,
    Predicate,
    Procedure,
    Rule,
    Types,
    p,
    q,
    x,
    y,
    z,
)


def is_exact(source: DType, target: DType) -> bool:
    """Whether ``target`` represents every value of ``source``."""
    if source is target or source is boolean:
        return True
    if target is boolean:
        return False
    if source.is_float:
        return target.is_float and _float_fits(source, target)
    if target.is_integer:
        return target.lowest <= source.lowest and source.highest <= target.highest
    # Every integer up to 2 to the number of significant bits, and no infinity on the way there.
    width = source.bits - (1 if source.kind == "int" else 0)
    return width <= target.digits and source.bits < 16


def _float_fits(source: DType, target: DType) -> bool:
    wider = {
        "bf16": ("f32", "f64", "tf32"),
        "f16": ("f32", "f64", "tf32"),
        "tf32": ("f32", "f64"),
        "f32": ("f64",),
        "f8_e5m2": ("f16", "bf16", "f32", "f64", "tf32"),
        "f8_e4m3": ("f16", "bf16", "f32", "f64", "tf32"),
    }
    return target.name in wider.get(source.name, ())


def _cast_chain(expr: Expr, facts: Facts) -> Expr | None:
    assert isinstance(expr, Cast)
    if not isinstance(expr.a, Cast):
        return None
    source, middle, target = expr.a.a.type, expr.a.type, expr.type
    # A float saturates where an integer wraps, so the way through one must not be seen.
    through_float = source.is_integer and middle.is_float and target.is_integer
    if is_exact(source, middle) and (not through_float or is_exact(source, target)):
        return cast(target, expr.a.a)
    return None


def _cast_rule(name: str, before: Expr, after: Expr, why: str, procedure: Procedure) -> Rule:
    """A rule on casts of any types: ``procedure`` checks whether it applies, ``why`` says when."""
    return Rule(name, before, after, Predicate(why, lambda bindings: True), Types.ANY, procedure)


def _cast_wraps(expr: Expr, facts: Facts) -> Expr | None:
    assert isinstance(expr, Cast)
    if not isinstance(expr.a, Cast):
        return None
    source, middle, target = expr.a.a.type, expr.a.type, expr.type
    if source.is_integer and middle.is_integer and target.is_integer and target.bits <= middle.bits:
        return cast(target, expr.a.a)
    return None


def _cast_fits(expr: Expr, facts: Facts) -> Expr | None:
    assert isinstance(expr, Cast)
    if not isinstance(expr.a, Cast) or not expr.a.type.is_integer or not expr.type.is_integer:
        return None
    inner = expr.a.a
    if not inner.type.is_integer:
        return None
    lo, hi = facts.bounds(inner)
    if lo is None or hi is None or lo < expr.a.type.lowest or hi > expr.a.type.highest:
        return None
    return cast(expr.type, inner)


def _bitcast_chain(expr: Expr, facts: Facts) -> Expr | None:
    assert isinstance(expr, Bitcast)
    return bitcast(expr.type, expr.a.a) if isinstance(expr.a, Bitcast) else None


def _bitcast_of_integer(expr: Expr, facts: Facts) -> Expr | None:
    assert isinstance(expr, Bitcast)
    both = expr.type.is_integer and expr.a.type.is_integer
    return cast(expr.type, expr.a) if both else None


_S64 = x
_S8, _U32, _BF16 = var("x", s8), var("x", u32), var("x", bf16)
_RANGE = (const(int(s32.lowest)) <= x) & (x <= const(int(s32.highest)))

RULES = (
    Rule("select-same", select(p, x, x), x, types=Types.ANY),
    Rule("select-not", select(~p, x, y), select(p, y, x), types=Types.ANY),
    Rule("select-of-select", select(p, select(p, x, y), z), select(p, x, z), types=Types.ANY),
    Rule("select-else-select", select(p, x, select(p, y, z)), select(p, x, z), types=Types.ANY),
    Rule("select-and", select(p, select(q, x, y), y), select(p & q, x, y), types=Types.ANY),
    Rule("select-or", select(p, x, select(q, x, y)), select(p | q, x, y), types=Types.ANY),
    Rule("select-condition", select(p, TRUE, FALSE), p, types=Types.BOOL),
    Rule("select-negation", select(p, FALSE, TRUE), ~p, types=Types.BOOL),
    Rule("select-conjunction", select(p, q, FALSE), p & q, types=Types.BOOL),
    Rule("select-disjunction", select(p, TRUE, q), p | q, types=Types.BOOL),
    _cast_rule(
        "cast-chain",
        cast(f64, cast(f32, _BF16)),
        cast(f64, _BF16),
        "the first cast is exact",
        _cast_chain,
    ),
    _cast_rule(
        "cast-round-trip", cast(s8, cast(s32, _S8)), _S8, "the first cast is exact", _cast_chain
    ),
    _cast_rule(
        "cast-wraps-once",
        cast(s16, cast(s32, _S64)),
        cast(s16, _S64),
        "the second type is no wider",
        _cast_wraps,
    ),
    _cast_rule(
        "bit-cast-chain",
        bitcast(u32, bitcast(s32, _U32)),
        _U32,
        "bits stay what they are",
        _bitcast_chain,
    ),
    _cast_rule(
        "bit-cast-of-integer",
        bitcast(s32, _U32),
        cast(s32, _U32),
        "both are integers",
        _bitcast_of_integer,
    ),
    Rule("cast-of-fitting", cast(s64, cast(s32, _S64)), _S64, _RANGE, Types.ANY, _cast_fits),
)
