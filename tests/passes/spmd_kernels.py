"""Random kernels of work-items without races: barriers in loops, lanes that leave loops one by one,
private arrays, sizes that no vector divides."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

LOCALS = ((8,), (13,), (1,), (3, 5), (2, 16), (4, 1), (37,), (2, 3, 4))
GROUPS = 2


class Drawing:
    """Draws one kernel. Work-items write their own elements only, of global memory at any time, of
    the workgroup's between two barriers."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.local = rng.choice(LOCALS)
        self.items = int(np.prod(self.local))
        self.names = 0
        self.counters: list[str] = []

    def text(self) -> str:
        rng, total = self.rng, GROUPS * self.items
        body = [
            "alloc v: s32[1] private",
            "alloc a: s32[4] private",
            f"i: s32 = s32(g * {self.items} + t)",
            "alloc u: s32[1] private",
            "v[0] = x[s64(i)]",
            "u[0] = i",
            "for f in 4:",
            "  a[f] = s32(f) + i",
            *self.block(3, True),
            "x[s64(i)] = v[0]",
            "y[s64(i)] = a[1] + a[3] + u[0]",
        ]
        flat = "t = " + self.flat()
        depth = 2
        values = ("inout x: s32[%d]", "inout y: s32[%d]", "in n: s64[%d]")
        params = ", ".join([*(value % total for value in values), "inout c: s32[4]"])
        lines = [f"kernel k({params}):"]
        lines += [f"  grid for g in {GROUPS}:", f"    alloc s: s32[{self.items}] workgroup"]
        kinds = rng.choice((("workgroup",) * 3, ("workgroup", "workgroup", "lane")))
        for dim, size in enumerate(self.local):
            lines.append("  " * depth + f"{kinds[dim]} for t{dim} in {size}:")
            depth += 1
        return "\n".join([*lines, *("  " * depth + line for line in (flat, *body))]) + "\n"

    def flat(self) -> str:
        result = "t0"
        for dim, size in enumerate(self.local[1:], 1):
            result = f"({result}) * {size} + t{dim}"
        return result

    def name(self) -> str:
        self.names += 1
        return f"w{self.names}"

    def value(self) -> str:
        """An expression of s32."""
        rng = self.rng
        leaf = ["v[0]", "i", "a[2]", "y[s64(i)]", f"s32({rng.randint(-9, 9)})", "s32(n[0])"]
        leaf += ["a[(t + 1) % 4]", "s32(t)", "s32(n[s64(i)])", *self.counters]
        one, two = rng.choice(leaf), rng.choice(leaf)
        return rng.choice((one, f"{one} + {two}", f"{one} * {two}", f"max({one}, {two} ^ i)"))

    def number(self, same: bool) -> str:
        """A small s64; the ``same`` for all work-items of a group."""
        rng = self.rng
        common = (str(rng.randint(0, 4)), "n[g]", "g + 1", "n[0] - 1")
        own = ("n[s64(i)]", "t % 4", "n[s64(i)] - 2", "5 - t", "(21 - t) // 8", "t * 2 - 9")
        return rng.choice(common if same else (*common, *own))

    def condition(self, same: bool) -> str:
        rng = self.rng
        if same:
            return rng.choice(("n[0] < 2", "g == 0", "n[g] != 1"))
        own = (f"{self.value()} < {self.value()}", "t == 0", f"t < {rng.randint(0, self.items)}")
        return rng.choice((*own, "n[s64(i)] < 0", "n[0] < 2"))

    def block(self, depth: int, same: bool) -> list[str]:
        """Statements; where all work-items come by, the ``same`` for all, they may meet."""
        return [line for _ in range(self.rng.randint(1, 3)) for line in self.stmt(depth, same)]

    def stmt(self, depth: int, same: bool) -> Iterator[str]:
        rng = self.rng
        kinds = ["assign", "assign", "array", "let", "own", "count", "choose"]
        kinds += ["for", "if", "while"] * (depth > 0)
        kinds += ["meet", "meet", "for", "if"] * same
        kind = rng.choice(kinds)
        if kind in ("for", "if") and not depth:
            kind = "assign"
        if kind == "assign":
            yield f"v[0] = {self.value()}"
        elif kind == "array":
            yield f"a[{rng.choice(('0', '3', 't % 4', '(t + n[s64(i)]) % 4'))}] = {self.value()}"
        elif kind == "count":
            yield f"atomic_add(&c[{rng.choice(('1', 't % 4', 'n[s64(i)]'))}], {self.value()})"
        elif kind == "choose":
            yield from self.choose(2)
        elif kind == "own":
            yield f"y[s64(i)] = {self.value()}"
        elif kind == "let":
            name = self.name()
            yield f"{name}: s32 = {self.value()}"
            yield from self.block(0, same)
            yield f"v[0] = v[0] + {name}"
        elif kind == "meet":
            yield f"s[t] = {self.value()}"
            yield "barrier()"
            place = f"t * {rng.choice((1, 3))} + {rng.randint(0, 5)}"
            yield f"v[0] = v[0] + s[({place}) % {self.items}]"
            yield "barrier()"
        else:
            meet = same and rng.random() < 0.7
            yield from self.control(kind, depth - 1, meet)

    def choose(self, depth: int) -> Iterator[str]:
        """A branch that only assigns numbers."""
        rng = self.rng
        for line in (f"if {rng.choice(('v[0] < u[0]', 'n[s64(i)] < 2'))}:", "else:"):
            yield line
            for _ in range(rng.randint(1, 2)):
                if depth and rng.random() < 0.2:
                    yield from (f"  {chosen}" for chosen in self.choose(depth - 1))
                places = [rng.choice(("v[0]", "u[0]")) for _ in range(2)]
                yield f"  {places[0]} = {rng.choice((places[1], f'{places[1]} + i', 's32(3)'))}"
            if rng.random() < 0.4:
                return

    def control(self, kind: str, depth: int, same: bool) -> Iterator[str]:
        if kind == "for":
            name = self.name()
            yield f"for {name} in {self.number(same)}:"
            self.counters.append(f"s32({name})")
            yield from (f"  {line}" for line in self.block(depth, same))
            self.counters.pop()
        elif kind == "while":
            name = self.name()
            yield f"alloc {name}: s64[1] private"
            yield f"{name}[0] = 0"
            yield f"while {name}[0] < {self.number(False)}:"
            yield from (f"  {line}" for line in self.block(depth, False))
            yield f"  {name}[0] = {name}[0] + 1"
        else:
            yield f"if {self.condition(same)}:"
            yield from (f"  {line}" for line in self.block(depth, same))
            if self.rng.random() < 0.4:
                yield "else:"
                yield from (f"  {line}" for line in self.block(depth, same))


def arrays(items: int, seed: int) -> dict[str, NDArray[np.generic]]:
    """Arguments for so many work-items."""
    rng = np.random.default_rng(seed)
    return {
        "x": rng.integers(-50, 50, items).astype(np.int32),
        "y": rng.integers(-50, 50, items).astype(np.int32),
        "n": rng.integers(0, 4, items),
        "c": np.zeros(4, np.int32),
    }
