"""Random graphs as programs, against the interpreter: products, elementwise computes, reductions
and what is made of them, scans, gathers, parts of buffers, control."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tilewright as tw
from needs import need_device
from sweeps import in_turns
from test_graph_programs import drawn, interpreted
from tilewright.graph.compiling import compile_graph
from tilewright.graph.program import GraphProgram
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel


class Steps:
    """Draws statements on square matrices ``t*`` and vectors ``v*``; values stay between -1 and 1,
    so that rounding errors stay small."""

    def __init__(self, rng: random.Random, size: int) -> None:
        self.rng, self.size = rng, size
        self.matrices, self.vectors = ["a", "b"], ["w"]
        self.own: list[str] = []
        self.allocs: list[str] = []
        self.count = 0

    def new(self, rank: int) -> str:
        """A buffer to write to: a new one, or one that is there."""
        again = [name for name in self.own if name[0] == "tv"[rank == 1]]
        if again and self.rng.random() < 0.2:
            return self.rng.choice(again)
        name = f"{'tv'[rank == 1]}{len(self.own)}"
        shape = ", ".join([str(self.size)] * rank)
        self.allocs.append(f"alloc {name}: f32[{shape}]")
        self.own.append(name)
        (self.matrices if rank == 2 else self.vectors).append(name)
        return name

    def compute(self, dims: str, *body: str) -> list[str]:
        self.count += 1
        head = ", ".join(f"{d} in {self.size}" for d in dims.split())
        return [f"compute c{self.count}({head}):", *(f"  {line}" for line in body)]

    def step(self) -> list[str]:
        """One step; what it reads comes before it takes a name of its own."""
        rng, n = self.rng, self.size
        p, q, v = rng.choice(self.matrices), rng.choice(self.matrices), rng.choice(self.vectors)
        ij = rng.choice(["i, j", "i, j", "j, i", f"{n - 1} - i, j"])
        kind = rng.randrange(9)
        into = self.new(1 if kind in (4, 5) else 2)
        if into in (p, q, v) and kind != 0:
            return []
        match kind:
            case 0 | 1:
                same = "i, j" if into == p else ij
                value = rng.choice(["max(x, y) * 0.9", "x * y", "(x - y) * 0.5", "tanh(x + y)"])
                return (
                    self.compute(
                        "i j", f"x = {p}[{same}]", f"y = {q}[i, j]", f"{into}[i, j] = {value}"
                    )
                    if into != q
                    else []
                )
            case 2:
                return self.compute(
                    "i j", f"x = {p}[i, j]", f"y = {v}[i]", f"{into}[i, j] = x * 0.7 - y * 0.2"
                )
            case 3:
                total = f"alloc s{self.count}: f32[{n}, {n}]"
                name = f"s{self.count}"
                lines = [total, *self.compute("i j", f"{name}[i, j] = 0.0")]
                lines += self.compute(
                    "i j k",
                    f"x = {p}[i, k]",
                    f"y = {q}[{rng.choice(['k, j', 'j, k'])}]",
                    f"{name}[i, j] add= x * y",
                )
                return lines + self.compute(
                    "i j",
                    f"x = {name}[i, j]",
                    f"y = {p}[i, j]",
                    f"{into}[i, j] = x * {0.5 / n} + y * 0.4",
                )
            case 4:
                lines = self.compute("i", f"{into}[i] = 0.0")
                scale = f"x * {0.9 / n}"
                return lines + self.compute("i j", f"x = {p}[{ij}]", f"{into}[i] add= {scale}")
            case 5:
                lines = self.compute("i", f"{into}[i] = -1.0")
                return lines + self.compute("i j", f"x = {p}[i, j]", f"{into}[i] max= x")
            case 6:
                half = n // 2
                return [
                    *(f"compute l{self.count}(i in {n}, j in {half}):",),
                    *(f"  x = {p}[i, j]", f"  {into}[i, j] = x * 0.8"),
                    *(f"compute r{self.count}(i in {n}, j in {n - half}):",),
                    *(f"  x = {q}[i, j]", f"  {into}[i, j + {half}] = -x"),
                ]
            case 7:
                return self.compute(
                    "i j", "e = ids[i]", f"x = {p}[s64(e), j]", f"{into}[i, j] = x * 0.9"
                )
            case _:
                scan = self.compute(
                    "i j",
                    f"before = {into}[i, j - 1 | 0 < j]",
                    f"x = {p}[i, j]",
                    f"{into}[i, j] = before * 0.5 + x * 0.4",
                )
                return [scan[0].replace("j in", "ordered j in"), *scan[1:]]

    def block(self, count: int, depth: int) -> list[str]:
        """So many steps, of which some are control around others."""
        lines: list[str] = []
        for _ in range(count):
            if depth and self.rng.random() < 0.15:
                lines += self.control()
            else:
                lines += self.step()
        return lines

    def control(self) -> list[str]:
        # What arms write has to be there whichever is taken: it is written in front.
        self.count += 1
        number, v = self.count, self.rng.choice(self.vectors)
        written = self.matrices[-1]
        begin = self.step() if written in "ab" else []
        written = self.matrices[-1]
        if written in "ab":
            return begin
        inner = self.compute("i j", f"x = {written}[i, j]", f"{written}[i, j] = x * 0.5")
        if self.rng.random() < 0.5:
            return [*begin, f"if {v}[0] < 0.1:", *(f"  {line}" for line in inner)]
        counter = [f"alloc n{number}: s32[1]", f"compute z{number}(i in 1):"]
        counter += [f"  n{number}[i] = s32(0)", f"while n{number}[0] < s32(3):"]
        more = [f"compute m{number}(i in 1):", f"  c = n{number}[i]"]
        more += [f"  n{number}[i] = c + s32(1)"]
        return [*begin, *counter, *(f"  {line}" for line in [*inner, *more])]


def graph(rng: random.Random) -> Kernel:
    size = rng.choice([5, 8, 12, 17])
    steps = Steps(rng, size)
    lines = steps.block(rng.randint(3, 14), 1)
    last = rng.choice(steps.matrices)
    lines += steps.compute("i j", f"x = {last}[i, j]", "y[i, j] = x * 2.0")
    square = f"f32[{size}, {size}]"
    params = f"in a: {square}, in b: {square}, in w: f32[{size}], in ids: s32[{size}]"
    body = "\n  ".join([f"kernel random({params}, out y: {square}):", *steps.allocs, *lines])
    return tw.parse_kernel(body + "\n")


def check(rng: random.Random, target: str) -> None:
    kernel = graph(rng)
    arrays = drawn(kernel, rng.randrange(1000))
    size = len(arrays["w"])
    arrays["ids"] = np.random.default_rng(0).integers(0, size, size).astype(np.int32)
    for name in "abw":
        arrays[name] = np.tanh(arrays[name])
    wanted = interpreted(kernel, arrays)["y"]
    program = compile_graph(kernel, target, threads=2)
    result = program(**{name: array.copy() for name, array in arrays.items()})
    np.testing.assert_allclose(result, wanted, rtol=1e-3, atol=1e-4, err_msg=to_text(kernel))
    assert isinstance(program, GraphProgram)
    assert program.arena.bytes <= 1.05 * program.arena.live


@pytest.mark.parametrize("part", in_turns(4, range(12)))
def test_random_graphs(part: int) -> None:
    seed = f"{random.randrange(2**32)} {part}"
    print(f"seed {seed!r}")
    rng = random.Random(seed)
    target = "spirv" if part % 4 == 3 else "x86"
    need_device(target)
    for _ in range(4):
        check(rng, target)
