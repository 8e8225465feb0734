"""Recipes: how to schedule a class of kernel on a class of machine.

In reading order: `start` (what a schedule starts from), `roles` (which dims are M, N, K and batch),
`config` (what can be chosen) and `parts` (what configs of workgroups are made of), `scheduled` (a
kernel with its stages), `choose` (which recipe a kernel takes).

Configs of users: `given` (changes of the default, other batches), `legal` (what may be chosen).

Convolution and matmul on a CPU: `reshaping` (dims fused and split), `choices` (configs in the order
in which they are tried), `model` (what makes the first choice), `slicing` (long reductions in
parts), `turned_results` (what is stored across the lanes), `unit_sums` (of a matrix unit),
`contraction` (the schedule).
In workgroups: `workgroup_model` and `banks` (the first choice), `matrix_model` (tiles of
subgroups), `workgroup_candidates` (what is chosen from), `workgroup_cost` (what each is predicted
to take), `registers` (how many work-items need), `phases` (pixels that take the same taps),
`mapping` (tiles and slices for workgroups and their work-items), `workgroups` (the schedule).
Everything else on a CPU: `elementwise`, with `reordering` (transposes), `squares` (the order in
which these go) and `reducing` (sums across lanes), `functions` (vectors of several registers),
`moving` (what only moves elements); `streaming` (results past the caches). Kernels that place their
work themselves: `plain`, `joint` and `joint_tiles` (products that work-items do together).
"""
