"""OpenCL devices that take SPIR-V.

In reading order: `lower` (kernel -> LLVM IR: launches of workgroups), `assemble` (LLVM IR ->
SPIR-V), `emitter` (the process that LLVM does that in), `device` (which devices are here),
`driver` (SPIR-V -> kernels on a device), `memory` (how they get at arrays), `target`.
"""
