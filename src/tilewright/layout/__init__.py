"""Layouts and views: what a tag means, and what can be asked of a layout.

In reading order: `tags` (a layout from oneDNN's format tags), `strides` (layouts from
explicit strides; overlap), `queries` (contiguity, alignment, padding), `roles` (which dims
of an op are batch, M, N and K), `fragments` (matrices in the registers of a subgroup), `rows`
(matrices in workgroup memory, for units that multiply them), `boxes` and `columns` (what a unit
copies by itself: boxes of tensors, and pixels as a tap meets them).
"""
