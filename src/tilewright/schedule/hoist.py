"""Splitting a kernel in two: packing, which is done once, and the rest."""

from __future__ import annotations

from dataclasses import replace

from tilewright.errors import ScheduleError
from tilewright.ir.buffer import Buffer, Space
from tilewright.ir.printer import headline
from tilewright.ir.stmt import Allocate, Kernel, Param, ScalarParam, Stmt, View
from tilewright.ir.visit import block
from tilewright.schedule.access import buffers_in, buffers_written, readdress
from tilewright.schedule.place import sequence
from tilewright.schedule.provenance import Step, remember
from tilewright.simplify import simplify_kernel


def hoist_pack(kernel: Kernel, buffer: str) -> tuple[Kernel, Kernel]:
    """Splits off what fills ``buffer``: a packing kernel, and one that takes the packed buffer.

        kernel conv(in src, in weights, out dst):
          alloc weights_packed
          compute w_pack(...): weights_packed[...] = weights[...]
          compute conv(...): dst[...] add= src[...] * weights_packed[...]
    ->  hoist_pack(kernel, "weights_packed")
        kernel conv_pack_weights(in weights, out weights_packed):
          compute w_pack(...): weights_packed[...] = weights[...]
        kernel conv(in src, in weights_packed, out dst):
          compute conv(...): dst[...] add= src[...] * weights_packed[...]

    The buffer is allocated at the kernel's top and filled from one input that nothing else reads;
    it takes the place of this input. Refuses with `ScheduleError` otherwise.
    """
    body = sequence(kernel.body)
    old = _allocated(kernel, body, buffer)
    filling = [s for s in body if old in buffers_written(s)]
    source = _source(kernel, old, filling)
    rest = [
        s for s in body if s not in filling and not (isinstance(s, Allocate) and s.buffer is old)
    ]
    for stmt in rest:
        if source.buffer in buffers_in(stmt):
            raise ScheduleError(
                f"hoist_pack: '{source.name}' is still read without packing",
                where=headline(stmt),
                why="the kernel would need both",
                cure="promote every operand that reads it first",
            )
    new = Buffer(old.name, old.dtype, old.shape, old.layout, Space.GLOBAL)

    def moved(stmt: Stmt) -> Stmt:
        return readdress(stmt, old, lambda view: View(new, view.index, view.mask))

    params: tuple[Param | ScalarParam, ...] = (*kernel.scalars, source, Param(new, "out"))
    pack = Kernel(f"{kernel.name}_pack_{source.name}", params, moved(block(*filling)))
    main_params = tuple(Param(new, "in") if p is source else p for p in kernel.params)
    main = replace(kernel, params=main_params, body=moved(block(*rest)))
    pack, main = simplify_kernel(pack), simplify_kernel(main)
    step = Step.of("hoist_pack", (buffer,), {})
    remember(main, kernel, step)
    remember(pack, kernel, step, split_off=True)
    return pack, main


def _allocated(kernel: Kernel, body: tuple[Stmt, ...], name: str) -> Buffer:
    buffers = {s.buffer.name: s.buffer for s in body if isinstance(s, Allocate)}
    if name not in buffers:
        raise ScheduleError(
            f"hoist_pack: no buffer '{name}' is allocated at the top of the kernel",
            where=f"kernel {kernel.name}",
            cure="choose one of " + ", ".join(buffers) if buffers else "promote an operand first",
        )
    return buffers[name]


def _source(kernel: Kernel, buffer: Buffer, filling: list[Stmt]) -> Param:
    """The one input that the filling statements read."""
    for stmt in filling:
        others = buffers_written(stmt) - {buffer}
        if others:
            raise ScheduleError(
                f"hoist_pack: what fills '{buffer.name}' also writes "
                f"'{min(b.name for b in others)}'",
                where=headline(stmt),
                cure="reorder or split it first",
            )
    read = {b for stmt in filling for b in buffers_in(stmt)} - {buffer}
    params = [p for p in kernel.arrays if p.buffer in read and p.access == "in"]
    if len(params) != 1 or len(read) != 1:
        raise ScheduleError(
            f"hoist_pack: '{buffer.name}' is not filled from one input",
            where=headline(filling[0]) if filling else f"kernel {kernel.name}",
            why="it is made from " + (", ".join(sorted(b.name for b in read)) or "nothing"),
            cure="hoist only what was promoted from an input parameter",
        )
    return params[0]
