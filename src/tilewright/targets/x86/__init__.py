"""x86-64 CPUs.

In reading order: `lower` (kernel -> LLVM IR), `assemble` (LLVM IR -> object code), `driver`
(object code -> functions in this process), `host` (what this machine is).
"""
