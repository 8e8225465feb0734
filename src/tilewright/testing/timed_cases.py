"""Random kernels to time, by kind, the same from the same seed: what the rates of a machine are
fitted to, and what its predicted times are judged by.

Sizes are uniform in their logarithms: tensors lie in the nearest cache, or in memory, and kernels
take from a microsecond to some 20 milliseconds on a core.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.dtypes import bf16, f16, f32, s8, s32, u4, u8
from tilewright.errors import LayoutError, ProblemError, UnsupportedError
from tilewright.ir.arguments import Scalar
from tilewright.ir.stmt import Kernel
from tilewright.ops.op import Op
from tilewright.problems import (
    Binary,
    BinaryProblem,
    ConvProblem,
    Direction,
    EltwiseProblem,
    MatmulProblem,
    Policy,
    PoolProblem,
    PostOp,
    ReduceProblem,
    ReorderProblem,
    Scale,
    Shape,
    Unary,
    ZeroPoint,
)
from tilewright.problems.library import (
    ArgProblem,
    BatchNormProblem,
    GatherProblem,
    GroupNormProblem,
    LayerNormProblem,
    LogSumExpProblem,
    MomentsProblem,
    ScanProblem,
    ScatterProblem,
    SoftmaxProblem,
    TransposeProblem,
)
from tilewright.testing.case import Case
from tilewright.testing.kernel_case import KernelCase
from tilewright.testing.random_problems import random_tag
from tilewright.testing.timed_graphs import random_graph
from tilewright.testing.timed_launches import LAUNCHES

Drawn = Case | KernelCase
# The least and the most elements of the greatest tensor of a kernel that moves what it reads, and
# the most multiplications of one that multiplies matrices.
_FEW, _MANY, _MOST_PRODUCTS = 1 << 10, 1 << 25, 1 << 29
_FEW_PRODUCTS = 1 << 14
# So many times as long as a copy takes what gathers, scans, or works on windows.
_SLOWER = 8
_FLOATS = (f32, f32, f32, f32, bf16, f16)
# Functions that networks have.
_USUAL = ("relu", "tanh", "exp", "logistic", "gelu_erf", "sqrt", "abs", "swish", "log", "square")
_PRODUCTS = ((f32,) * 3, (f32,) * 3, (bf16, bf16, f32), (bf16,) * 3, (u8, s8, s32), (u8, s8, u8))


@dataclass(frozen=True)
class TimedCase:
    """``case`` is of this ``kind``; ``name`` are the arguments of the command line that say it, or
    what it is called."""

    kind: str
    name: str
    case: Drawn

    @property
    def what(self) -> Op | Kernel:
        """What is compiled."""
        return self.case.op() if isinstance(self.case, Case) else self.case.kernel

    @property
    def numbers(self) -> Mapping[str, Scalar]:
        """The scalars of a call."""
        return {} if isinstance(self.case, Case) else self.case.numbers


def timed_cases(number: int, seed: int, kinds: Sequence[str] = ()) -> Iterator[TimedCase]:
    """``number`` cases of ``kinds`` (default: all) in turn. Case ``i`` of a kind is the same,
    whatever the others are.

    Raises `ProblemError` for a kind that there is none of.
    """
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise ProblemError(
            f"there is no kind of kernels called {unknown[0]!r}",
            cure="choose some of " + ", ".join(KINDS),
        )
    chosen = tuple(kinds) or tuple(KINDS)
    for place in range(number):
        kind = chosen[place % len(chosen)]
        yield _valid(kind, random.Random(f"{kind} {seed} {place // len(chosen)}"))


def _valid(kind: str, rng: random.Random) -> TimedCase:
    """A case whose sizes, types and layouts fit together."""
    while True:
        try:
            case = KINDS[kind](rng)
            if isinstance(case, KernelCase):
                numbers = " ".join(f"{name}={value}" for name, value in case.numbers.items())
                return TimedCase(kind, f"{case.source} {numbers}".strip(), case)
            case.op().resolved()
        except (ProblemError, UnsupportedError, LayoutError):
            continue
        return TimedCase(kind, case.arguments(), case)


# Sizes.


def _between(rng: random.Random, low: float, high: float) -> int:
    """A number, uniform in its logarithm, as sizes are."""
    return _usual(rng, math.exp(rng.uniform(math.log(low), math.log(high))))


def _usual(rng: random.Random, number: float) -> int:
    """About ``number``, 1 or more: of the greater ones, two fifths are multiples of 16, and a fifth
    are powers of two, whose rows share sets of a cache."""
    form = rng.random()
    if number > 32 and form < 0.2:
        return int(1 << round(math.log2(number)))
    return max(1, 16 * round(number / 16) if number > 32 and form < 0.6 else round(number))


def _elements(rng: random.Random, slower: int = 1) -> int:
    """How many elements the greatest tensor has, of a kernel so many times slower than a copy."""
    return _between(rng, _FEW, _MANY / slower)


def _shape(rng: random.Random, elements: int, rank: int) -> Shape:
    """A shape of about so many elements."""
    cuts = sorted(rng.random() for _ in range(rank - 1))
    parts = (end - start for start, end in zip((0, *cuts), (*cuts, 1), strict=True))
    return tuple(_usual(rng, elements**part) for part in parts)


def _matrix(rng: random.Random, elements: int) -> Shape:
    """Rows and columns, neither of them very few."""
    rows = _usual(rng, elements ** rng.uniform(0.2, 0.8))
    return rows, _usual(rng, elements / rows)


def _image(rng: random.Random, elements: int) -> tuple[int, int, int, int]:
    """Images, channels, height and width."""
    size = min(_between(rng, 4, 128), max(1, round(elements**0.4)))
    rest = max(1, elements // size**2)
    images = min(rest, rng.choice((1, 1, 2, 4, 16)))
    return images, max(1, rest // images), size, size


def _tags(rng: random.Random, *roles: bool) -> tuple[str, ...]:
    """Channels first or last for those tensors that are images, ``any`` for the others."""
    tag = rng.choice(("abcd", "acdb"))
    return tuple(tag if images else "any" for images in roles)


# Kinds.


def _elementwise(rng: random.Random) -> Case:
    integers = rng.random() < 0.15
    types = (s8, u8, s32, f32) if integers else _FLOATS
    source = rng.choice(types)
    target = source if rng.random() < 0.6 else rng.choice(types)
    shape = _shape(rng, _elements(rng), rng.randint(1, 4))
    function = rng.choice(_USUAL) if rng.random() < 0.6 else Unary.drawn(rng).describe()
    return Case(
        EltwiseProblem(shape, algorithm=function),
        (source, target),
        post_ops=_post_ops(rng, 0 if integers else rng.choice((0, 0, 1, 2))),
    )


def _binary(rng: random.Random) -> Case:
    shape = _shape(rng, _elements(rng), rng.randint(1, 4))
    other = tuple(1 if rng.random() < 0.25 else size for size in shape)
    pair = (shape, other) if rng.random() < 0.8 else (other, shape)
    types = tuple(rng.choice(_FLOATS) for _ in range(3))
    return Case(
        BinaryProblem(*pair, algorithm=rng.choice(("add", "mul", "max", "sub", "div"))),
        types if rng.random() < 0.4 else types[:1],
        post_ops=_post_ops(rng, rng.choice((0, 0, 1, 2))),
    )


def _post_ops(rng: random.Random, number: int) -> tuple[PostOp, ...]:
    policies = [Policy(name) for name in ("common", "per_oc", "per_tensor")]
    return tuple(
        Unary.drawn(rng)
        if rng.random() < 0.4
        else Binary(rng.choice(("add", "mul", "max")), f32, rng.choice(policies))
        for _ in range(number)
    )


def _reorder(rng: random.Random) -> Case:
    shape = _shape(rng, _elements(rng, 2), rng.randint(2, 4))
    types = (*_FLOATS, s8, u8)
    source = rng.choice(types)
    pair = (source, source if rng.random() < 0.5 else rng.choice(types))
    return Case(ReorderProblem(shape), pair, (random_tag(len(shape), rng), "any"))


def _transpose(rng: random.Random) -> Case:
    shape = _shape(rng, _elements(rng, 2), rng.randint(2, 4))
    order = tuple(rng.sample(range(len(shape)), len(shape)))
    return Case(TransposeProblem(shape, order), (rng.choice((*_FLOATS, s8)),))


def _row_reduction(rng: random.Random) -> Case:
    shape = _matrix(rng, _elements(rng))
    if rng.random() < 0.3:
        return _along(rng, shape, 1)
    types = (rng.choice((*_FLOATS, s8)), f32)
    return Case(ReduceProblem(shape, (shape[0], 1), algorithm=_reducing(rng)), types)


def _column_reduction(rng: random.Random) -> Case:
    shape = _matrix(rng, _elements(rng))
    if rng.random() < 0.3:
        return _along(rng, shape, 0)
    if rng.random() < 0.3:
        images, channels, *size = _image(rng, shape[0] * shape[1])
        source = (images, channels, *size)
        tags = _tags(rng, True, False)
        problem = ReduceProblem(source, (1, channels, 1, 1), algorithm=_reducing(rng))
        return Case(problem, (rng.choice(_FLOATS), f32), tags)
    problem = ReduceProblem(shape, (1, shape[1]), algorithm=_reducing(rng))
    return Case(problem, (rng.choice((*_FLOATS, s8)), f32))


def _reducing(rng: random.Random) -> str:
    return rng.choice(("sum", "sum", "max", "mean", "min"))


def _along(rng: random.Random, shape: Shape, axis: int) -> Case:
    """A reduction of several results, or of results that wait for one another."""
    problem = rng.choice((ArgProblem, MomentsProblem, LogSumExpProblem))(shape, axis)
    return Case(problem, (rng.choice(_FLOATS),))


def _softmax(rng: random.Random) -> Case:
    shape = _matrix(rng, _elements(rng, 4))
    problem = SoftmaxProblem(shape, axis=0 if rng.random() < 0.2 else 1)
    algorithm = rng.choice(problem.algorithms)
    direction = rng.choice((Direction.FWD_D, Direction.FWD_D, Direction.BWD_D))
    return Case(problem.changed(algorithm=algorithm), (rng.choice(_FLOATS),), direction=direction)


def _norm(rng: random.Random) -> Case:
    elements, flags = _elements(rng, 4), rng.choice(("CH", "", "C"))
    types, tags = (rng.choice(_FLOATS),), _tags(rng, True, True)
    direction = Direction.FWD_D if rng.random() < 0.75 else Direction.BWD_D
    kind = rng.choice(("layer", "layer", "layer", "batch", "group"))
    if kind == "layer":
        rows = LayerNormProblem(_matrix(rng, elements), rng.choice((flags, "MC")))
        return Case(rows, types, direction=direction)
    shape = _image(rng, elements)
    if kind == "batch":
        return Case(BatchNormProblem(shape, flags), types, tags, direction)
    groups = rng.choice([n for n in (1, 2, 4, 8, 32) if not shape[1] % n])
    return Case(GroupNormProblem(shape, flags, groups=groups), types, tags, direction)


def _pooling(rng: random.Random) -> Case:
    images, channels, size, _ = _image(rng, _elements(rng, _SLOWER))
    window = min(size, rng.choice((2, 3, 3, 5, 7)))
    stride = rng.choice((1, 2, window))
    text = f"mb{images}ic{channels}ih{size}kh{window}sh{stride}ph{rng.choice((0, window // 2))}"
    problem = PoolProblem.parse(text).with_alg(rng.choice(PoolProblem.algorithms))
    direction = Direction.FWD_D if rng.random() < 0.85 else Direction.BWD_D
    types = rng.choice((*_FLOATS, s8))
    return Case(problem, (types,), _tags(rng, True, True), direction)


def _gather(rng: random.Random) -> Case:
    shape = _matrix(rng, _elements(rng, _SLOWER))
    axis = rng.randrange(2)
    places = (_between(rng, 1, max(2, 2 * shape[axis])),)
    return Case(GatherProblem(shape, places, axis), (rng.choice(_FLOATS),))


def _scatter(rng: random.Random) -> Case:
    shape = _matrix(rng, _elements(rng, _SLOWER))
    axis = rng.randrange(2)
    places = (_between(rng, 1, max(2, 2 * shape[axis])),)
    return Case(ScatterProblem(shape, places, axis), (f32,))


def _scan(rng: random.Random) -> Case:
    shape = _matrix(rng, _elements(rng, _SLOWER))
    problem = ScanProblem(shape, rng.randrange(2), flags=rng.choice(("", "E", "R")))
    return Case(problem.changed(algorithm=rng.choice(problem.algorithms)), (f32,))


def _convolution(rng: random.Random) -> Case:
    size, window = _between(rng, 5, 112), rng.choice((1, 1, 3, 3, 5, 7))
    budget = _between(rng, _FEW_PRODUCTS, _MOST_PRODUCTS / 4)
    images = rng.choice((1, 1, 2, 4))
    stride = rng.choice((1, 1, 1, 2))
    points = images * (-(-size // stride)) ** 2 * window**2
    channels = max(1, budget // points)
    inner = rng.choice((3, max(1, round(channels**0.5)), max(1, round(channels**0.5)), 16, 64))
    outer = max(1, min(1024, channels // inner))
    problem = ConvProblem.parse(
        f"mb{images}ic{inner}ih{size}oc{outer}kh{window}sh{stride}ph{window // 2}"
    )
    types = rng.choice(_PRODUCTS)
    direction = Direction.FWD_D
    if not types[0].is_integer and rng.random() < 0.4:
        direction = rng.choice((Direction.BWD_D, Direction.BWD_W))
        types = types[:1] * 3
    post_ops = (Unary("relu"),) if direction.is_forward and rng.random() < 0.3 else ()
    return Case(problem, types, _tags(rng, True, False, True), direction, post_ops=post_ops)


def _depthwise(rng: random.Random) -> Case:
    images, channels, size, _ = _image(rng, _elements(rng, 2 * _SLOWER))
    window = min(size, rng.choice((3, 3, 5, 7)))
    problem = ConvProblem.parse(
        f"g{channels}mb{images}ic{channels}ih{size}oc{channels}"
        f"kh{window}sh{rng.choice((1, 1, 2))}ph{window // 2}"
    )
    types = rng.choice(((f32,) * 3, (bf16,) * 3, (u8, s8, u8)))
    return Case(problem, types, _tags(rng, True, False, True))


def _matmul(rng: random.Random) -> Case:
    budget = _between(rng, _FEW_PRODUCTS, _MOST_PRODUCTS)
    batch: Shape = (rng.choice((2, 8, 32)),) if rng.random() < 0.25 else ()
    budget = max(1, budget // math.prod(batch))
    form = rng.choice(("square", "square", "row", "thin", "any"))
    if form == "row":
        # A few rows read all of the weights.
        m = rng.choice((1, 1, 2, 4, 8))
        k, n = _matrix(rng, min(_MANY // 2, max(1, budget // m)))
    else:
        m, k, n = _shape(rng, budget, 3)
        if form == "square":
            m, k, n = (max(1, round(budget ** rng.uniform(0.28, 0.38))) for _ in range(3))
        if form == "thin":
            n = rng.choice((1, 2, 3, 8, 16, 24))
    tags = ("any", rng.choice(("any", "any", "ab", "ba")), "any") if not batch else ()
    problem = MatmulProblem(batch, batch, m, k, n)
    if max(math.prod(shape) for shape in problem.shapes.values()) > _MANY:
        raise ProblemError("a matrix that takes long to read")
    return Case(problem, rng.choice(_PRODUCTS), tags)


def _factored(rng: random.Random) -> Case:
    """A product with weights of 4 and 8 bits that have scales for groups."""
    group = rng.choice((32, 64, 128))
    m = rng.choice((1, 1, 1, 2, 4, 16, 64))
    number = _between(rng, 1, 32)
    n = 16 * _between(rng, 1, max(2, (_MANY >> 2) / (16 * group * number)))
    along = Policy("per_ocic")
    scale = Scale("weights", along, dtype=rng.choice((f32, f16, bf16)), group=group)
    point = ZeroPoint("weights", along, dtype=u8, group=group)
    return Case(
        MatmulProblem((), (), m, group * number, n),
        (rng.choice((f32, f32, bf16)), rng.choice((u4, u4, u8)), f32),
        scales=(scale,),
        zero_points=(point,) if rng.random() < 0.5 else (),
    )


def _graph(rng: random.Random) -> KernelCase:
    shape = _matrix(rng, _elements(rng, _SLOWER))
    kernel = random_graph(rng, shape, rng.choice(_FLOATS))
    sizes = " ".join("x".join(map(str, array.buffer.shape)) for array in kernel.arrays)
    return KernelCase(kernel, f"{kernel.name} {kernel.arrays[0].dtype} {sizes}")


def _launch(rng: random.Random) -> KernelCase:
    launch = rng.choice(LAUNCHES)
    kernel = launch.function.as_kernel()
    numbers = launch.numbers(_elements(rng, _SLOWER), rng)
    ordered = {scalar.name: numbers[scalar.name] for scalar in kernel.scalars}
    return KernelCase(kernel, kernel.name, ordered, python=True)


KINDS: Mapping[str, Callable[[random.Random], Drawn]] = {
    "elementwise": _elementwise,
    "binary": _binary,
    "reorder": _reorder,
    "transpose": _transpose,
    "row reduction": _row_reduction,
    "column reduction": _column_reduction,
    "softmax": _softmax,
    "norm": _norm,
    "pooling": _pooling,
    "gather": _gather,
    "scatter": _scatter,
    "scan": _scan,
    "convolution": _convolution,
    "depthwise": _depthwise,
    "matmul": _matmul,
    "factored": _factored,
    "graph": _graph,
    "launch": _launch,
}
