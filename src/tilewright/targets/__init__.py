"""Targets: from a lowered kernel to a program that a device runs.

`llvm` holds what all targets share (kernel -> LLVM IR text), `child_process` the processes for
compilers that may crash, `program` the interface of loaded programs, `standalone` programs for
callers without Python (`plan_files`: as JSON), `c_names` names in C; a folder per target holds
``lower`` (its intrinsics), ``assemble`` (LLVM IR -> binary) and ``driver`` (load, launch).
`interpreter` runs kernels by their definition. `registry` has the targets by name.
"""
