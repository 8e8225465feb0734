"""A graph in f64 instead of f32, as a reference with negligible rounding errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.graph.compiling import compile_graph
from tilewright.graph.graph import Graph
from tilewright.ir.constants import digest_of
from tilewright.ir.parser import parse_kernel
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel

Results = dict[str, NDArray[Any]]

# Numbers with a point or an exponent, infinities and NaN are f32 by default.
_NUMBER = re.compile(r"(?<![\w.])(?:\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+|inf|nan)(?![\w.])")
_TYPE = re.compile(r"\bf32\b")


def widened(kernel: Kernel) -> Kernel:
    """The kernel with f64 in place of f32, and the same constants. Raises the parser's errors where
    it uses the bits of an f32."""
    text = _TYPE.sub("f64", _NUMBER.sub(_wide, to_text(kernel)))
    contents: dict[str, NDArray[Any]] = {}
    for param in kernel.arrays:
        if param.digest is None:
            continue
        values = kernel.constants[param.digest]
        if param.dtype.name == "f32":
            values = values.astype(np.float64)
            text = text.replace(param.digest, digest_of(values))
        contents[digest_of(values)] = values
    return parse_kernel(text, constants=contents)


def _wide(match: re.Match[str]) -> str:
    with np.errstate(over="ignore"):
        value = float(np.float32(match[0]))
    return f"f64({value!r})"


def exact_results(kernel: Kernel, arguments: Mapping[str, NDArray[Any]]) -> Results:
    """The results of a graph in f64, by the interpreter; empty if its kernel uses the bits of
    numbers."""
    try:
        wide = widened(kernel)
    except TilewrightError:
        return {}
    types = {param.name: param.dtype.numpy for param in wide.arrays}
    wide_arguments = {name: array.astype(types[name]) for name, array in arguments.items()}
    names = [param.name for param in wide.arrays if param.access == "out"]
    output = compile_graph(Graph(wide), "interpreter")(**wide_arguments)
    return {names[0]: output} if len(names) == 1 else {name: output[name] for name in names}
