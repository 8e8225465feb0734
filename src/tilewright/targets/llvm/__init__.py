"""From a lowered kernel to LLVM IR text, shared by all targets.

In reading order: `types` (names of types and constants), `dialect` (how targets differ), `writer`
(the text of a function), `plan` (a kernel with every address resolved), `expressions`, `indices`
(those of 32 bits), `casts`, `memory` (loads and stores), `masked` (those of which lanes are off),
`streams` (stores past the caches), `statements` (loops, branches), `computes` (machine
instructions), `calls` (functions with effects), `nests` (numbered iterations), `functions` (one of
them, whole), `module` (functions and ABI on a CPU), `launches` (those on a device), `backend` (LLVM
in this process), `emitter` and `emitting` (LLVM in one of its own), `refusal` (LLVM's errors as
ours).

The text is written directly rather than through ``llvmlite.ir``: building and printing its objects
takes about 25 us per instruction, which is more than LLVM takes to compile it.
"""
