"""OpenCL devices that take SPIR-V.

In reading order: `lower` (kernel -> LLVM IR: launches of workgroups), `assemble` (LLVM IR ->
SPIR-V), `device` (the devices of this machine), `building` (SPIR-V -> a device's code), `driver`
(that -> kernels on a device), `memory` (their access to arrays), `linked` (several kernels),
`target`.
"""
