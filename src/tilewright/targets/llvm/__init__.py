"""From a lowered kernel to LLVM IR text, shared by all targets.

In reading order: `types` (names of types and constants), `values`, `dialect` (how targets differ),
`writer` (the text of a function), `plan` (a kernel with every address resolved), `expressions` with
`indices` (of 32 bits), `casts` and `math`, `addresses` (pointers) with `lane_places` (which lanes
lie side by side), `memory` (loads and stores) with `masked` (where lanes may be off) and
`past_caches` (non-temporal stores) and `side_by_side` (neighbours across borders), `statements`
with `loops` and `branches`, `computes` (machine instructions), `calls` (functions with effects),
`nests` (numbered iterations), `functions` (one of them, whole), `host` (control on the host),
`phases` and `entry` (functions of a CPU), `launches` (functions of a device), `module` (their ABI),
`backend` (LLVM in this process), `emitter` and `emitter_client` (LLVM in a child process, and its
errors as ours).

The text is written directly rather than through ``llvmlite.ir``: building and printing its objects
takes about 25 us per instruction, which is more than LLVM takes to compile it.
"""
