"""Configs of kernels that differ in their sizes alone: what they are compared by, and what becomes
of a config for other sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewright.engine.disk_cache import content_key
from tilewright.ir.stmt import Kernel
from tilewright.recipes.config import Config
from tilewright.recipes.parts.forms import Choices
from tilewright.recipes.reducible import computes_in
from tilewright.recipes.roles import extents


def form_of(kernel: Kernel, kind: str) -> tuple[str, tuple[int, ...]]:
    """What kernels have in common that differ in their sizes (a key of their ``kind``, the types of
    their arrays, and the dims of their computes), and these sizes."""
    said = [kind, *(each.buffer.dtype.name for each in kernel.arrays)]
    sizes: list[int] = []
    for compute in computes_in(kernel):
        known = extents(compute)
        said += [compute.name, *known]
        sizes += known.values()
    return content_key(*(word.encode() for word in said))[:16], tuple(max(1, n) for n in sizes)


def distance(one: Sequence[int], other: Sequence[int]) -> float:
    """How far apart sizes are: along each dim, by how often it doubles."""
    if len(one) != len(other):
        return math.inf
    return math.hypot(*(math.log2(a / b) for a, b in zip(one, other, strict=True)))


def dims_of(kernel: Kernel) -> dict[str, int]:
    """The sizes of all dims of a kernel's computes, by their names; the largest of a name."""
    sizes: dict[str, int] = {}
    for compute in computes_in(kernel):
        for name, size in extents(compute).items():
            sizes[name] = max(size, sizes.get(name, 1))
    return sizes


def adapted(config: Config, sizes: Mapping[str, int]) -> Iterator[Config]:
    """What may become of ``config``, which is for other sizes, where dims have these: itself; with
    what is longer than its dim as long as that; and with what divides it. The nearest first; which
    of them are legal, their recipe says."""
    offered: list[Config] = []
    for fit in (_same, min, _dividing):
        changed = _changed(config, sizes, fit)
        if changed not in offered:
            offered.append(changed)
            yield changed


def _changed(choices: Any, sizes: Mapping[str, int], fit: Any) -> Any:
    """``choices`` with what they say of dims made to ``fit``."""
    if isinstance(choices, Choices):
        values = {name: getattr(choices, name) for name in choices.names()}
        return replace(choices, **{n: _changed(v, sizes, fit) for n, v in values.items()})
    if isinstance(choices, tuple) and any(isinstance(each, Choices) for each in choices):
        return tuple(_changed(each, sizes, fit) for each in choices)
    if isinstance(choices, Mapping):
        lengths = {name: _length(name, sizes) for name in choices}
        return {
            name: fit(value, lengths[name]) if type(value) is int and lengths[name] else value
            for name, value in choices.items()
        }
    return choices


def _length(name: str, sizes: Mapping[str, int]) -> int:
    """The size of the dim called ``name``, which may be several as one; 0 where it is none."""
    parts = [name] if name in sizes else name.split("_")
    return math.prod(sizes.get(part, 0) for part in parts)


def _same(value: int, length: int) -> int:
    return value


def _dividing(value: int, length: int) -> int:
    return next(n for n in range(min(value, length), 0, -1) if length % n == 0)
