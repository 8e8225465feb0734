"""Random cases: small problems with every feature of their driver, the same from the same seed."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace

from tilewright.dtypes import (
    DType,
    bf16,
    f8_e4m3,
    f8_e5m2,
    f16,
    f32,
    f64,
    s4,
    s8,
    s32,
    s64,
    tf32,
    u4,
    u8,
)
from tilewright.errors import LayoutError, ProblemError, UnsupportedError
from tilewright.layout.tags import CANONICAL
from tilewright.problems import (
    DRIVERS,
    LIBRARY,
    Binary,
    Direction,
    MatmulProblem,
    PostOp,
    Prelu,
    Problem,
    Record,
    Scale,
    Sum,
    Unary,
    ZeroPoint,
)
from tilewright.problems.policy import Policy
from tilewright.testing.case import TAG_KNOBS, Case

_FLOATS = (f32, f32, f32, bf16, bf16, f16, f64, tf32, f8_e4m3, f8_e5m2)
_INTEGERS = (u8, s8, u8, s8, s32)
_NIBBLES = (s4, u4)
_RESULTS = (f32, s32, s8, u8, bf16, f16, f64, tf32, f8_e4m3, f8_e5m2)
# Limit of multiply-adds: both the interpreter and the reference are slow.
_MOST_WORK = 2_000_000
_MOST_ELEMENTS = 20_000


def random_cases(driver: str, number: int, seed: int) -> Iterator[Case]:
    """``number`` random cases of ``driver``, all with a valid op.

    Raises `ProblemError` for an unknown driver.
    """
    if driver not in DRIVERS:
        raise ProblemError(f"unknown driver {driver!r}", cure="choose one of " + ", ".join(DRIVERS))
    rng = random.Random(f"{driver} {seed}")
    for _ in range(number):
        yield _valid(driver, rng)


def _valid(driver: str, rng: random.Random) -> Case:
    """A case with a valid op: independently drawn knobs do not always fit together."""
    while True:
        try:
            case = _case(driver, rng)
            case.op()
        except (ProblemError, UnsupportedError, LayoutError):
            continue
        if case.problem.nominal_flops <= _MOST_WORK and not _is_large(case.problem):
            return case


def _is_large(problem: Problem) -> bool:
    """Whether an op of the library has many elements: most only move these, which takes the
    interpreter long without counting as work."""
    shapes = problem.shapes.values() if isinstance(problem, Record) else ()
    return sum(map(math.prod, shapes)) > _MOST_ELEMENTS


def _case(driver: str, rng: random.Random) -> Case:
    if driver in LIBRARY:
        return _record_case(LIBRARY[driver], rng)
    if driver == "matmul" and rng.random() < 0.15:
        return _grouped_matmul(rng)
    problem = DRIVERS[driver].drawn(rng)
    direction = rng.choice(problem.directions)
    types = _types(problem, direction, rng)
    shapes = [problem.shapes[name] for name in problem.roles]
    ranks = [len(shape) for shape in shapes]
    tags = tuple(random_tag(rank, rng) for rank in ranks)
    result = ranks[-1] if direction is not Direction.BWD_D else ranks[0]
    quantized = types[0].is_integer and not direction.is_backward_weights
    contracts = driver in ("conv", "matmul")
    has_bias = contracts and direction is not Direction.BWD_W and rng.random() < 0.2
    has_fpmath = contracts and f32 in types and rng.random() < 0.1
    post_ops: tuple[PostOp, ...] = ()
    if not direction.is_backward_weights and rng.random() < 0.5:
        post_ops = tuple(_post_op(result, rng) for _ in range(rng.randint(1, 3)))
        if types[-1].is_integer and post_ops:
            # A rounded integer hides rounding errors before it: only exact functions stay.
            post_ops = tuple(p for p in post_ops if not isinstance(p, Unary) or _is_exact(p))
    return Case(
        problem,
        types,
        tags,
        direction,
        scales=_scales(driver, rng) if quantized or rng.random() < 0.1 else (),
        zero_points=_zero_points(driver, types, rng) if quantized else (),
        post_ops=post_ops,
        bias=rng.choice((f32, bf16, f16)) if has_bias else None,
        fpmath=rng.choice((tf32, bf16)) if has_fpmath else None,
    )


def _record_case(record: type[Record], rng: random.Random) -> Case:
    """A problem of the library, with types and layouts that it supports."""
    problem = record.drawn(rng)
    direction = rng.choice(problem.directions)
    data_type = rng.choice(problem.data_types)
    types = list(problem.expanded((data_type,)))
    for place, role in enumerate(problem.roles):
        if role in problem.indices:
            types[place] = rng.choice((s32, s64))
        elif rng.random() < 0.3:
            types[place] = rng.choice(problem.data_types)
    shapes = {slot.role: slot.shape for slot in problem.slots(direction)}
    tags = ["any"] * len(types)
    for place, role in enumerate(problem.roles):
        if role in TAG_KNOBS and role in shapes and rng.random() < 0.5:
            alike = [slot for slot in problem.slots(direction) if slot.role == role]
            count = len(alike) if rng.random() < 0.3 else 1
            tags[place] = ":".join(random_tag(len(slot.shape), rng) for slot in alike[-count:])
    case = Case(problem, tuple(types), tuple(tags), direction)
    if not (record.finished and direction.is_forward) or rng.random() < 0.6:
        return case
    rank, exact = len(shapes["dst"]), types[-1].is_integer
    post_ops = [_post_op(rank, rng) for _ in range(rng.randint(0, 2))]
    sides = [side for side in ("src", "dst") if rng.random() < 0.4 and side in shapes]
    return replace(
        case,
        scales=tuple(
            Scale(side, Policy("per_dim_0"))
            if side == "dst" and rng.random() < 0.4
            else Scale(side, value=rng.choice((0.25, 0.5, 2.0)))
            for side in sides
        ),
        post_ops=tuple(p for p in post_ops if not (exact and isinstance(p, Unary)) or _is_exact(p)),
    )


def _grouped_matmul(rng: random.Random) -> Case:
    """A matmul whose weights, and perhaps src, have scales or zero points for groups along K."""
    weights = rng.choice((u4, u4, s4, s4, u8, s8))
    group = rng.choice((2, 4, 8, 16, 32, 64, 128) if weights.is_nibble else (1, 3, 8, 32, 64))
    number = rng.choice((1, 2, 3, 4, 7))
    batch = tuple(rng.choice((1, 2)) for _ in range(rng.choice((0, 0, 0, 0, 1, 2))))
    src, wei = (tuple(rng.choice((size, size, 1)) for size in batch) for _ in range(2))
    m, n = rng.choice((1, 1, 1, 2, 3, 5, 17)), rng.choice((1, 2, 7, 8, 16, 17, 31, 33, 48, 65))
    problem = MatmulProblem(src, wei, m, group * number, n)
    along = Policy(rng.choice(("per_ocic", "per_ocic", "per_tensor")))
    kind = rng.choice((f32, f32, f16, bf16))
    scale = rng.choice(
        (
            Scale("weights", along, dtype=kind, group=group),
            Scale("weights", along, dtype=kind, group=group),
            Scale("weights", Policy("per_oc"), dtype=kind),
        )
    )
    point = rng.choice(
        (
            None,
            ZeroPoint("weights", along, dtype=rng.choice((u4, s4, u8, s8, s32)), group=group),
            ZeroPoint("weights", value=rng.choice((1, 8)), dtype=s8),
            ZeroPoint("weights", Policy("per_oc"), dtype=u8),
        )
    )
    rank = len(problem.dst_shape)
    result = rng.choice((f32, f32, bf16, f16))
    source = rng.choice((f32, f32, bf16, f16))
    tags = tuple(random_tag(rank, rng) for _ in range(3))
    scales, points = [scale], [] if point is None else [point]
    if rng.random() < 0.1:
        scales.append(Scale("src", value=0.5))
    elif rng.random() < 0.2:
        source = rng.choice((s8, u8))
        if rng.random() < 0.7:
            scales.append(Scale("src", Policy("per_ocic"), dtype=kind, group=group))
            if rng.random() < 0.5:
                points.append(ZeroPoint("src", Policy("per_ocic"), dtype=u8, group=group))
        elif rng.random() < 0.5:
            points.append(ZeroPoint("src", value=rng.choice((1, 7))))
    return Case(
        problem,
        (source, weights, result),
        tags,
        scales=tuple(scales),
        zero_points=tuple(points),
        post_ops=(_post_op(rank, rng),) if rng.random() < 0.3 else (),
        bias=f32 if rng.random() < 0.2 else None,
        fpmath=rng.choice((tf32, bf16)) if source is f32 and rng.random() < 0.1 else None,
    )


def _types(problem: Problem, direction: Direction, rng: random.Random) -> tuple[DType, ...]:
    """One type for all tensors, or any mixture that the driver takes, in every direction."""
    number = len(problem.roles)
    chance = rng.random()
    common = rng.choice(_FLOATS)
    if chance < 0.4:
        return (common,) * number
    result = rng.choice(_RESULTS)
    if problem.driver not in ("conv", "matmul"):
        family = _INTEGERS if chance < 0.6 else (*_FLOATS, *_INTEGERS)
        return (*(rng.choice(family) for _ in range(number - 1)), result)
    if chance < 0.6:
        operands = [rng.choice(_INTEGERS), rng.choice((s8, s8, u8))]
    elif chance < 0.8:
        # A wider result, or gradient, as in training in a small type.
        operands, result = (
            [common, common],
            f32 if common in (bf16, f16, f8_e4m3, f8_e5m2) else common,
        )
    else:
        operands = [rng.choice((*_FLOATS, *_INTEGERS)) for _ in range(2)]
    if direction.is_forward and rng.random() < 0.25:
        operands[1] = rng.choice(_NIBBLES)
    # The result's position among src, weights and dst.
    place = {Direction.BWD_D: 0, Direction.BWD_W: 1, Direction.BWD_WB: 1}.get(direction, 2)
    return (*operands[:place], result, *operands[place:])


def random_tag(rank: int, rng: random.Random) -> str:
    """A random tag: none, row-major, channels last, any order of dims, one or two blocks."""
    letters = CANONICAL[:rank]
    kind = rng.choice(("any", "plain", "last", "order", "block", "block", "blocks"))
    if kind == "any":
        return "any"
    if kind == "plain" or rank == 1:
        return letters
    if kind == "last":
        return letters[0] + letters[2:] + letters[1]
    if kind == "order":
        return "".join(rng.sample(letters, rank))
    first = rng.choice(letters[:2])
    size = rng.choice((2, 4, 8, 16, 16))
    if kind == "block":
        return letters.replace(first, first.upper()) + f"{size}{first}"
    second = letters[1] if first == letters[0] else letters[0]
    outer = letters.replace(first, first.upper()).replace(second, second.upper())
    return f"{outer}{size}{first}{rng.choice((4, 8, 16))}{second}"


def _is_exact(unary: Unary) -> bool:
    return unary.function in ("relu", "abs", "clip", "clip_v2", "linear", "round")


def _post_op(rank: int, rng: random.Random) -> PostOp:
    kind = rng.choice(("unary", "unary", "sum", "binary", "binary", "prelu"))
    policy = Policy(rng.choice(("common", "per_oc", "per_tensor")))
    if kind == "sum":
        return Sum(rng.choice((1.0, 0.5, 2.0)))
    if kind == "prelu":
        return Prelu(policy)
    if kind == "binary":
        function = rng.choice(("add", "add", "mul", "max", "min", "sub"))
        return Binary(function, rng.choice((f32, f32, bf16, s8)), policy)
    unary = Unary.drawn(rng)
    # These are undefined for a negative sum.
    return Unary("relu") if unary.function in ("log", "sqrt", "pow", "exp") else unary


def _scales(driver: str, rng: random.Random) -> tuple[Scale, ...]:
    kind = rng.choice((f32, f32, f16, bf16))
    if driver == "eltwise":
        return (Scale("dst", value=0.5),)
    scales = []
    if rng.random() < 0.5:
        number = rng.choice((0.25, 0.5, 2.0, 0.1))
        scales.append(Scale("src", value=number))
    if driver in ("conv", "matmul") and rng.random() < 0.5:
        scales.append(Scale("weights", Policy("per_oc"), dtype=kind))
    if driver == "binary" and rng.random() < 0.5:
        scales.append(Scale("src1", value=rng.choice((0.5, 3.0))))
    if rng.random() < 0.3:
        number = rng.choice((2.0, 4.0, 0.5))
        scales.append(Scale("dst", value=number))
    elif rng.random() < 0.2:
        scales.append(Scale("dst", Policy("per_oc"), dtype=kind))
    return tuple(scales)


def _zero_points(
    driver: str, types: tuple[DType, ...], rng: random.Random
) -> tuple[ZeroPoint, ...]:
    if driver not in ("conv", "matmul", "reorder"):
        return ()
    points = []
    if rng.random() < 0.4:
        points.append(ZeroPoint("src", value=rng.choice((1, 3, 7))))
    if driver != "reorder" and types[1].is_integer and rng.random() < 0.2:
        points.append(ZeroPoint("weights", value=rng.choice((1, 3))))
    elif driver != "reorder" and types[1].is_integer and rng.random() < 0.1:
        points.append(ZeroPoint("weights", Policy("per_oc"), dtype=rng.choice((s32, s8, u8))))
    if rng.random() < (0.3 if types[-1].is_integer else 0.1):
        points.append(ZeroPoint("dst", value=rng.choice((1, 5))))
    return tuple(points)
