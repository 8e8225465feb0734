"""What a schedule may choose. A config prints as Python that makes it again."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

from tilewright.errors import ScheduleError
from tilewright.problems.numbers import short

# A number of which 0 stands for none, unlike a size.
Count = int


@dataclass(frozen=True)
class ContractionConfig:
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

    def __post_init__(self) -> None:
        _check(self)

    def __hash__(self) -> int:
        return hash(repr(self))


@dataclass(frozen=True)
class FactoredConfig:
    """How a product with weights that are made of small integers runs on a CPU: as floats in
    registers, with the factors of whole groups along K applied to sums over these.

    - ``lanes``: the dim of N, across vector lanes
    - ``tile``: the register tile, per dim of the result; dims left out are 1
    - ``columns``: how much of N a thread adds up at a time
    - ``step``: how far the sum over a group is unrolled
    - ``pack``: whether the weights are packed in the order in which they are read
    """

    lanes: str
    tile: Mapping[str, int]
    columns: int
    step: int
    pack: bool = True

    def __post_init__(self) -> None:
        _check(self)

    def __hash__(self) -> int:
        return hash(repr(self))


@dataclass(frozen=True)
class WorkgroupConfig:
    """How a contraction runs in workgroups that share memory.

    Its dims of one role are one dim, called like them, joined by ``_``: all of M (but with
    ``halo``), of N, of a batch. Where strides decide which taps count, a dim ``d`` of M is ``d_q``,
    and what is left of all of them is the dim ``phase``: workgroups with one each leave the other
    taps out.

    - ``instruction``: the multiply-add or dot product that does the work ("": scalar arithmetic),
      or the product of matrices that a subgroup computes
    - ``lanes``: the dim across a work-item's vector; of matrices, N
    - ``group``, ``item``: the tile of a workgroup, and of a work-item inside it (of a subgroup,
      where it multiplies matrices), per dim of the result; dims left out are 1
    - ``order``: the workgroups' loops over tiles, outermost first
    - ``step``: how much of each reduced dim is shared at a time; dims left out are 1
    - ``reduce_order``: loops over reduced dims, outermost first
    - ``slices``: parts of a reduced dim that workgroups of their own reduce, and that are added up
      afterwards (split-K), as (dim, parts)
    - ``item_slices``: parts of a reduced dim (one, as (dim, parts)) that work-items of their own
      reduce, beside those for the tile of the result; the workgroup adds the parts up in order, in
      memory that it shares
    - ``atomic``: whether the parts of ``slices`` are added to one zeroed result as they come, which
      saves the memory and the second pass of parts for f32 and s32. The order is another in each
      run, and so is what rounding makes of a sum of floats
    - ``vector``: elements that a work-item copies at a time
    - ``stages``: how many of the shared tiles there are: 1, or more to copy ahead
    - ``fill``: how the next tile is copied: ``copy``, ``registers``, ``async``; ``unit``: by a
      unit of the machine that copies tiles, which a subgroup of its own has run ahead
    - ``raster``: rows of the bands in which the tiles of M and N are taken (1: row by row)
    - ``persistent``: workgroups that take all tiles, several each (0: one for each tile). With
      ``fill`` ``unit``, the next tile's first copies run while this one is stored
    - ``cluster``: so many workgroups along a dim (one) are a cluster: what they all read, each
      copies a part of into the memory of all. With ``fill`` ``unit``
    - ``stream_k``: workgroups that share the steps of all tiles evenly, so that a share may begin
      and end inside a tile (0: none, each tile is one workgroup's). A tile that is cut so is added
      up afterwards, in order
    - ``padding``: elements between the rows of a shared tile, against bank conflicts, per operand
      (0 for those that it leaves out); ``acc`` is the tile of the result
    - ``swizzle``: the `ir.Swizzle` of a shared tile, against the same, as (bits, base, shift) per
      operand; the tile's steps have to be powers of two
    - ``epilogue_tile``: whether the tile of the result goes through shared memory, so that all
      work-items store it together, neighbours by neighbours: how much of a work-item's tile at a
      time, per dim (dims left out are whole; no dim: each stores what it has). With
      ``item_slices``, as many work-items have to add up as accumulate. With ``fill`` ``unit``, the
      unit stores each subgroup's part as boxes, while that one goes on
    - ``halo``: whether the work-items share the part of A that their tile and all taps (the reduced
      dims that move along with a dim of M, as ``kh`` with ``oh``) read, once, instead of a tile for
      each step of the taps. Dims of M then stay as they are
    - ``fused``: reduced dims that are made one, outermost first, called like them, joined by ``_``
      (as it is called in ``step``, ``slices``, ...): one long dim fills whole steps with less
      padding than a short one
    - ``k``: the reduced dim that a product of matrices, or a dot product, adds up ("" without)
    """

    instruction: str
    lanes: str
    group: Mapping[str, int]
    item: Mapping[str, int]
    order: tuple[str, ...]
    step: Mapping[str, int] = field(default_factory=dict)
    reduce_order: tuple[str, ...] = ()
    slices: tuple[tuple[str, int], ...] = ()
    item_slices: tuple[tuple[str, int], ...] = ()
    atomic: bool = False
    vector: int = 1
    stages: int = 1
    fill: str = "copy"
    raster: int = 1
    persistent: Count = 0
    cluster: Mapping[str, int] = field(default_factory=dict)
    stream_k: Count = 0
    padding: Mapping[str, int] = field(default_factory=dict)
    swizzle: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    epilogue_tile: Mapping[str, int] = field(default_factory=dict)
    halo: bool = False
    fused: tuple[str, ...] = ()
    k: str = ""

    def __post_init__(self) -> None:
        _check(self)

    def __hash__(self) -> int:
        return hash(repr(self))


@dataclass(frozen=True)
class StencilConfig:
    """How a sum of a few products runs on work-items that share nothing (a depthwise convolution).

    - ``lanes``: the dim across a work-item's vector, and ``vector``: elements of it
    - ``item``: results of a work-item along other dims; dims left out are 1
    """

    lanes: str
    vector: int
    item: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self)

    def __hash__(self) -> int:
        return hash(repr(self))


@dataclass(frozen=True)
class ElementwiseConfig:
    """How an op without a contraction runs on a CPU: ``vector`` elements per vector, ``unroll``
    vectors per step."""

    vector: int
    unroll: int = 1

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True)
class ReductionConfig:
    """How elementwise computes, reductions and scans run on a CPU, a tile at a time.

    - ``vector``: elements per vector
    - ``copies``: vectors of partial results of what is reduced along neighbours in memory
    - ``columns``: how many neighbours are a tile where they are not reduced
    - ``rows``: how many of them are added to a vector of results at a time
    - ``parts``: in how many parts of their own a reduction goes that has fewer results than that
    """

    vector: int
    copies: int = 4
    columns: int = 512
    rows: int = 8
    parts: int = 16

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True)
class PlainConfig:
    """How a kernel that no other recipe knows runs: as loops, of ``vector`` elements a step."""

    vector: int = 1

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True)
class OwnSchedule:
    """A schedule that somebody gives instead of a recipe: the ``text`` of its record."""

    text: str

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True)
class UserConfig:
    """What a recipe that a user registered chose: its name, and the arguments of its schedule."""

    recipe: str
    choice: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self)

    def __hash__(self) -> int:
        return hash(repr(self))


@dataclass(frozen=True)
class GroupsConfig:
    """How a kernel runs that is cut into several groups: the config of each, in order."""

    groups: tuple[Config, ...]

    def __post_init__(self) -> None:
        _check(self)


# The `fill` of tiles that a unit of the machine copies.
COPY_UNIT = "unit"

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


# Characters of a text, far beyond any config, and beyond any record of a schedule.
_LONGEST = 10_000
_LONGEST_RECORD = 500_000


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_size(value: Any) -> bool:
    return type(value) is int and value >= 1


def _is_names(value: Any) -> bool:
    texts = isinstance(value, tuple) and all(isinstance(name, str) for name in value)
    return texts and len(set(value)) == len(value)


def _is_sizes(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and _is_size(size) for name, size in value.items()
    )


def _is_swizzles(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str)
        and isinstance(given, tuple)
        and len(given) == 3
        and all(_is_count(each) for each in given)
        for name, given in value.items()
    )


def _is_splits(value: Any) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(pair, tuple) and len(pair) == 2 and _is_sizes(dict([pair])) for pair in value
    )


def _is_fusions(value: Any) -> bool:
    return isinstance(value, tuple) and all(_is_names(each) and len(each) == 3 for each in value)


def _is_choice(value: Any) -> bool:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        return False
    try:
        return bool(ast.literal_eval(repr(dict(value))) == value)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return False


def _is_groups(value: Any) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(each, Config) and not isinstance(each, GroupsConfig) for each in value
    )


# By the type of the field: what a value is, and whether it is that.
_FORMS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "str": ("a name in quotes", lambda value: isinstance(value, str)),
    "bool": ("True or False", lambda value: isinstance(value, bool)),
    "int": ("a whole number, 1 or more", _is_size),
    "Count": ("a whole number, 0 or more", _is_count),
    "Mapping[str, int]": ("a dict of dims with sizes, which are 1 or more", _is_sizes),
    "Mapping[str, tuple[int, int, int]]": (
        "a dict of operands with (bits, base, shift)",
        _is_swizzles,
    ),
    "tuple[str, ...]": ("a tuple of dims, each once", _is_names),
    "tuple[tuple[str, int], ...]": ("a tuple of (dim, factor)", _is_splits),
    "Mapping[str, Any]": ("a dict of names with literals", _is_choice),
    "tuple[Config, ...]": ("a tuple of configs, none of which is of groups", _is_groups),
    "tuple[tuple[str, str, str], ...]": ("a tuple of (outer, inner, new name)", _is_fusions),
}


def _check(config: Config) -> None:
    """Refuses a value of another form than its field has: configs come from texts and files."""
    for name, form, holds in _forms(type(config).__name__):
        value = getattr(config, name)
        if not holds(value):
            raise ScheduleError(
                f"{name}={value!r} is not {form}",
                where=f"config {type(config).__name__}",
                cure=f"write {name} as {form}",
            )


def forms_of(config: Config) -> dict[str, str]:
    """What each field of a kind of config takes, in words."""
    return {name: form for name, form, _ in _forms(type(config).__name__)}


@cache
def _forms(kind: str) -> tuple[tuple[str, str, Callable[[Any], bool]], ...]:
    """The fields of a kind of config, with the forms of their values."""
    return tuple((each.name, *_FORMS[str(each.type)]) for each in fields(CONFIGS[kind]))


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
        for name, kind in CONFIGS.items()
    )
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        return _made(tree)
    except (SyntaxError, ValueError, KeyError, TypeError) as error:
        raise ScheduleError(f"{text!r} is not a config", why=str(error), cure=cure) from error
    except (RecursionError, MemoryError):
        # What `ast.parse` and `ast.literal_eval` raise of what nests too deeply.
        raise ScheduleError(
            f"{text[:40]!r}... is not a config", why="it nests too deeply", cure=cure
        ) from None


def _made(tree: ast.expr) -> Config:
    """The config that a call makes, whose arguments are literals or tuples of configs."""
    if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.args):
        raise ValueError("not a call with keywords")
    kind = CONFIGS[tree.func.id]
    return kind(**{str(each.arg): _value(each.value) for each in tree.keywords})


def _value(tree: ast.expr) -> Any:
    if isinstance(tree, ast.Tuple) and any(isinstance(each, ast.Call) for each in tree.elts):
        return tuple(map(_made, tree.elts))
    return ast.literal_eval(tree)
