"""What a schedule may choose. A config prints as Python that makes it again."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from tilewright.errors import ScheduleError, short
from tilewright.recipes.parts import Order, Product, Reduction, Staging, Storing, Tile
from tilewright.recipes.parts.forms import Count, Printed, check_forms, with_form


@dataclass(frozen=True, repr=False)
class ContractionConfig(Printed):
    """How a contraction (convolution, matmul) runs on a CPU.

    - ``instruction``: the multiply-add that does the work, and ``lanes``: the dim across its lanes
    - ``k``: the reduced dim that a dot-product instruction adds up ("" for FMA)
    - ``fuse``: dims made one before tiling, as (outer, inner, new name)
    - ``split``: dims made two (``DIM_q``, ``DIM_r``) by a factor, as (dim, factor)
    - ``tile``: the register tile, per dim of the result; dims left out are 1
    - ``order``: loops over tiles, outermost first
    - ``step``: how far each reduced dim is unrolled; dims left out are 1
    - ``reduce_order``: loops over reduced dims, outermost first
    - ``pack_a``: whether A is copied first, with padding resolved and types converted
    - ``pack_b``: whether B is packed in the order it is read
    - ``block``: how much of the result is computed at a time, per dim, the outermost loop first:
      multiples of its tile; dims left out are whole
    - ``transpose``: whether a block of the result lies in a cache as lanes make it, and is
      transposed in registers on its way to memory
    - ``slices``: in how many parts a reduced dim is summed up by itself, which are then added up in
      order; for results of few tiles, and for long reductions
    """

    instruction: str
    lanes: str
    tile: Mapping[str, int]
    order: tuple[str, ...]
    step: Mapping[str, int] = field(default_factory=dict)
    reduce_order: tuple[str, ...] = ()
    k: str = ""
    fuse: tuple[tuple[str, str, str], ...] = ()
    split: tuple[tuple[str, int], ...] = ()
    pack_a: bool = False
    pack_b: bool = True
    block: Mapping[str, int] = field(default_factory=dict)
    transpose: bool = False
    slices: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_forms(self)

    def __hash__(self) -> int:
        return hash(repr(self))


@dataclass(frozen=True, repr=False)
class FactoredConfig(Printed):
    """How a product with weights that are made of small integers runs on a CPU: as floats in
    registers, with the factors of whole groups along K applied to sums over these.

    - ``lanes``: the dim of N, across vector lanes
    - ``tile``: the register tile, per dim of the result; dims left out are 1
    - ``columns``: how much of N a thread adds up at a time
    - ``step``: how far the sum over a group is unrolled
    - ``pack``: whether the weights are packed in the order in which they are read
    - ``ahead``: so many groups before they are read, weights are asked for; 0: not at all
    - ``instruction``: the dot product that adds up pairs of neighbours, whose weights are looked up
      by parts of words ("" for floats one by one)
    """

    lanes: str
    tile: Mapping[str, int]
    columns: int
    step: int
    pack: bool = True
    ahead: Count = 0
    instruction: str = ""

    def __post_init__(self) -> None:
        check_forms(self)

    def __hash__(self) -> int:
        return hash(repr(self))


@dataclass(frozen=True, repr=False)
class WorkgroupConfig(Printed):
    """How a contraction runs in workgroups that share memory, in `parts`.

    Its dims of one role are one dim, called like them, joined by ``_``: all of M (but with
    ``halo``), of N, of a batch. Where strides decide which taps count, a dim ``d`` of M is ``d_q``,
    and what is left of all of them is the dim ``phase``: workgroups with one each leave the other
    taps out.

    - ``product``: what multiplies
    - ``tile``: how large the tiles of the result are
    - ``reduction``: how the reduction goes on, in steps and slices
    - ``staging``: how the tiles of a step get to memory that the workgroup shares
    - ``order``: which workgroup takes which tiles
    - ``storing``: how results leave
    """

    product: Product
    tile: Tile = field(default_factory=Tile)
    reduction: Reduction = field(default_factory=Reduction)
    staging: Staging = field(default_factory=Staging)
    order: Order = field(default_factory=Order)
    storing: Storing = field(default_factory=Storing)

    def __post_init__(self) -> None:
        check_forms(self)

    @property
    def items(self) -> int:
        """The items of a workgroup: its work-items, or subgroups that multiply matrices."""
        return self.tile.items * self.reduction.item_parts


@dataclass(frozen=True, repr=False)
class StencilConfig(Printed):
    """How a sum of a few products runs on work-items that share nothing (a depthwise convolution).

    - ``lanes``: the dim across a work-item's vector, and ``vector``: elements of it
    - ``item``: results of a work-item along other dims; dims left out are 1
    """

    lanes: str
    vector: int
    item: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_forms(self)

    def __hash__(self) -> int:
        return hash(repr(self))


@dataclass(frozen=True, repr=False)
class ElementwiseConfig(Printed):
    """How an op without a contraction runs on a CPU: ``vector`` elements per vector, ``unroll``
    vectors per step."""

    vector: int
    unroll: int = 1

    def __post_init__(self) -> None:
        check_forms(self)


@dataclass(frozen=True, repr=False)
class ReductionConfig(Printed):
    """How elementwise computes, reductions and scans run, a tile at a time.

    - ``vector``: elements per vector
    - ``copies``: vectors of partial results of what is reduced along neighbours in memory
    - ``columns``: how many neighbours are a tile where they are not reduced
    - ``rows``: how many of them are added to a vector of results at a time
    - ``parts``: in how many parts of their own a reduction goes that has fewer results than that
    - ``items``: work-items that do a row together, where these share memory in banks (0: threads)
    """

    vector: int
    copies: int = 4
    columns: int = 4096
    rows: int = 8
    parts: int = 16
    items: Count = 0

    def __post_init__(self) -> None:
        check_forms(self)


@dataclass(frozen=True, repr=False)
class PlainConfig(Printed):
    """How a kernel that no other recipe knows runs: as loops, of ``vector`` elements a step."""

    vector: int = 1

    def __post_init__(self) -> None:
        check_forms(self)


@dataclass(frozen=True, repr=False)
class OwnSchedule(Printed):
    """A schedule that somebody gives instead of a recipe: the ``text`` of its record."""

    text: str

    def __post_init__(self) -> None:
        check_forms(self)


@dataclass(frozen=True, repr=False)
class UserConfig(Printed):
    """What a recipe that a user registered chose: its name, and the arguments of its schedule."""

    recipe: str
    choice: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_forms(self)

    def __hash__(self) -> int:
        return hash(repr(self))


@dataclass(frozen=True, repr=False)
class GroupsConfig(Printed):
    """How a kernel runs that is cut into several groups: the config of each, in order."""

    groups: tuple[Config, ...]

    def __post_init__(self) -> None:
        check_forms(self)


Config = (
    ContractionConfig
    | FactoredConfig
    | StencilConfig
    | GroupsConfig
    | OwnSchedule
    | PlainConfig
    | ElementwiseConfig
    | ReductionConfig
    | UserConfig
    | WorkgroupConfig
)
CONFIGS: dict[str, type[Config]] = {
    "ContractionConfig": ContractionConfig,
    "FactoredConfig": FactoredConfig,
    "WorkgroupConfig": WorkgroupConfig,
    "StencilConfig": StencilConfig,
    "ElementwiseConfig": ElementwiseConfig,
    "ReductionConfig": ReductionConfig,
    "PlainConfig": PlainConfig,
    "OwnSchedule": OwnSchedule,
    "GroupsConfig": GroupsConfig,
    "UserConfig": UserConfig,
}
# What those of workgroups are made of.
PARTS: dict[str, type[Any]] = {
    "Product": Product,
    "Tile": Tile,
    "Reduction": Reduction,
    "Staging": Staging,
    "Order": Order,
    "Storing": Storing,
}

# Characters of a text, far beyond any config, and beyond any record of a schedule.
_LONGEST = 10_000
_LONGEST_RECORD = 500_000


def _is_groups(value: Any) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(each, Config) and not isinstance(each, GroupsConfig) for each in value
    )


def _is_part(kind: type[Any], value: Any) -> bool:
    return isinstance(value, kind)


with_form("a tuple of configs, none of which is of groups", _is_groups, "tuple[Config, ...]")
for _part in PARTS.values():
    with_form(f"a {_part.__name__}(...)", partial(_is_part, _part), _part.__name__)


def parse_config(text: str) -> Config:
    """The config that ``text`` (a Python call, as a config prints) makes.

    Only literals may stand in it: nothing is executed. Raises `ScheduleError`.
    """
    if not isinstance(text, str):
        raise ScheduleError(
            f"{short(text)} is not a config", cure="pass a config, or its text as it prints"
        )
    if len(text) > (_LONGEST_RECORD if text.startswith(OwnSchedule.__name__) else _LONGEST):
        # Python's own parser, which reads it, may crash of texts that nest beyond measure.
        raise ScheduleError(
            "the text is too long for a config",
            where=f"{text[:40]}...",
            cure="write it as it prints",
        )
    cure = "write it as it prints: " + "; ".join(
        f"{name}({', '.join(f.name + '=...' for f in fields(kind))})"
        for name, kind in {**CONFIGS, **PARTS}.items()
    )
    try:
        made: Config = _made(ast.parse(text.strip(), mode="eval").body, CONFIGS)
        return made
    except (SyntaxError, ValueError, KeyError, TypeError) as error:
        raise ScheduleError(f"{text!r} is not a config", why=str(error), cure=cure) from error
    except (RecursionError, MemoryError):
        # What `ast.parse` and `ast.literal_eval` raise of what nests too deeply.
        raise ScheduleError(
            f"{text[:40]!r}... is not a config", why="it nests too deeply", cure=cure
        ) from None


def _made(tree: ast.expr, kinds: Mapping[str, type[Any]]) -> Any:
    """What a call of one of the ``kinds`` makes: its arguments are literals, parts, or tuples of
    configs."""
    if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.args):
        raise ValueError("not a call with keywords")
    kind = kinds[tree.func.id]
    return kind(**{str(each.arg): value_of(each.value) for each in tree.keywords})


def value_of(tree: ast.expr) -> Any:
    """What an argument of a config is: a literal, a part, or a tuple of configs."""
    if isinstance(tree, ast.Call):
        return _made(tree, PARTS)
    if isinstance(tree, ast.Tuple) and any(isinstance(each, ast.Call) for each in tree.elts):
        return tuple(_made(each, CONFIGS) for each in tree.elts)
    return ast.literal_eval(tree)
