"""How fast machines are at best, and what one of their cores holds at a time: what models predict
times from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from tilewright.dtypes import DType


@dataclass(frozen=True)
class Core:
    """A core of a processor: a common one, as models compare configs of one machine.

    - ``clock``: cycles per second
    - ``started``: multiply-adds that start in a cycle
    - ``line``: bytes of a cache's line
    - ``ways``, ``way``: ways of the first cache, and bytes of one: what lies so far apart shares a
      set
    - ``page``: bytes of a page of memory
    - ``memory``: bytes per second of memory that one core may have
    - ``near``, ``scattered``: bytes per second from the second cache, and from the last one: line
      after line, and where lines are apart
    - ``fresh``: bytes per second of memory that a call takes anew: in the last cache, and beyond it
    - ``launch``: seconds until threads have begun and ended
    - ``chains``: vectors whose operations each wait for the one before, and that are computed side
      by side sooner than one after the other (1: other work fills the core meanwhile)
    - ``exposed``: the part of what loads take that multiply-adds do not hide
    - ``reread``: how often rows that lie apart are read at least where a copy in the order of
      reading is worth its time: rows on pages of their own, and others
    """

    clock: float = 3e9
    started: int = 2
    line: int = 64
    ways: int = 8
    way: int = 4096
    page: int = 4096
    memory: float = 15e9
    near: tuple[float, float] = (90e9, 40e9)
    scattered: tuple[float, float] = (50e9, 28e9)
    fresh: tuple[float, float] = (6e9, 1.5e9)
    launch: float = 5e-6
    chains: int = 4
    exposed: float = 0.0
    reread: tuple[float, float] = (4.0, 16.0)


USUAL_CORE = Core()
# Cores with AMX: on both of an Emerald Rapids, tiles of 6x64 and 8x48 of f32 are 15 to 25% faster
# than those of 5x32, which load more for a product.
WITH_TILES = Core(exposed=0.5)
# Cores that other work-items keep busy; and those of many, which read rows apart at no loss.
OF_ITEMS = Core(chains=1)
OF_MANY_ITEMS = Core(chains=1, reread=(inf, inf))


@dataclass(frozen=True)
class Costs:
    """What a core of a processor takes for work, as `predict` counts it: ``cycles`` by its kinds.
    ``overlap`` is how well units work side by side (1: one after the other, infinity: at once),
    ``hiding`` how well code hides that lines move, ``clock`` what counts as cycles a second."""

    cycles: Mapping[str, float]
    overlap: float = 1.2
    hiding: float = 2.0
    clock: float = 4e9


@dataclass(frozen=True)
class Rates:
    """Peak figures of a device with workgroups.

    - ``clock``: cycles per second
    - ``products``: products that one core adds up per cycle, as (type, lanes, products): of
      work-items for themselves (1 lane) by the type of the sum, of matrices and of dot products by
      that of A
    - ``shared``: bytes per cycle that a core's shared memory moves
    - ``near``, ``port``: bytes per cycle from the L2 to all cores, and to one
    - ``memory``: bytes per second of global memory
    - ``latency``: cycles from a load of global memory to its data
    - ``launch``: seconds from one kernel to the next
    - ``registers`` (of 4 bytes), ``items``, ``groups``, ``held``: what a core has room for at a
      time: registers, work-items, workgroups, bytes of shared memory; each workgroup takes
      ``reserved`` of these besides its own
    - ``parts``: the parts of a core; a subgroup runs on one of them
    """

    clock: float
    products: tuple[tuple[DType, int, int], ...]
    shared: int
    near: int
    port: int
    memory: float
    latency: int
    launch: float
    registers: int
    items: int
    groups: int
    held: int
    reserved: int
    parts: int

    def multiply_adds(self, dtype: DType, lanes: int) -> int:
        """Products per core and cycle of instructions that so many lanes carry out together; where
        there is no figure, that of those with fewer lanes. 1 where there is none at all."""
        products = [
            (width, n) for kind, width, n in self.products if kind is dtype and width <= lanes
        ]
        return max(products)[1] if products else 1

    def peak(self, *types: DType) -> int:
        """The most products per core and cycle of any instruction on one of ``types``."""
        return max((n for kind, _, n in self.products if kind in types), default=1)
