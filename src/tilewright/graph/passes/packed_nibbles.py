"""Constants of 4 bits lie two to a byte along what products add up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.dtypes import DType, s32, u8
from tilewright.graph.passes.loaded import loaded, with_loads
from tilewright.graph.passes.values import Values
from tilewright.ir.buffer import Buffer, buffer
from tilewright.ir.computes import index_variables
from tilewright.ir.constants import digest_of_contents
from tilewright.ir.expr import Expr, Var, cast, const
from tilewright.ir.load import Load, load
from tilewright.ir.stmt import Block, Compute, Kernel, Param, Stmt
from tilewright.ir.visit import loads_in


def pack_nibbles(kernel: Kernel) -> Kernel:
    """Constants of s4 and u4, which have a byte for each element, become bytes of two.

        constant q: u4[64, 32]
        compute w(k, n): w[k, n] = (f32(q[k, n]) - 8.0) * scale[k // 32, n]
        compute y(m, n, k): y[m, n] add= x[m, k] * w[k, n]
    ->  constant q: u8[32, 32]
        compute w(k, n): w[k, n] = (f32(half) - 8.0) * scale[k // 32, n]
            where half = s32(q[k // 2, n]) >> s32(k % 2 * 4) and s32(15)
        compute y(m, n, k): y[m, n] add= x[m, k] * w[k, n]

    A byte has the element of the even place in its lower half. Those that products do not read so,
    by one compute, stay.
    """
    values = Values.of(kernel)
    params, stmts = list(kernel.params), list(values.stmts)
    constants = dict(kernel.constants)
    for number, param in enumerate(params):
        if not isinstance(param, Param) or param.digest not in constants:
            continue
        old, axis = param.buffer, _axis(values, param.buffer)
        if axis is None:
            continue
        held = np.asarray(constants[param.digest]).reshape(old.shape)
        contents = _halves(held, axis)
        shape = [size // 2 if n == axis else size for n, size in enumerate(old.shape)]
        new = buffer(old.name, u8, shape)
        digest = digest_of_contents(contents)
        constants[digest] = contents
        params[number] = replace(param, buffer=new, digest=digest)
        (reader,) = values.readers[old]
        stmts[reader] = _reading(stmts[reader], old, new, axis)
    if stmts == list(values.stmts):
        return kernel
    used = {p.digest for p in params if isinstance(p, Param)}
    held_by = {digest: data for digest, data in constants.items() if digest in used}
    return replace(kernel, params=tuple(params), body=Block(tuple(stmts)), constants=held_by)


def _axis(values: Values, held: Buffer) -> int | None:
    """The dim of a constant of 4 bits that a product adds up, by way of one compute."""
    if not held.dtype.is_nibble or held.symbols or len(values.readers.get(held, ())) != 1:
        return None
    compute = values.stmts[values.readers[held][0]]
    if not isinstance(compute, Compute) or len(compute.outputs) != 1:
        return None
    (result,) = loaded(compute)
    memory = compute.out.buffer
    if result.combiner is not None or values.makers(memory) != [compute]:
        return None
    reads = [read for value in result.values for read in loads_in(value) if read.buffer is held]
    if len(reads) != 1 or reads[0].mask is not None:
        return None
    along = _reduced(values, compute)
    for axis, index in enumerate(reads[0].index):
        if isinstance(index, Var) and index in along and held.shape[axis] % 2 == 0:
            return axis
    return None


def _reduced(values: Values, compute: Compute) -> set[Expr]:
    """The dims of ``compute`` along which all sums of products that read its result add up."""
    exprs: set[Expr] | None = None
    for n in values.readers.get(compute.out.buffer, ()):
        reader = values.stmts[n]
        if not isinstance(reader, Compute) or reader.combiner != "add" or len(reader.operands) < 2:
            return set()
        kept = index_variables(reader.out)
        views = [o.view for o in reader.operands if o.view.buffer is compute.out.buffer]
        factors = {
            place
            for view in views
            for place, index in zip(compute.out.index, view.index, strict=True)
            if isinstance(index, Var) and index not in kept
        }
        exprs = factors if exprs is None else exprs & factors
    return exprs or set()


def _halves(held: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], axis: int) -> np.ndarray:
    """Pairs of elements along ``axis`` as bytes, flat."""
    bits = held.astype(np.int8).view(np.uint8) & 15
    first, second = (np.take(bits, range(n, held.shape[axis], 2), axis) for n in (0, 1))
    packed = np.ascontiguousarray(first | second << 4).reshape(-1)
    packed.flags.writeable = False
    return packed


def _reading(stmt: Stmt, old: Buffer, new: Buffer, axis: int) -> Stmt:
    assert isinstance(stmt, Compute)

    def other(node: Load) -> Expr:
        if node.buffer is not old:
            return node
        place = node.index[axis]
        index = (*node.index[:axis], place // 2, *node.index[axis + 1 :])
        return cast(s32, _half(load(new, index), place, old.dtype))

    return with_loads(stmt, other)


def _half(byte: Load, place: Expr, type_: DType) -> Expr:
    """The element of ``place``, whose ``byte`` this is, as s32."""
    first = cast(s32, place % 2 * 4)
    if type_.kind == "uint":
        return (cast(s32, byte) >> first) & const(15, s32)
    # The sign of the half becomes that of the number.
    return (cast(s32, byte) << (const(28, s32) - first)) >> const(28, s32)
