"""Transforms of loops.

In reading order: `tile`, `reorder`, `merge_loops`, `compute_at` (other computes at the tiles of
one, also over a hierarchy of workgroups and lanes; `tiled_chains` finds its producers,
`tiled_sequences` is told their dims), `order_workgroups` (bands of tiles, several in turns),
`enclose` (one iteration around), `kinds` (unrolled, parallel, vector loops, on work-items) and
`parallelize_parts` (over threads), `work_together` (over the lanes of a workgroup), `fuse_nests`
(two nests of workgroups as one).

Tails: `partition`, `name_apart` (of its pieces), `trim` and `guard` (bounds and tests instead of
masks), `narrow` (no points of tiles that masks leave out), `unroll_known`, `unroll_lengths`.

Lowering: `points` and `lower` (computes become loops of scalars and vectors), `open_nests` (opaque
nests).
"""
