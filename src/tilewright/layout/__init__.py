"""Layouts: what a tag means, and how matrices lie where units take them.

In reading order: `tags` (a layout from oneDNN's format tags), `strides` (layouts from explicit
strides; overlap), `roles` (which dims of an op are batch, M, N and K), `fragments` (matrices in the
registers of a subgroup), `rows` (matrices in workgroup memory, for units that multiply them).
"""
