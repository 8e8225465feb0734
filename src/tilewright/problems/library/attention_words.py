"""The statements of attention, forward and backward."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from tilewright.dtypes import DType
from tilewright.problems.library.wording import number, stored


class Sizes(Protocol):
    """What an attention problem says (see `attention.AttentionProblem`)."""

    @property
    def queries(self) -> tuple[int, ...]: ...
    @property
    def keys(self) -> tuple[int, ...]: ...
    @property
    def values_size(self) -> tuple[int, ...]: ...
    @property
    def mask_shape(self) -> tuple[int, ...]: ...
    @property
    def algorithm(self) -> str: ...
    @property
    def takes_mask(self) -> bool: ...
    @property
    def factor(self) -> float: ...
    @property
    def cap(self) -> float: ...
    @property
    def window(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def flags(self) -> str: ...


class Words:
    """The statements of attention, on dims ``b``, ``h`` (heads of keys), ``g`` (heads of queries
    that share one, where there are several), ``m`` (queries), ``l`` (keys), ``d`` and ``e``."""

    def __init__(self, problem: Sizes, src: DType, dst: DType, acc: DType) -> None:
        self.problem, self.src, self.dst, self.acc = problem, src, dst, acc
        batch, heads, rows, self.size = problem.queries
        shared, self.length, (self.last,) = problem.keys[1], problem.keys[2], problem.values_size
        group = heads // shared
        grouped = [("g", group)] if group > 1 else []
        dims = [("b", batch), ("h", shared), *grouped, ("m", rows)]
        self.kept = ", ".join(f"{name} in {size}" for name, size in dims)
        self.row = ", ".join(name for name, _ in dims)
        self.shape = ", ".join(str(size) for _, size in dims)
        self.head = f"h * {group} + g" if grouped else "h"
        self.zero, self.none = number(0.0, acc), number(-np.inf, acc)

    def sums(self, name: str, dims: str, index: str, over: str, loads: str, value: str) -> str:
        """The sum of ``value`` over dims as ``name[index]``."""
        return f"""
compute {name}_clear({dims}):
  {name}[{index}] = {self.zero}
compute {name}({dims}, {over}):
  {loads}
  {name}[{index}] add= {value}
"""

    def score(self) -> str:
        """The score ``s`` as it counts; ``x`` is the element of a mask or a bias."""
        value = f"s * {number(self.problem.factor, self.acc)}"
        if self.problem.cap:
            value = f"{self.bent()} * {number(self.problem.cap, self.acc)}"
        if self.problem.algorithm == "bias":
            value = f"{value} + x"
        conditions = ["x"] if self.problem.algorithm == "mask" else []
        last = f"m + {self.problem.offset}" if self.problem.offset else "m"
        if self.problem.algorithm in ("causal", "lower_right"):
            conditions.append(f"l <= {last}")
        if self.problem.window:
            conditions.append(f"{last} < l + {self.problem.window}")
        if conditions:
            value = f"select({' and '.join(conditions)}, {value}, {number(-np.inf, self.acc)})"
        return value

    def bent(self) -> str:
        """The score ``s`` as a part of the cap."""
        scale = number(self.problem.factor, self.acc)
        return f"tanh(s * {scale} / {number(self.problem.cap, self.acc)})"

    def scores(self, sloped: bool = False) -> str:
        """What counts of the products of queries and keys, as ``scores``; of a cap, what its
        gradients are multiplied by as ``slopes``."""
        at = zip(self.problem.mask_shape, ("b", self.head, "m", "l"), strict=False)
        place = ", ".join("0" if size == 1 else index for size, index in at)
        named = self.problem.algorithm if self.problem.takes_mask else ""
        loaded = f"x = {named}[{place}]" if named else ""
        products = self.sums(
            "scores",
            f"{self.kept}, l in {self.length}",
            f"{self.row}, l",
            f"d in {self.size}",
            f"q = queries[b, {self.head}, m, d]\n  k = keys[b, h, l, d]",
            f"{self.acc}(q) * {self.acc}(k)",
        )
        slopes = f"""
alloc slopes: {self.acc}[{self.shape}, {self.length}]
compute slopes({self.kept}, l in {self.length}):
  s = scores[{self.row}, l]
  slopes[{self.row}, l] = {number(1.0, self.acc)} - {self.bent()} * {self.bent()}
"""
        return f"""
alloc scores: {self.acc}[{self.shape}, {self.length}]
{products}
{slopes if sloped and self.problem.cap else ""}
compute counted({self.kept}, l in {self.length}):
  s = scores[{self.row}, l]
  {loaded}
  scores[{self.row}, l] = {self.score()}
"""

    def forward(self) -> str:
        """The result, and the logarithms of sums where they are asked for."""
        acc, row, kept = self.acc, self.row, self.kept
        result = stored(f"select(t == {self.zero}, {self.zero}, s / t)", acc, self.dst)
        added = self.sums(
            "sums",
            f"{kept}, e in {self.last}",
            f"{row}, e",
            f"l in {self.length}",
            f"p = powers[{row}, l]\n  v = values[b, h, l, e]",
            f"{acc}(p) * {acc}(v)",
        )
        logarithms = f"""
