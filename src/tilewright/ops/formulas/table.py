"""The formulas of records: those of all others are texts (`Record.body`)."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ops.formulas import images, moves, norms, recurrent, rows
from tilewright.ops.formulas.call import Formula
from tilewright.problems import Record, library

FORMULAS: Mapping[type[Record], Formula] = {
    library.ArgProblem: rows.arg,
    library.BatchNormProblem: norms.normalization,
    library.ConcatProblem: moves.concat,
    library.DeconvProblem: images.deconvolution,
    library.GroupNormProblem: norms.normalization,
    library.LayerNormProblem: norms.normalization,
    library.LogSumExpProblem: rows.log_sum_exp,
    library.MaxPoolProblem: images.max_pool,
    library.MomentsProblem: rows.moments,
    library.PadProblem: moves.pad,
    library.PixelsProblem: moves.pixels,
    library.PreluProblem: images.prelu,
    library.RecurrentProblem: recurrent.layers,
    library.ScanProblem: rows.scan,
    library.ShuffleProblem: moves.shuffle,
    library.SliceProblem: moves.slice_,
    library.SoftmaxProblem: rows.softmax,
    library.TileProblem: moves.tile,
    library.TransposeProblem: moves.transpose,
}
