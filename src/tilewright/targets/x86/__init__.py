"""x86-64 CPUs.

In reading order: `assemble` (LLVM IR -> object code), `driver` (object code -> functions in this
process), `pool` and `pool_code` (the threads that run them), `program` (a kernel to call), `header`
(its declaration in C), `standalone_entries`, `standalone_code`, `objects` and `standalone` (a
program of several kernels as a static library), `device` (the features of this machine), `target`.
"""