compute logarithms({kept}):
  most = greatest[{row}]
  t = total[{row}]
  logarithms[b, {self.head}, m] = most + log(t)
"""
        return f"""
alloc greatest: {acc}[{self.shape}]
alloc powers: {self.src}[{self.shape}, {self.length}]
alloc total: {acc}[{self.shape}]
alloc sums: {acc}[{self.shape}, {self.last}]
{self.scores()}
compute greatest_clear({kept}):
  greatest[{row}] = {self.none}
compute greatest({kept}, l in {self.length}):
  s = scores[{row}, l]
  greatest[{row}] max= s
compute finite({kept}):
  s = greatest[{row}]
  greatest[{row}] = select(s == {self.none}, {self.zero}, s)
compute powers({kept}, l in {self.length}):
  s = scores[{row}, l]
  most = greatest[{row}]
  powers[{row}, l] = {stored("exp(s - most)", acc, self.src)}
{self.sums("total", kept, row, f"l in {self.length}", f"p = powers[{row}, l]", f"{acc}(p)")}
{added}
compute result({kept}, e in {self.last}):
  s = sums[{row}, e]
  t = total[{row}]
  dst[b, {self.head}, m, e] = {result}
{logarithms if self.problem.flags else ""}
"""

    def backward(self) -> str:
        """The gradients, of weights that are made again from the logarithms of their sums."""
        acc, row, kept, length = self.acc, self.row, self.kept, self.length
        queries = f"q = queries[b, {self.head}, m, d]"
        back = f"g_dst = diff_dst[b, {self.head}, m, e]"
        over = ", ".join(dim for dim in kept.split(", ") if dim[0] in "gm")
        heads = ", ".join(dim for dim in kept.split(", ") if dim[0] in "bh")
        weights = stored(f"select(s == {self.none}, {self.zero}, exp(s - t))", acc, self.src)
        diff = f"{acc}(p) * (r - t) * {number(self.problem.factor, acc)}"
        slope = f"u = slopes[{row}, l]" if self.problem.cap else ""
        diff = f"{diff} * u" if self.problem.cap else diff
        parts = (
            ("products", f"{kept}, l in {length}", f"{row}, l", f"e in {self.last}",
             f"{back}\n  v = values[b, h, l, e]", f"{acc}(g_dst) * {acc}(v)"),
            ("of_queries", f"{kept}, d in {self.size}", f"{row}, d", f"l in {length}",
             f"p = diff_scores[{row}, l]\n  k = keys[b, h, l, d]", f"{acc}(p) * {acc}(k)"),
            ("of_keys", f"{heads}, l in {length}, d in {self.size}", "b, h, l, d", over,
             f"p = diff_scores[{row}, l]\n  {queries}", f"{acc}(p) * {acc}(q)"),
            ("of_values", f"{heads}, l in {length}, e in {self.last}", "b, h, l, e", over,
             f"p = powers[{row}, l]\n  {back}", f"{acc}(p) * {acc}(g_dst)"),
        )  # fmt: skip
        products, of_queries, of_keys, of_values = (self.sums(*part) for part in parts)
        loads = f"{back}\n  o = dst[b, {self.head}, m, e]"
        value = f"{acc}(g_dst) * {acc}(o)"
        both = self.sums("both", kept, row, f"e in {self.last}", loads, value)
        shared = ", ".join(dim.split(" in ")[1] for dim in heads.split(", "))
        return f"""
alloc powers: {self.src}[{self.shape}, {length}]
alloc products: {acc}[{self.shape}, {length}]
alloc both: {acc}[{self.shape}]
alloc diff_scores: {self.src}[{self.shape}, {length}]
alloc of_queries: {acc}[{self.shape}, {self.size}]
alloc of_keys: {acc}[{shared}, {length}, {self.size}]
alloc of_values: {acc}[{shared}, {length}, {self.last}]
{self.scores(sloped=True)}
compute powers({kept}, l in {length}):
  s = scores[{row}, l]
  t = logarithms[b, {self.head}, m]
  powers[{row}, l] = {weights}
{products}
{both}
compute diff_scores({kept}, l in {length}):
  p = powers[{row}, l]
  r = products[{row}, l]
  t = both[{row}]
  {slope}
  diff_scores[{row}, l] = {stored(diff, acc, self.src)}
{of_queries}
compute result_queries({kept}, d in {self.size}):
  s = of_queries[{row}, d]
  diff_queries[b, {self.head}, m, d] = {stored("s", acc, self.src)}
{of_keys}
compute result_keys({heads}, l in {length}, d in {self.size}):
  s = of_keys[b, h, l, d]
  diff_keys[b, h, l, d] = {stored("s", acc, self.src)}
{of_values}
compute result_values({heads}, l in {length}, e in {self.last}):
  s = of_values[b, h, l, e]
  diff_values[b, h, l, e] = {stored("s", acc, self.src)}
"""
