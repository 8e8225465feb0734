"""NVIDIA GPUs, by CUDA's driver.

In reading order: `lower` (kernel -> LLVM IR: launches of workgroups) with `copies`, `tensors` and
`mbarriers` (asynchronous copies), `matrices`, `warpgroups` and `dots` (matrix instructions),
`assemble` (LLVM IR -> PTX -> cubin), `ptxas` (NVIDIA's assembler), `device` (the GPUs of this
machine), `memory` (memory and streams), `space` (memory of buffers), `tensor_maps` and `launch`
(arguments and starts of launches), `driver` (the binary -> kernels on the GPU), `linked` (several
kernels), `target`.
"""
