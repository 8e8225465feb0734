"""NVIDIA GPUs, by CUDA's driver.

In reading order: `lower` (kernel -> LLVM IR: launches of workgroups), `copies` (those that run
asynchronously), `assemble` (LLVM IR -> PTX -> cubin), `ptxas` (the program that does the latter),
`device` (which GPU is here), `memory` (memory and order on it), `tensor_maps` and `launch` (what a
launch takes, and how it starts), `driver` (the binary -> kernels on it), `target`.
"""
