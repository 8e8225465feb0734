"""Transforms on kernels: from the naive form to the fast one.

In reading order: `place` (where a statement stands, and finding it), `access` (what it touches),
`provenance` and `transform` (what makes a function a transform, and what is remembered of it),
`asks` (what it asks of its arguments), `flow`, `contractions`, `prologues` and `groups` (what a
kernel is made of, found by data flow, and cutting it); then the transforms, one family a file:
`tile`, `reorder`, `merge` (loops), `fuse` (tile-and-fuse), `share_loops` (of computes that follow
one another), `name_operands` (what values load), `distribute` (over a hierarchy),
`fuse_dims` (dims made one), `split` (the inverse; by `phases` of strides, whose points take the
same taps), `unit` (dims of extent 1), `stage` and `stage_result` (operands and results in better
places, by the `copiers`; `staging`, `work_items`, `accumulation`, `results_by_threads` and
`results_by_unit` have the parts), `inline` (what elementwise computes give, where it is read) and
`set_apart` (the inverse), `read_words` (several small elements as one),
`pipeline` (copying ahead), `specialize_warps` (by a subgroup of its own, through `rounds` of
tiles), `multicast` (by the workgroups of a cluster for each other), `finish` (results made in
registers before they are stored), `load_ahead` (fragments for the next product), `lay_out`
(memory of the kernel's own in another order, space or type), `shrink` (to what is reached of it),
`hand_over` (from there on, in another place), `hoist` (packing apart), `pad` and `extend` (longer
dims), `partition`, `name_apart` (of its pieces), `trim` and `guard` (loop bounds and tests instead
of masks), `narrow` (no vectors that masks leave out), `kinds`, `spread`, `unroll_known`,
`unroll_lengths` and `workers` (how loops run), `asynchronous` (products that run meanwhile),
`opening` (of opaque nests), `raster` (in which order), `enclose` (one iteration around), `widen`,
`slices`, `divide_reduction` and `stream_k` (partial results), `compare_bits` (of extremes),
`fuse_nests` (two nests of workgroups made one), `work_together` (a workgroup's work-items),
`tensorize`, `fragments` (matrices that lanes hold
together), `loops` and `points` (lowering to loops), `stream_stores` (past the caches), `prefetch`
(what later iterations read).
`storage`, `identity`, `dependence`, `digits`, `merged_dims` and `runs` hold what several of them
need; `schedule` has the `KernelSchedule`, which records them; `excerpt` is for models that try
them out.
"""

from tilewright.schedule.asynchronous import start_products
from tilewright.schedule.carry import carry
from tilewright.schedule.compare_bits import compare_bits
from tilewright.schedule.copiers import CopyUnit, Threads
from tilewright.schedule.distribute import distribute
from tilewright.schedule.divide_reduction import divide_reduction
from tilewright.schedule.divide_scan import divide_scan
from tilewright.schedule.enclose import enclose
from tilewright.schedule.extend import extend
from tilewright.schedule.factor_out import factor_out
from tilewright.schedule.finish import finish
from tilewright.schedule.fragments import hold, on_lanes
from tilewright.schedule.fuse import tile_and_fuse
from tilewright.schedule.fuse_dims import fuse_dims
from tilewright.schedule.fuse_nests import fuse_nests
from tilewright.schedule.groups import as_contraction
from tilewright.schedule.guard import guard
from tilewright.schedule.hand_over import hand_over
from tilewright.schedule.hoist import hoist_pack
from tilewright.schedule.inline import inline
from tilewright.schedule.kinds import parallelize, set_kind, unroll
from tilewright.schedule.lay_out import lay_out
from tilewright.schedule.load_ahead import load_ahead
from tilewright.schedule.loops import lower_computes
from tilewright.schedule.merge import merge_loops
from tilewright.schedule.multicast import multicast
from tilewright.schedule.name_apart import name_apart
from tilewright.schedule.name_operands import name_operands
from tilewright.schedule.narrow import narrow
from tilewright.schedule.opening import open_nests
from tilewright.schedule.pad import pad
from tilewright.schedule.partition import partition
from tilewright.schedule.pipeline import Fill, pipeline
from tilewright.schedule.prefetch import prefetch
from tilewright.schedule.raster import persist, rasterize
from tilewright.schedule.read_words import read_words
from tilewright.schedule.reorder import reorder
from tilewright.schedule.schedule import KernelSchedule
from tilewright.schedule.set_apart import set_apart
from tilewright.schedule.share_loops import share_loops
from tilewright.schedule.shrink import shrink
from tilewright.schedule.slices import slice_reduction
from tilewright.schedule.specialize_warps import specialize_warps
from tilewright.schedule.split import split_dim
from tilewright.schedule.spread import spread
from tilewright.schedule.stage import stage
from tilewright.schedule.stage_result import stage_result
from tilewright.schedule.stream_k import stream_k
from tilewright.schedule.stream_stores import stream_stores
from tilewright.schedule.tensorize import tensorize
from tilewright.schedule.tile import tile
from tilewright.schedule.transform import TRANSFORMS
from tilewright.schedule.trim import trim, trim_dims
from tilewright.schedule.unit import drop_unit_dims
from tilewright.schedule.unroll_known import unroll_known
from tilewright.schedule.unroll_lengths import unroll_lengths
from tilewright.schedule.widen import widen_reduction
from tilewright.schedule.work_together import work_together
from tilewright.schedule.workers import parallelize_parts

__all__ = [
    "TRANSFORMS",
    "CopyUnit",
    "Fill",
    "KernelSchedule",
    "Threads",
    "as_contraction",
    "carry",
    "compare_bits",
    "distribute",
    "divide_reduction",
    "divide_scan",
    "drop_unit_dims",
    "enclose",
    "extend",
    "factor_out",
    "finish",
    "fuse_dims",
    "fuse_nests",
    "guard",
    "hand_over",
    "hoist_pack",
    "hold",
    "inline",
    "lay_out",
    "load_ahead",
    "lower_computes",
    "merge_loops",
    "multicast",
    "name_apart",
    "name_operands",
    "narrow",
    "on_lanes",
    "open_nests",
    "pad",
    "parallelize",
    "parallelize_parts",
    "partition",
    "persist",
    "pipeline",
    "prefetch",
    "rasterize",
    "read_words",
    "reorder",
    "set_apart",
    "set_kind",
    "share_loops",
    "shrink",
    "slice_reduction",
    "specialize_warps",
    "split_dim",
    "spread",
    "stage",
    "stage_result",
    "start_products",
    "stream_k",
    "stream_stores",
    "tensorize",
    "tile",
    "tile_and_fuse",
    "trim",
    "trim_dims",
    "unroll",
    "unroll_known",
    "unroll_lengths",
    "widen_reduction",
    "work_together",
]
