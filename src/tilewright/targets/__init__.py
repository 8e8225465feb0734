"""Targets: from a lowered kernel to a program that a device runs.

`llvm` holds what all targets share (kernel -> LLVM IR text), `apart` the processes of compilers
that may end one, `program` what a driver makes and how it is called; a folder per target holds
``lower`` (its intrinsics), ``assemble`` (LLVM IR -> binary) and ``driver`` (load, launch).
`interpreter` runs kernels by their definition. `registry` has the targets by name.
"""
