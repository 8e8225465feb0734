"""What may be one kernel: rules for a group that fills memory and one that touches the same, in
words. The first that holds is why the two are apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from tilewright.ir.buffer import Buffer
from tilewright.ir.computes import addressing
from tilewright.ir.expr import Const
from tilewright.ir.stmt import Compute
from tilewright.recipes.roles import bytes_of, extents
from tilewright.schedule.queries.flow import Item
from tilewright.schedule.queries.shared_dims import same_dims, shared_dims

# Computes in one chain: more take longer to schedule than they save.
MOST_IN_CHAIN = 24
# Bytes that one thread leaves to all others while these begin.
FEW_BYTES = 4096


@dataclass(frozen=True)
class Part:
    """A group, or what may become one: ``items`` in their order. It ``contracts``: it is a product,
    or several, and takes in the items ``before`` it alone. ``home``: the block it stands in."""

    items: tuple[Item, ...]
    contracts: bool = False
    before: frozenset[Item] = frozenset()
    home: int = 0

    @cached_property
    def computes(self) -> tuple[Compute, ...]:
        """The computes among them."""
        return tuple(item.stmt for item in self.items if isinstance(item.stmt, Compute))

    @cached_property
    def reduces(self) -> bool:
        """Whether any of them combines values."""
        return any(r.combiner is not None for compute in self.computes for r in compute.results)

    @cached_property
    def plain(self) -> bool:
        """Whether all are computes at places that do not depend on data."""
        return all(map(is_plain, self.items))


@dataclass(frozen=True)
class Pair:
    """Two parts, of which the one fills or reads what the other touches after it: ``handed``. So
    many are ``readers`` of that; ``for_caller``: the caller gets it. ``crossed``: what stands
    between them depends on the one and leads to the other. ``judged``: times say whether they are
    one where no loop surrounds both."""

    producer: Part
    consumer: Part
    handed: frozenset[Buffer]
    readers: int = 1
    for_caller: bool = False
    judged: bool = False
    crossed: Callable[[], bool] = field(default=lambda: False)

    @property
    def computes(self) -> list[Compute]:
        """Those of both."""
        return [*self.producer.computes, *self.consumer.computes]

    @property
    def goes_before(self) -> bool:
        """Whether the consumer is a product, which computes all of the producer as it reads it."""
        return self.consumer.contracts and self.consumer.before.issuperset(self.producer.items)

    @cached_property
    def shared(self) -> int:
        """How many iterations a loop around all computes has; 0 where there is none."""
        computes = self.computes
        levels = shared_dims(computes, same_dims(computes), range(len(computes)))
        sizes = extents(computes[0])
        return prod(sizes[names[0]] for names in levels) if levels else 0

    @property
    def bytes(self) -> int:
        """How much is handed on."""
        return sum(map(bytes_of, self.handed))


@dataclass(frozen=True)
class Rule:
    """Two parts stay apart where it ``holds``; ``why`` in words. ``lasts``: it holds of all that
    they are parts of, too."""

    name: str
    why: str
    holds: Callable[[Pair], bool]
    lasts: bool = True


def _into_product(pair: Pair) -> bool:
    return pair.consumer.contracts and not pair.goes_before


RULES: Sequence[Rule] = (
    Rule(
        "control",
        "a condition or loop on data is between them",
        lambda pair: pair.producer.home != pair.consumer.home,
    ),
    Rule(
        "places",
        "one of them has places that depend on data, or is no compute",
        lambda pair: not (pair.producer.plain and pair.consumer.plain),
    ),
    Rule(
        "products",
        "both are products: what is between them stays in a cache, or is no tile for a tile",
        lambda pair: pair.producer.contracts and pair.consumer.contracts,
    ),
    Rule(
        "reduced again",
        "a product would reduce it again for each of its tiles",
        lambda pair: _into_product(pair) and pair.producer.reduces,
    ),
    Rule(
        "factor of others",
        "a product would compute it for itself, and others read it too",
        lambda pair: _into_product(pair) and (pair.readers > 1 or pair.for_caller),
    ),
    Rule(
        "rows of tiles",
        "a reduction wants whole rows, and a product gives tiles",
        lambda pair: pair.producer.contracts and pair.consumer.reduces,
    ),
    Rule(
        "sums of others",
        "a product hands its sums to one reader, and others read them too",
        lambda pair: pair.producer.contracts and (pair.readers > 1 or pair.for_caller),
    ),
    Rule(
        "sums elsewhere",
        "a product's sums are read in another order, or in parts",
        lambda pair: pair.producer.contracts,
    ),
    Rule(
        "factor elsewhere",
        "a product reads more places than its factor has, or in parts",
        _into_product,
    ),
    Rule(
        "length",
        f"a chain has {MOST_IN_CHAIN} computes at most",
        lambda pair: len(pair.computes) > MOST_IN_CHAIN and not pair.goes_before,
    ),
    Rule(
        "dims",
        "no dim is shared by all computes",
        lambda pair: (
            not pair.goes_before
            and not (pair.judged and pair.bytes <= FEW_BYTES)
            and pair.shared == 0
        ),
    ),
    Rule(
        "order",
        "what runs between them needs the one first, and is needed by the other",
        lambda pair: pair.crossed(),
        lasts=False,
    ),
)


def refusal(pair: Pair) -> Rule | None:
    """The first rule that keeps the two apart; None where they may be one."""
    return next((rule for rule in RULES if rule.holds(pair)), None)


def is_plain(item: Item) -> bool:
    """Whether it is a compute at places that do not depend on data, which no instruction is."""
    compute = item.stmt
    if not isinstance(compute, Compute) or addressing(compute):
        return False
    if compute.instruction or compute.completion is not None:
        return False
    # Sizes of a simple compute are those that a call passes, if no numbers.
    sized = item.simple is not None
    return sized or all(isinstance(dim.extent, Const) for dim in compute.dims)
