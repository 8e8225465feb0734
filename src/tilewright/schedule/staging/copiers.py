"""Who copies what a workgroup stages: operands (`stage`), and results (`stage_result`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.ir.stmt import Kernel
from tilewright.machines.tile_unit import TileCopy
from tilewright.schedule.queries.refusal import refusal


@dataclass(frozen=True)
class Threads:
    """All work-items of a workgroup, each every so manieth run of ``vector`` neighbours (or of half
    as many, ...), so that neighbouring work-items touch neighbouring memory. Where subgroups act as
    one, they copy with so many ``lanes`` each, in loops of their own; otherwise (0) the work-items
    of the nest are all there are. Runs of an operand may go ``across`` the ends of rows of an image
    where asynchronous copies move them: other accesses would be of single elements there.

    Of an operand:

        workgroup for t in 4:
          for k_o in 2:
            compute f(i in 2, k in 8): x = src[t*2 + i, k_o*8 + k] ...
    ->  stage("f", "x", at="k_o", by=Threads(), shape="dims")
        alloc src_packed: f32[4, 2, 8] workgroup
        workgroup for t in 4:
          for k_o in 2:
            compute x_pack(part in 16):
              x = src[part // 2, k_o*8 + part % 2 * 4 + t]
              src_packed[part // 4, part // 2 % 2, part % 2 * 4 + t] = x
            barrier()
            compute f(i in 2, k in 8): x = src_packed[t, i, k] ...
            barrier()

    The work-items are the loops of the hierarchy around the loop ``at`` (which may be the innermost
    of them), nested directly in one another. What is staged in the same loop afterwards is copied
    before the same barrier.

    Of a result:

        workgroup for t in 4:
          alloc acc: f32[2] private
          ...
          compute store(i in 2): dst[t*2 + i] = acc + 1.0    (acc = acc[i])
    ->  stage_result("store", by=Threads())
        alloc acc_shared: f32[4, 2] workgroup
        workgroup for t in 4:
          alloc acc: f32[2] private
          ...
          compute acc_share(i in 2): acc_shared[t, i] = acc[i]
          barrier()
          compute store(part in 2):
            dst[part*4 + t] = acc + 1.0    (acc = acc_shared[part*2 + t // 2, t % 2])
          barrier()

    The rest is as before, but for whom: neighbours in the result are stored by work-items that are
    neighbours, in runs where these begin at multiples of their length and no mask cuts them. What
    the compute reads besides mostly lies like its result, and so does the buffer, unless a layout
    says otherwise.
    """

    vector: int = 1
    lanes: int = 0
    across: bool = False

    def check(self, kernel: Kernel) -> None:
        """Raises `ScheduleError` for numbers by which nothing is copied."""
        if self.vector < 1 or self.lanes < 0:
            raise refusal(
                f"{self.vector} elements at a time, by {self.lanes} lanes",
                kernel,
                "choose 1 element or more, and the lanes of a subgroup or 0",
            )


@dataclass(frozen=True)
class CopyUnit:
    """A unit of the machine that copies boxes of a tensor by itself: so large as ``boxes`` has it
    along the dims of the copy, whole along others. ``instruction`` is the one that stores.

    Of an operand, one of the subgroups for all; with ``shape="dims"``, each subgroup's part is a
    tile of its own:

        subgroup for s in 2:
          for k_o in 2:
            compute f(m in 64, k in 8): x = src[s*64 + m, k_o*8 + k] ...
    ->  stage("f", "x", at="k_o", by=CopyUnit())
        alloc src_packed: f32[128, 8] workgroup
        subgroup for s in 2:
          for k_o in 2:
            if s == 0:
              compute x_pack(m in 128, k in 8): src_packed[m, k] = src[m, k_o*8 + k]
            barrier()
            compute f(m in 64, k in 8): x = src_packed[s*64 + m, k] ...
            barrier()

    Of a result, which each subgroup has stored as one:

        subgroup for s in 2:
          for turn in 3:
            ...
            compute store(m in 64, n in 128): dst[turn*128 + s*64 + m, n] = bf16(acc[m, n])
    ->  stage_result("store", by=CopyUnit({"n": 64}, "tma_store"),
                     layout=[("n", None), "m", ("n", 64)])
        alloc dst_tile: bf16[2, 64, 128] workgroup
        subgroup for s in 2:
          for turn in 3:
            ...
            wait_stores(0)
            subgroup_barrier()
            compute store(m in 64, n in 128): dst_tile[s, m, n] = bf16(acc[m, n])
            fence_async()
            subgroup_barrier()
            unrolled for n_o in 2:
              compute store_box<tma_store>(m in 64, n in 64) joins stores:
                dst[turn*128 + s*64 + m, n_o*64 + n] = dst_tile[s, m, n_o*64 + n]
            commit_stores()
          wait_stores(0)

    It goes on while the unit stores, and waits only before it writes its part again (where loops
    run the compute more than once), and at the end. Of a box, a mask hides only what is outside of
    the tensor: there the unit stores nothing.
    """

    boxes: Mapping[str, int] = field(default_factory=dict)
    instruction: TileCopy | None = None


Copier = Threads | CopyUnit
