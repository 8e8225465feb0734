"""Transforms on kernels: from the naive form to the fast one.

In reading order: `place` (where a statement stands, and finding it), `access` (what it touches),
`transform` (what makes a function a transform); then the transforms, one family a file: `tile`,
`reorder`, `fuse` (tile-and-fuse), `collapse` (fusing dims), `split` (its inverse), `unit` (dims of
extent 1), `promote` and `result` (copies in better places), `hoist` (packing apart), `pad`,
`partition`, `trim` and `guard` (loop bounds and tests instead of masks), `kinds` (how loops run),
`widen` (partial results in lanes), `tensorize`, `loops` (lowering to loops). `storage`, `identity`
and `dependence` hold what several of them need; `trace` has the `Schedule`, which records them.
"""

from tilewright.schedule.collapse import fuse_dims
from tilewright.schedule.fuse import tile_and_fuse
from tilewright.schedule.guard import guard
from tilewright.schedule.hoist import hoist_pack
from tilewright.schedule.kinds import parallelize, set_kind, unroll
from tilewright.schedule.loops import lower_computes
from tilewright.schedule.pad import pad
from tilewright.schedule.partition import partition
from tilewright.schedule.promote import promote
from tilewright.schedule.reorder import reorder
from tilewright.schedule.result import promote_result
from tilewright.schedule.split import split_dim
from tilewright.schedule.tensorize import tensorize
from tilewright.schedule.tile import tile
from tilewright.schedule.trace import Schedule, Stage, Step
from tilewright.schedule.transform import TRANSFORMS
from tilewright.schedule.trim import trim
from tilewright.schedule.unit import drop_unit_dims
from tilewright.schedule.widen import widen_reduction

__all__ = [
    "TRANSFORMS",
    "Schedule",
    "Stage",
    "Step",
    "drop_unit_dims",
    "fuse_dims",
    "guard",
    "hoist_pack",
    "lower_computes",
    "pad",
    "parallelize",
    "partition",
    "promote",
    "promote_result",
    "reorder",
    "set_kind",
    "split_dim",
    "tensorize",
    "tile",
    "tile_and_fuse",
    "trim",
    "unroll",
    "widen_reduction",
]
