"""The C header of an exported kernel."""

from __future__ import annotations

from tilewright.targets.program import Abi, Parameter, Scalar

_HEADER = """/* {title}: made by Tilewright for {target}.
   Runs on {made_for}. */
#ifndef {guard}
#define {guard}
#ifdef __cplusplus
extern "C" {{
#endif

/* args: {arguments}{workspaces}.
{shapes}
   parallel(pool, phase, args, threads) must call phase(args, t, threads) for t = 0 .. threads-1,
   in any order or at once, and return when all are done. With threads = 1 it is not called, and
   parallel and pool may be null. */
#ifndef TILEWRIGHT_TYPES
#define TILEWRIGHT_TYPES
typedef void (*tw_phase)(void **args, long long thread, long long threads);
typedef void (*tw_parallel)(void *pool, tw_phase phase, void **args, long long threads);
#endif
void {entry}(void **args, tw_parallel parallel, void *pool, long long threads);

#ifdef __cplusplus
}}
#endif
#endif
"""


def described(abi: Abi) -> str:
    """The contents of the arguments' slots, in words."""
    if not abi.scalars:
        return "pointers to " + ", ".join(parameter.name for parameter in abi.parameters)
    slots = [
        f"the bits of {p.name} ({p.dtype}; the slot's first {p.dtype.bytes})"
        if isinstance(p, Scalar)
        else f"a pointer to {p}"
        for p in abi.parameters
    ]
    return "slots of 8 bytes: " + ", ".join(slots)


def header(abi: Abi, title: str, target: str, made_for: str) -> str:
    """The header that declares the kernel's entry point."""
    spaces = ", ".join(map(str, abi.workspaces))
    shapes = [
        f"   args[{slot}] {parameter.access} {parameter}, {parameter.bytes} bytes"
        for slot, parameter in enumerate(abi.parameters)
        if isinstance(parameter, Parameter)
    ]
    return _HEADER.format(
        title=title.replace("*/", "* /"),
        target=target,
        made_for=made_for,
        shapes="\n".join(shapes),
        guard=f"TILEWRIGHT_{abi.entry.upper()}_H",
        arguments=described(abi),
        workspaces=f", then workspaces of {spaces} bytes" if spaces else "",
        entry=abi.entry,
    )
