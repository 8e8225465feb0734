"""What a schedule may choose. A config prints as Python that makes it again."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Annotated, Any

from tilewright.errors import ScheduleError, short
from tilewright.recipes.parts import Order, Product, Reduction, Staging, Storing, Tile
from tilewright.recipes.parts.forms import Choices, Count, Form
from tilewright.recipes.roles import named_after


class Config(Choices):
    """A point of a recipe's space."""

    def short(self) -> str:
        """What tells one candidate from another, in a few words."""
        return repr(self)

    def without_units(self, sizes: Mapping[str, int]) -> Config:
        """The same without the dims that have one element, of a contraction whose dims have these
        ``sizes``: a config for a larger batch fits one image, too. Tiles along what such dims were
        part of end with the dim."""
        return self


class ContractionConfig(Config):
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

    def short(self) -> str:
        return f"{self.instruction or 'no instruction'}, tile {_sizes(self.tile)}"

    def without_units(self, sizes: Mapping[str, int]) -> ContractionConfig:
        units = {name for name, size in sizes.items() if size == 1}
        if not units:
            return self
        names = dict.fromkeys(units, "")
        lengths = {name: size for name, size in sizes.items() if size > 1}
        fuse: list[tuple[str, str, str]] = []
        for outer, inner, name in self.fuse:
            outer, inner = names.get(outer, outer), names.get(inner, inner)
            if outer and inner:
                fuse.append((outer, inner, name))
                lengths[name] = lengths.get(outer, 1) * lengths.get(inner, 1)
            else:
                names[name] = outer or inner
        split: list[tuple[str, int]] = []
        for dim, factor in self.split:
            left = names.get(dim, dim)
            if left:
                split.append((left, factor))
            if left != dim:
                for end in ("q", "r"):
                    names[named_after(dim, end)] = named_after(left, end) if left else ""

        def dims(names_in_kernel: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(
                dict.fromkeys(n for name in names_in_kernel if (n := names.get(name, name)))
            )

        def parts(arrays: Mapping[str, int]) -> dict[str, int]:
            left = {names.get(name, name): (name, size) for name, size in arrays.items()}
            return {
                new: size if new == name else min(size, lengths.get(new, size))
                for new, (name, size) in left.items()
                if new
            }

        return replace(
            self,
            fuse=tuple(fuse),
            split=tuple(split),
            lanes=names.get(self.lanes, self.lanes) or self.lanes,
            tile=parts(self.tile),
            block=parts(self.block),
            order=dims(self.order),
            step=parts(self.step),
            slices=parts(self.slices),
            reduce_order=dims(self.reduce_order),
            k=names.get(self.k, self.k) or self.k,
        )


class FactoredConfig(Config):
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

    def without_units(self, sizes: Mapping[str, int]) -> FactoredConfig:
        left = {name: size for name, size in self.tile.items() if sizes.get(name) != 1}
        return replace(self, tile=left)


class WorkgroupConfig(Config):
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

    @property
    def items(self) -> int:
        """The items of a workgroup: its work-items, or subgroups that multiply matrices."""
        return self.tile.items * self.reduction.item_parts

    def short(self) -> str:
        """Tiles, those of an item (both in the order of the loops), steps, and how they run."""
        tile, order, stages = self.tile, self.order, self.staging.stages
        words = [
            _sizes({d: tile.group[d] for d in order.loops if d in tile.group}),
            "in " + _sizes({d: tile.item[d] for d in order.loops if d in tile.item}),
            "step " + _sizes(self.reduction.step),
            f"{stages} stages" if stages > 1 else "1 stage",
        ]
        if self.reduction.slices:
            words.append("slices " + _sizes(dict(self.reduction.slices)))
        if self.staging.by_unit:
            words.append("whole")
            if self.storing.tile:
                piece = {**tile.item, **self.storing.tile}
                words.append(
                    "stored by " + _sizes({d: piece[d] for d in order.loops if d in piece})
                )
        if order.cluster:
            words.append("cluster " + _sizes({d: order.cluster.get(d, 1) for d in order.loops}))
        if order.raster > 1:
            words.append(f"raster {order.raster}")
        if order.persistent:
            words.append(f"{order.persistent} workgroups")
        return ", ".join(words)

    def without_units(self, sizes: Mapping[str, int]) -> WorkgroupConfig:
        """The same, where a dim that was made of several is called like them, joined by ``_``."""
        units = {name for name, size in sizes.items() if size == 1}
        if not units:
            return self

        def left(name: str) -> str:
            if name in sizes:
                return "" if name in units else name
            parts = name.split("_")
            if not set(parts) <= {*sizes, "q"}:  # where strides are told apart, d_q is a dim
                return name
            return named_after(*(part for part in parts if part not in units))

        def sizes_of(arrays: Mapping[str, int]) -> dict[str, int]:
            return {n: size for name, size in arrays.items() if (n := left(name))}

        def dims(old_names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(dict.fromkeys(n for name in old_names if (n := left(name))))

        def parts_of(old_parts: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
            return tuple((n, parts) for name, parts in old_parts if (n := left(name)))

        product, tile, reduction, order, storing = (
            self.product,
            self.tile,
            self.reduction,
            self.order,
            self.storing,
        )
        lanes, k = left(product.lanes) or product.lanes, left(product.k) or product.k
        return replace(
            self,
            product=replace(product, lanes=lanes, k=k),
            tile=Tile(sizes_of(tile.group), sizes_of(tile.item)),
            reduction=replace(
                reduction,
                step=sizes_of(reduction.step),
                loops=dims(reduction.loops),
                fused=dims(reduction.fused),
                slices=parts_of(reduction.slices),
                item_slices=parts_of(reduction.item_slices),
            ),
            order=replace(order, loops=dims(order.loops), cluster=sizes_of(order.cluster)),
            storing=replace(storing, tile=sizes_of(storing.tile)),
        )


class StencilConfig(Config):
    """How a sum of a few products runs on work-items that share nothing (a depthwise convolution).

    - ``lanes``: the dim across a work-item's vector, and ``vector``: elements of it
    - ``item``: results of a work-item along other dims; dims left out are 1
    """

    lanes: str
    vector: int
    item: Mapping[str, int] = field(default_factory=dict)


class ElementwiseConfig(Config):
    """How an op without a contraction runs on a CPU: ``vector`` elements per vector, ``unroll``
    vectors per step."""

    vector: int
    unroll: int = 1


class ReductionConfig(Config):
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


class ChainedConfig(Config):
    """How products that are chained run: ``rows`` of all that follows one another at a time, whose
    parts are scheduled like kernels of one worker; of what they hand on, which rows are normalized
    by, ``keys`` at a time (0: all), relative to a running maximum; of gradients, ``keys`` at a
    time, and of these, ``rows``."""

    rows: int
    keys: Count = 0


class TiledConfig(Config):
    """How products of which the next takes what the last one gives run together: a ``tile`` of the
    last result at a time, per dim of its compute, with what it is made of; dims left out are
    whole."""

    tile: Mapping[str, int]


class PlainConfig(Config):
    """How a kernel that no other recipe knows runs: as loops, of ``vector`` elements a step."""

    vector: int = 1


class OwnSchedule(Config):
    """A schedule that somebody gives instead of a recipe: the ``text`` of its record."""

    text: str

    def short(self) -> str:
        return f"a schedule of {len(self.text.splitlines()) - 1} steps"


def _is_groups(value: Any) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(part, Config) and not isinstance(part, GroupsConfig) for part in value
    )


class GroupsConfig(Config):
    """How a kernel runs that is cut into several groups: the config of each, in order."""

    groups: Annotated[
        tuple[Config, ...], Form("a tuple of configs, none of which is of groups", _is_groups)
    ]


def _sizes(sizes: Mapping[str, int]) -> str:
    return "x".join(map(str, sizes.values()))


# Characters of a text, far beyond any config, and beyond any record of a schedule.
_LONGEST = 10_000
_LONGEST_RECORD = 500_000


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
        f"{name}({', '.join(f'{choice}=...' for choice in kind.names())})"
        for name, kind in Choices.kinds.items()
        if kind is not Config
    )
    try:
        config = value_of(ast.parse(text.strip(), mode="eval").body)
        if not isinstance(config, Config):
            raise ValueError("not a config")
        return config
    except (SyntaxError, ValueError, KeyError, TypeError) as error:
        raise ScheduleError(f"{text!r} is not a config", why=str(error), cure=cure) from error
    except (RecursionError, MemoryError):
        # What `ast.parse` and `ast.literal_eval` raise of what nests too deeply.
        raise ScheduleError(
            f"{text[:40]!r}... is not a config", why="it nests too deeply", cure=cure
        ) from None


def value_of(tree: ast.expr) -> Any:
    """What stands in a config: a call of choices with keywords, a tuple of such, or a literal."""
    if isinstance(tree, ast.Call):
        if not isinstance(tree.func, ast.Name) or tree.args:
            raise ValueError("not a call with keywords")
        kind = Choices.kinds[tree.func.id]
        return kind(**{str(keyword.arg): value_of(keyword.value) for keyword in tree.keywords})
    if isinstance(tree, ast.Tuple) and any(isinstance(elt, ast.Call) for elt in tree.elts):
        return tuple(map(value_of, tree.elts))
    return ast.literal_eval(tree)
