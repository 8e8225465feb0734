"""What depends on constants alone is computed now, by the interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.graph.passes.values import Values
from tilewright.interpret import run
from tilewright.ir.buffer import Buffer, row_major
from tilewright.ir.constants import contents_of, digest_of_contents
from tilewright.ir.expr import Const, const
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Compute,
    Kernel,
    Param,
    Result,
    ScalarParam,
    Stmt,
    View,
)
from tilewright.ir.visit import direct_exprs, variables
from tilewright.tensor.places import axes
from tilewright.tensor.replacing import is_splat, with_buffers
from tilewright.tensor.tensor import domain

# A constant is made where it takes no more memory than what it is made from, or so many bytes; and
# where so many points are computed at most.
_SMALL = 1 << 20
MOST_POINTS = 1 << 26

Contents = Mapping[Buffer, NDArray[Any]]


def fold_constants(kernel: Kernel) -> Kernel:
    """Computes whose operands are constants become constants, or numbers where all are one.

        constant w: f32[64] = sha256:1...
        alloc scaled
        compute scaled(i): scaled[i] = w[i] * 0.5
        compute y(i): y[i] = x[i] * scaled[i]
    ->  constant scaled: f32[64] = sha256:2...
        compute y(i): y[i] = x[i] * scaled[i]
    """
    values = Values.of(kernel)
    arrays: dict[Buffer, NDArray[Any]] = {
        array.buffer: kernel.constants[array.digest]
        for array in kernel.arrays
        if array.digest is not None and array.digest in kernel.constants
    }
    folded: dict[Buffer, NDArray[Any]] = {}
    types = {digest: contents.dtype for digest, contents in kernel.constants.items()}
    passed = {scalar.var for scalar in kernel.scalars}
    for buffer in values.made:
        computes = values.makers(buffer)
        if buffer not in values.allocated or not _is_foldable(buffer, computes, arrays):
            continue
        if any(passed & variables(expr) for c in computes for expr in direct_exprs(c)):
            continue
        arrays[buffer] = result = _evaluated(buffer, computes, arrays)
        # The same bytes may be those of another type: a digest has one.
        if types.setdefault(digest_of_contents(result), result.dtype) == result.dtype:
            folded[buffer] = result
    if not folded:
        return kernel
    gone = {n for buffer in folded for n in values.made[buffer]}
    return _with_constants(kernel, values.stmts, folded, gone)


def _is_foldable(buffer: Buffer, computes: Sequence[Compute], contents: Contents) -> bool:
    """Whether all that makes ``buffer`` is known, and it is worth it."""
    if buffer.symbols or _is_number(buffer, computes):
        return False
    sources: set[Buffer] = set()
    points = 0
    for compute in computes:
        if {view.buffer for view in compute.outputs} != {buffer}:
            return False
        extents = [dim.extent for dim in compute.dims]
        if not all(isinstance(extent, Const) for extent in extents):
            return False
        points += prod(int(extent.value) for extent in extents if isinstance(extent, Const))
        sources |= {operand.view.buffer for operand in compute.operands} - {buffer}
    if not sources <= contents.keys() or points > MOST_POINTS:
        return False
    return buffer.bytes <= max(_SMALL, sum(source.bytes for source in sources))


def _is_number(buffer: Buffer, computes: Sequence[Compute]) -> bool:
    """Whether ``computes`` say one number for all of ``buffer``: that is better than a constant."""
    if len(computes) != 1 or len(computes[0].results) != 1:
        return False
    (result,) = computes[0].results
    return result.combiner is None and isinstance(result.values[0], Const)


def _evaluated(buffer: Buffer, computes: Sequence[Compute], contents: Contents) -> NDArray[Any]:
    """The contents of ``buffer``, flat."""
    sources = {operand.view.buffer for compute in computes for operand in compute.operands} - {
        buffer
    }
    params = [*(Param(source, "in") for source in sources), Param(buffer, "out")]
    memory = np.zeros(buffer.layout.extent, buffer.dtype.numpy)
    arguments = {source.name: contents[source] for source in sources} | {buffer.name: memory}
    run(Kernel("constant", tuple(params), Block(tuple(computes))), arguments)
    memory.flags.writeable = False
    return memory


def _with_constants(
    kernel: Kernel, stmts: Sequence[Stmt], folded: Contents, gone: set[int]
) -> Kernel:
    """``kernel`` with constants in place of computed buffers, the computes ``gone`` left out."""
    params: list[Param] = []
    constants = dict(kernel.constants)
    renamed: dict[Buffer, Buffer] = {}
    numbers: dict[Buffer, Compute] = {}
    for old, contents in folded.items():
        new = replace(old, layout=row_major(old.sizes))
        if contents.size and is_splat(contents):
            value = const(contents[0].item(), old.dtype)
            result = Result((View(old, axes(old.rank)),), (value,))
            numbers[old] = Compute(old.name, domain(old.shape), (), (result,))
            continue
        renamed[old] = new
        digest = digest_of_contents(contents)
        params.append(Param(new, "in", digest))
        constants[digest] = contents_of(new, contents)
    kept: list[Stmt] = []
    for n, stmt in enumerate(stmts):
        if n in gone or (isinstance(stmt, Allocate) and stmt.buffer in renamed):
            continue
        kept.append(stmt)
        if isinstance(stmt, Allocate) and stmt.buffer in numbers:
            kept.append(numbers[stmt.buffer])
    body = with_buffers(Block(tuple(kept)), renamed)
    # What a call passes keeps its order.
    end = len(kernel.params)
    while end and _is_result(kernel.params[end - 1]):
        end -= 1
    values = (*kernel.params[:end], *params, *kernel.params[end:])
    return replace(kernel, params=values, body=body, constants=constants)


def _is_result(param: Param | ScalarParam) -> bool:
    return isinstance(param, Param) and param.access == "out"
