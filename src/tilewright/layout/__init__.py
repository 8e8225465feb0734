"""Layouts by tags and strides, roles of dims, and matrices as matrix units take them.

In reading order: `tags` (a layout from oneDNN's format tags), `strides` (layouts from explicit
strides; overlap), `roles` (which dims of an op are batch, M, N and K), `fragments` (matrices in the
registers of a subgroup), `rows` (matrices in workgroup memory, in swizzled rows).
"""
