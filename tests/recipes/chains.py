"""Random kernels of elementwise computes, reductions and scans, one reading what others made.

All values are small whole numbers, so that sums are the same in every order.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

_OF_TWO = ("{a} + {b}", "{a} - {b}", "max({a}, {b})", "min({a}, {b})", "{a} * {b}")
_FROM = {"add": "0.0", "max": "-inf", "min": "inf"}


@dataclass
class _Chain:
    """The lines so far; of each tensor the dims it has (of ``i`` and ``j``)."""

    rng: random.Random
    sizes: dict[str, int | str]
    lines: list[str] = field(default_factory=list)
    allocated: list[str] = field(default_factory=list)
    tensors: dict[str, str] = field(default_factory=lambda: {"x": "ij", "b": "j"})
    count: int = 0

    def new(self, dims: str, kind: str = "f32") -> str:
        self.count += 1
        name = f"t{self.count}"
        shape = ", ".join(str(self.sizes[d]) for d in dims) or "1"
        self.allocated.append(f"{name}: {kind}[{shape}]")
        return name

    def at(self, name: str, dims: str, instead: str = "") -> str:
        return f"{name}[{instead or ', '.join(dims) or '0'}]"

    def over(self, dims: str, ordered: str = "") -> str:
        return ", ".join(
            f"{'ordered ' if d == ordered else ''}{d} in {self.sizes[d]}" for d in dims
        )

    def say(self, name: str, dims: str, *body: str) -> None:
        self.lines += [f"  compute {name}({dims}):", *(f"    {line}" for line in body)]

    def pick(self, dims: str) -> str:
        """An element of a tensor that has no other dims."""
        fitting = [n for n, d in self.tensors.items() if set(d) <= set(dims)]
        name = self.rng.choice(fitting)
        return self.at(name, self.tensors[name])

    def full(self) -> str:
        return self.rng.choice([n for n, d in self.tensors.items() if d == "ij"])

    def elementwise(self) -> None:
        dims = self.rng.choice(["ij", "ij", "i", "j"])
        if not any(set(d) <= set(dims) for d in self.tensors.values()):
            dims = "ij"
        value = self.rng.choice(_OF_TWO).format(a=self.pick(dims), b=self.pick(dims))
        name = self.new(dims)
        self.say(
            f"e{name}", self.over(dims), f"{self.at(name, dims)} = min(max({value}, -6.0), 6.0)"
        )
        self.tensors[name] = dims

    def reduction(self) -> None:
        kept = self.rng.choice(["i", "i", "j", ""])
        how = self.rng.choice(list(_FROM))
        source, name = self.full(), self.new(kept)
        start = self.over(kept)
        self.say(f"s{name}", start, f"{self.at(name, kept)} = {_FROM[how]}")
        value = self.at(source, "ij")
        if self.rng.random() < 0.3:
            value = f"{value} - {self.pick('ij')}"
        self.say(f"r{name}", self.over("ij"), f"{self.at(name, kept)} {how}= {value}")
        self.shortened(name, kept)

    def shortened(self, name: str, kept: str) -> None:
        again = self.new(kept)
        value = f"min(max({self.at(name, kept)}, -6.0), 6.0)"
        self.say(f"c{again}", self.over(kept), f"{self.at(again, kept)} = {value}")
        self.tensors[again] = kept

    def two_results(self) -> None:
        kept = self.rng.choice(["i", "j"])
        source, least, greatest = self.full(), self.new(kept), self.new(kept)
        places = self.at(least, kept), self.at(greatest, kept)
        self.say(f"s{least}", self.over(kept), f"{places[0]} = inf", f"{places[1]} = -inf")
        x = f"x = {self.at(source, 'ij')}"
        self.say(
            f"r{least}", self.over("ij"), x, f"{places[0]} min= x", f"{places[1]} max= x + 1.0"
        )
        self.tensors |= {least: kept, greatest: kept}

    def place(self) -> None:
        kept, along = self.rng.choice([("i", "j"), ("j", "i")])
        most = self.sizes[along]
        nowhere = most if isinstance(most, int) else 1 << 20
        source, best, where = self.full(), self.new(kept), self.new(kept, "s64")
        places = self.at(best, kept), self.at(where, kept)
        self.say(f"s{best}", self.over(kept), f"{places[0]} = -inf", f"{places[1]} = {nowhere}")
        test = "v < w or v == w and q < p"
        self.say(
            f"r{best}",
            self.over("ij"),
            f"x = {self.at(source, 'ij')}",
            f"combiner first(v: f32, p; w: f32, q) from (-inf, {nowhere}) = "
            f"select({test}, w, v), select({test}, q, p)",
            f"{places[0]}, {places[1]} first= x, {along}",
        )
        name = self.new(kept)
        self.say(f"f{name}", self.over(kept), f"{self.at(name, kept)} = f32({places[1]} % 5)")
        self.tensors |= {best: kept, name: kept}

    def scan(self) -> None:
        along = self.rng.choice("ij")
        source, name = self.full(), self.new("ij")
        before = {"i": "i - 1, j", "j": "i, j - 1"}[along]
        self.say(
            f"n{name}",
            self.over("ij", ordered=along),
            f"before = {name}[{before} | 0 < {along}]",
            f"x = {self.at(source, 'ij')}",
            f"{self.at(name, 'ij')} = max(before - 1.0, x)",
        )
        self.tensors[name] = "ij"


ROWS, COLUMNS = (1, 3, 16, 37), (1, 5, 8, 33, 64, 261)


def drawn(rng: random.Random, symbols: str = "") -> str:
    """The text of a kernel: two to six steps, whose last results it gives. ``symbols``: the dims
    (of ``i`` and ``j``) whose sizes, ``n`` and ``m``, a call passes."""
    sizes: dict[str, int | str] = {"i": rng.choice(ROWS), "j": rng.choice(COLUMNS)}
    sizes |= {dim: {"i": "n", "j": "m"}[dim] for dim in symbols}
    chain = _Chain(rng, sizes)
    steps = (chain.elementwise, chain.reduction, chain.two_results, chain.place, chain.scan)
    for _ in range(rng.randint(2, 6)):
        rng.choices(steps, (4, 4, 1, 1, 1))[0]()
    last = chain.pick("ij")
    chain.say("last", chain.over("ij"), f"y[i, j] = {last} + {chain.pick('ij')}")
    allocs = [f"  alloc {allocated}" for allocated in chain.allocated]
    n, m = sizes["i"], sizes["j"]
    passed = "".join(f"{sizes[dim]}: s64 in 1..300, " for dim in symbols)
    head = f"kernel chain({passed}in x: f32[{n}, {m}], in b: f32[{m}], out y: f32[{n}, {m}]):"
    return "\n".join([head, *allocs, *chain.lines])
