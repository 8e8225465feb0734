"""NVIDIA GPUs, by CUDA's driver.

In reading order: `lower` (kernel -> LLVM IR: launches of workgroups), `copies` (those that run
asynchronously), `assemble` (LLVM IR -> PTX -> cubin), `ptxas` (the program that does the latter),
`device` (which GPU is here), `driver` (the binary -> kernels on it), `target`.
"""
