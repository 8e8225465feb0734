"""OpenCL devices that take SPIR-V.

In reading order: `lower` (kernel -> LLVM IR: launches of workgroups), `assemble` (LLVM IR ->
SPIR-V), `device` (which devices are here), `building` (SPIR-V -> a device's code), `driver` (that
-> kernels on a device), `memory` (how they get at arrays), `target`.
"""
