"""Results in a better place on their way: accumulated there, stored from there by all work-items of
a workgroup, or by a unit of the machine."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ir.buffer import Space, Swizzle
from tilewright.ir.stmt import Kernel
from tilewright.schedule.queries.place import computes_named
from tilewright.schedule.queries.refusal import refusal
from tilewright.schedule.queries.storage import BlockList
from tilewright.schedule.records.asks import a_plain_compute, asks
from tilewright.schedule.records.transform import transform
from tilewright.schedule.staging.accumulation import accumulated
from tilewright.schedule.staging.copiers import Copier, CopyUnit, Threads
from tilewright.schedule.staging.finished import finished
from tilewright.schedule.staging.results_by_threads import stored_together
from tilewright.schedule.staging.results_by_unit import stored_as_boxes


@transform
@asks(compute=a_plain_compute)
def stage_result(
    kernel: Kernel,
    compute: str,
    at: str | None = None,
    *,
    by: Copier | None = None,
    space: Space | None = None,
    layout: BlockList = (),
    row_padding: Mapping[str, int] | None = None,
    swizzle: Swizzle | None = None,
    whole: bool | None = None,
) -> Kernel:
    """Lets what the compute makes go by way of a buffer. Without ``by``, a reduction accumulates in
    it what it adds inside the loop ``at``, or, where that is its own name, each time that it runs:

        for ic_o in 4:
          for oc_o in 2:
            compute conv(oc in 16, ic in 8): dst[oc_o*16 + oc] add= ...
    ->  stage_result("conv", at="oc_o")
        for ic_o in 4:
          for oc_o in 2:
            alloc dst_tile: f32[16] private
            compute conv_load(oc in 16): dst_tile[oc] = dst[oc_o*16 + oc]
            compute conv(oc in 16, ic in 8): dst_tile[oc] add= ...
            compute conv_store(oc in 16): dst[oc_o*16 + oc] = dst_tile[oc]

    The buffer (of ``space``: private, if none is given) has the dims (and the loops inside ``at``)
    that the output's index depends on, which have to be one-to-one with its elements. Nothing else
    inside the loop may touch the output. Where extents are open, no more of the buffer is loaded;
    with ``whole``, all of it begins with a value, as registers of vectors need. Among the results
    of the step are ``load``, ``store`` and ``buffer``.

    What does not accumulate is made there each time that it runs (by ``finish`` among the results),
    and what is left is a copy: it can be converted where it is held, and moved by what moves
    elements of one type only.

        compute store(m in 64, n in 128): dst[m, n | n < 100] = bf16(acc)    (acc = acc[m, n])
    ->  stage_result("store", "store")
        compute store_finish(m in 64, n in 128): dst_made[m, n] = bf16(acc)    (acc = acc[m, n])
        compute store(m in 64, n in 128): dst[m, n | n < 100] = made    (made = dst_made[m, n])

    ``by`` says who stores (see there): `Threads`, all work-items of a workgroup together,
    `CopyUnit`, the machine. What each has made goes through memory that they share, which has the
    dims of the work-items' loops and of the compute, called like them. Loops around the compute
    stage piece by piece, which takes less memory. Nothing else that the work-items do may touch
    what is stored. Among the results of the step is what takes an operand there, called like it,
    or the unit's ``store``.

    The buffer has ``layout``, ``row_padding`` and ``swizzle`` (see `storage.blocked_layout`).
    """
    match by:
        case None:
            _only(kernel, "by=None", row_padding=row_padding, swizzle=swizzle)
            if at is None:
                raise refusal(
                    f"no loop is named in which '{compute}' accumulates",
                    kernel,
                    "say `at` which, or `by` whom the result is to be stored",
                )
            if at == compute and not _accumulates(kernel, compute):
                _only(kernel, "what does not accumulate", layout=layout or None, whole=whole)
                return finished(kernel, compute, space or Space.PRIVATE)
            return accumulated(kernel, compute, at, space or Space.PRIVATE, layout, bool(whole))
        case Threads():
            _only(kernel, "by=Threads(...)", at=at, space=space, swizzle=swizzle, whole=whole)
            return stored_together(kernel, compute, by, layout, row_padding or {})
        case CopyUnit():
            options = {"at": at, "space": space, "row_padding": row_padding, "whole": whole}
            _only(kernel, "by=CopyUnit(...)", **options)
            return stored_as_boxes(kernel, compute, by, layout, swizzle)


def _accumulates(kernel: Kernel, compute: str) -> bool:
    return any(c.combiner is not None for c, _ in computes_named(kernel, compute))


def _only(kernel: Kernel, way: str, **foreign: object) -> None:
    """Refuses options that this way to stage has no use for."""
    for name, value in foreign.items():
        if value is not None:
            raise refusal(f"{name} does not go with {way}", kernel, f"leave {name} out")
