"""A graph in f64 instead of f32: what exact numbers would be, up to roundings that do not count."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.graph.graph import Graph
from tilewright.graph.program import compile_graph
from tilewright.ir.constants import digest_of
from tilewright.ir.parser import parse_kernel
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel

Results = dict[str, NDArray[Any]]

# Numbers with a point or an exponent are f32 unless they say otherwise, as infinities and NaN.
_NUMBER = re.compile(r"(?<![\w.])(?:\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+|inf|nan)(?![\w.])")
_TYPE = re.compile(r"\bf32\b")


def widened(kernel: Kernel) -> Kernel:
    """The kernel with f64 where it has f32, and the same numbers in it. Raises what the parser does
    where it looks at the bits of one of them."""
    text = _TYPE.sub("f64", _NUMBER.sub(_wide, to_text(kernel)))
    contents: dict[str, NDArray[Any]] = {}
    for each in kernel.arrays:
        if each.digest is None:
            continue
        values = kernel.constants[each.digest]
        if each.dtype.name == "f32":
            values = values.astype(np.float64)
            text = text.replace(each.digest, digest_of(values))
        contents[digest_of(values)] = values
    return parse_kernel(text, constants=contents)


def _wide(found: re.Match[str]) -> str:
    with np.errstate(over="ignore"):
        value = float(np.float32(found[0]))
    return f"f64({value!r})"


def exact_results(kernel: Kernel, arguments: Mapping[str, NDArray[Any]]) -> Results:
    """What the results of a graph would be in f64, by the interpreter; none where its kernel looks
    at the bits of numbers."""
    try:
        wide = widened(kernel)
    except TilewrightError:
        return {}
    types = {each.name: each.dtype.numpy for each in wide.arrays}
    given = {name: array.astype(types[name]) for name, array in arguments.items()}
    names = [each.name for each in wide.arrays if each.access == "out"]
    found = compile_graph(Graph(wide), "interpreter")(**given)
    return {names[0]: found} if len(names) == 1 else {name: found[name] for name in names}
