"""Recipes: how to schedule a class of kernel on a class of machine.

In reading order: `start` (what a schedule starts from), `roles` (which dims are M, N, K and batch),
`config` (what can be chosen) and `parts` (what configs of workgroups are made of), `recipe` (what a
recipe is), `choose` (those that ship, and which a kernel takes).

What users give: `given` (changes of the default, other batches), `users` (recipes, and records of
schedules); `legal` (what may be chosen).

Convolution and matmul on a CPU: `reshaping` (dims fused and split), `choices` (configs in the order
in which they are tried), `contraction_shape` (what the model sees), `model` (what makes the first
choice), `unit_model` (that of tiles of a matrix unit), `slicing` (long reductions in parts),
`unit_tiles` (of a matrix unit), `contraction` (the schedule).
In workgroups: `workgroup_model` (the first choice), `matrix_model` (tiles of subgroups),
`workgroup_candidates` (what is chosen from), `workgroup_cost` (what each is predicted to take),
`warpgroups` (matrices in shared memory, and registers of work-items), `mapping` (tiles and slices
for workgroups and their work-items), `workgroups` (the schedule).
Everything else on a CPU: `plain` (elementwise ops, and what no other recipe knows);
`transposed_tiles`; `reductions`, with `nests` (which computes share loops) and `reducing` (sums
across lanes); `copies`; `joint` (products that work-items do together); `chained` (products with a
normalization between them, and their gradients); `tiled` (products that make tiles for one
another). What ends the schedules of all: `lowering`.
Kernels in order as one kernel, before any schedule: `fusing`.
"""
