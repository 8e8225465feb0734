"""Machines, as data.

In reading order: `instruction` (what a machine instruction computes, and on which forms of memory),
`machine` (features, registers, memory levels), `vectors` (what all machines with vectors have),
`banks` (how long shared memory keeps work-items waiting), `matrices` (what the lanes of a subgroup
multiply together), `warpgroups` (what four such do, and copies of tiles), `matrix_stores` (how
either leaves its results), `rates` (how fast a device is at best), then one file per family: `x86`,
`spirv`, `nvidia` with `nvidia_rates`; `tensor_map` (what NVIDIA's copy unit is told).
"""
