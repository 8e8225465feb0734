"""A C program that calls an exported kernel: what its documentation shows, to begin from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tilewright.targets.calling import Calling, bits_of
from tilewright.targets.program import Abi, Parameter, Scalar

_PROGRAM = """#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

{includes}

/* Zeroed memory at a multiple of 64, which every argument takes. */
static void *take(size_t bytes) {{
  unsigned char *memory = calloc(bytes + 63, 1);
  if (memory == NULL) exit(1);
  return memory + (64 - (uintptr_t)memory % 64) % 64;
}}
{helpers}
/* A stand-in for a pool of threads; with OpenMP, `#pragma omp parallel for` before the loop. */
static void parallel(void *pool, tw_phase phase, void **args, long long threads) {{
  long long thread;
  (void)pool;
  for (thread = 0; thread < threads; thread++) phase(args, thread, threads);
}}

int main(void) {{
  void *args[{slots}];
{body}
  {entry}(args, parallel, NULL, 2); /* or, on one thread: (args, NULL, NULL, 1) */
  return 0;
}}
"""

_PUT = """
/* The bits of a number, in the first bytes of its slot. */
static void put(void **slot, unsigned long long bits) { memcpy(slot, &bits, sizeof bits); }
"""

_READ = """
/* An array with the contents of a file. */
static void *contents(const char *name, size_t bytes) {
  void *memory = take(bytes);
  FILE *file = fopen(name, "rb");
  if (file == NULL || fread(memory, 1, bytes, file) != bytes) exit(1);
  fclose(file);
  return memory;
}
"""


def example(abi: Abi, packs: Mapping[str, Abi], constants: Collection[str]) -> str:
    """A program, in C99, that calls the kernel on zeros, with the least numbers that it takes.

    ``packs`` are the kernels that pack arguments, by their names; ``constants`` those whose
    contents are in files.
    """
    numbers = [_least(each) if isinstance(each, Scalar) else 0 for each in abi.parameters]
    places: dict[str, str] = {}
    lines = list(_arguments("args", abi, numbers, places, constants))
    for number, (name, pack) in enumerate(packs.items()):
        slots = f"pack{number}"
        lines += ["  {", f"    void *{slots}[{_slots(pack)}]; /* once: fill {name} before */"]
        inner = _arguments(slots, pack, [0] * len(pack.parameters), dict(places), ())
        lines += ["  " + line for line in inner]
        lines += [f"    {pack.entry}({slots}, NULL, NULL, 1);", "  }"]
    entries = [abi.entry, *(each.entry for each in packs.values())]
    put = _PUT if abi.scalars else ""
    read = _READ if any(each.name in constants for each in abi.arrays) else ""
    return _PROGRAM.format(
        includes="\n".join(f'#include "{each}.h"' for each in entries),
        helpers=put + read,
        slots=_slots(abi),
        body="\n".join(lines),
        entry=abi.entry,
    )


def _slots(abi: Abi) -> int:
    return max(len(abi.parameters) + len(abi.workspaces), 1)


def _arguments(
    slots: str,
    abi: Abi,
    numbers: Sequence[int],
    places: dict[str, str],
    constants: Collection[str],
) -> list[str]:
    """The statements that fill ``slots``, an array of that name. ``places`` are arrays that are
    there already, where others find those of this call."""
    calling = Calling(abi)
    values = calling.values(numbers)
    sizes = iter(calling.array_bytes(values))
    lines = []
    for slot, (each, number) in enumerate(zip(abi.parameters, numbers, strict=True)):
        place = f"{slots}[{slot}]"
        if isinstance(each, Parameter):
            size = next(sizes)
            value = places.get(each.name, f"take({size})")
            if each.name in constants:
                value = f'contents("{each.name}.bin", {size})'
            places[each.name] = place
            lines.append(f"  {place} = {value}; /* {each} */")
        else:
            bits = bits_of(each.dtype, number).number
            lines.append(f"  put(&{place}, {bits:#x}); /* {each} = {number} */")
    for slot, size in enumerate(calling.workspace_bytes(values), start=len(abi.parameters)):
        lines.append(f"  {slots}[{slot}] = take({size}); /* workspace */")
    return lines


def _least(scalar: Scalar) -> int:
    """The least number above 0 that a call may pass, or the greatest below."""
    low = 1 if scalar.low is None else max(scalar.low, 1)
    found = -(-low // scalar.divisor) * scalar.divisor
    if scalar.high is not None and found > scalar.high:
        return scalar.high // scalar.divisor * scalar.divisor
    return found
