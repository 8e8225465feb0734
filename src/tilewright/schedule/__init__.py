"""Transforms on kernels: from the naive form to the fast one.

In reading order: `queries` (questions about kernels), `records` (what a transform is, and its
record), the transforms by what they change: `dims`, `loops`, `operands`, `staging`, `reductions`,
`pipelines`; `groups` (cutting a kernel of several computes), `outline` (what stands in loops as a
kernel of its own), `fusion` (several kernels as one), and
`schedule` (the `KernelSchedule`, which has every transform as a method and records its use).
"""

from tilewright.schedule.dims.fuse_dims import fuse_dims
from tilewright.schedule.dims.pad import pad
from tilewright.schedule.dims.split_dim import split_dim
from tilewright.schedule.dims.unit_dims import drop_unit_dims
from tilewright.schedule.groups import as_contraction
from tilewright.schedule.loops.compute_at import compute_at
from tilewright.schedule.loops.enclose import enclose
from tilewright.schedule.loops.fuse_nests import fuse_nests
from tilewright.schedule.loops.guard import guard
from tilewright.schedule.loops.kinds import set_kind
from tilewright.schedule.loops.lower import lower_computes, open_nests
from tilewright.schedule.loops.merge_loops import merge_loops
from tilewright.schedule.loops.narrow import narrow
from tilewright.schedule.loops.order_workgroups import order_workgroups
from tilewright.schedule.loops.parallelize_parts import parallelize_parts
from tilewright.schedule.loops.partition import name_apart, partition
from tilewright.schedule.loops.reorder import reorder
from tilewright.schedule.loops.tile import tile
from tilewright.schedule.loops.trim import trim
from tilewright.schedule.loops.unroll_known import unroll_known
from tilewright.schedule.loops.unroll_lengths import unroll_lengths
from tilewright.schedule.loops.work_together import work_together
from tilewright.schedule.operands.fragments import hold, on_lanes
from tilewright.schedule.operands.inline import inline
from tilewright.schedule.operands.name_operands import name_operands
from tilewright.schedule.operands.precompute import precompute
from tilewright.schedule.operands.tensorize import tensorize
from tilewright.schedule.pipelines.multicast import multicast
from tilewright.schedule.pipelines.pipeline import Fill, pipeline
from tilewright.schedule.pipelines.specialize_warps import specialize_warps
from tilewright.schedule.records.transform import TRANSFORMS
from tilewright.schedule.reductions.carry import carry
from tilewright.schedule.reductions.compare_bits import compare_bits
from tilewright.schedule.reductions.divide_late import divide_late
from tilewright.schedule.reductions.divide_scan import divide_scan
from tilewright.schedule.reductions.factor_out import factor_out
from tilewright.schedule.reductions.in_parts import in_parts
from tilewright.schedule.reductions.online import online
from tilewright.schedule.reductions.rfactor import rfactor
from tilewright.schedule.reductions.stream_k import stream_k
from tilewright.schedule.schedule import KernelSchedule
from tilewright.schedule.staging.copiers import CopyUnit, Threads
from tilewright.schedule.staging.fill_once import fill_once
from tilewright.schedule.staging.hoist import hoist_pack
from tilewright.schedule.staging.lay_out import lay_out
from tilewright.schedule.staging.prefetch import prefetch
from tilewright.schedule.staging.read_words import read_words
from tilewright.schedule.staging.stage import stage
from tilewright.schedule.staging.stage_result import stage_result
from tilewright.schedule.staging.store_non_temporally import store_non_temporally

__all__ = [
    "TRANSFORMS",
    "CopyUnit",
    "Fill",
    "KernelSchedule",
    "Threads",
    "as_contraction",
    "carry",
    "compare_bits",
    "compute_at",
    "divide_late",
    "divide_scan",
    "drop_unit_dims",
    "enclose",
    "factor_out",
    "fill_once",
    "fuse_dims",
    "fuse_nests",
    "guard",
    "hoist_pack",
    "hold",
    "in_parts",
    "inline",
    "lay_out",
    "lower_computes",
    "merge_loops",
    "multicast",
    "name_apart",
    "name_operands",
    "narrow",
    "on_lanes",
    "online",
    "open_nests",
    "order_workgroups",
    "pad",
    "parallelize_parts",
    "partition",
    "pipeline",
    "precompute",
    "prefetch",
    "read_words",
    "reorder",
    "rfactor",
    "set_kind",
    "specialize_warps",
    "split_dim",
    "stage",
    "stage_result",
    "store_non_temporally",
    "stream_k",
    "tensorize",
    "tile",
    "trim",
    "unroll_known",
    "unroll_lengths",
    "work_together",
]
