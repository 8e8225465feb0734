"""Questions about kernels that transforms and recipes ask. Nothing here changes a kernel.

In reading order: `refusal` (the error of the transform that runs), `place` (where a statement
stands, and finding it), `access` (what it touches), `dependence` (whether iterations meet in
memory), `flow`, `contractions`, `prologues`, `shared_dims`, `crossed`, `chained` and `cutting`
(what a kernel is made of, by data flow), `runs` (strides and contiguous dims), `merged_dims` and
`digits` (index arithmetic of fused dims), `identity` (of a combiner), `storage` (layouts of
buffers that a transform adds), `usual` (sizes that a call passes).
"""
