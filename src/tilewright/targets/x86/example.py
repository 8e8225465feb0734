"""A C program that calls an exported kernel, as a starting point."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from tilewright.dtypes import DType, f32, f64
from tilewright.targets.calling import Calling, bits_of
from tilewright.targets.program import Abi, Parameter, Scalar

_PROGRAM = """/* Calls {entry} on ones in arrays of floats, and zeros in others,
   and prints the first elements of its results as they lie in memory. In C99, compile and run it:

   cc {entry}_example.c {objects} -lm -o {entry}_example
   ./{entry}_example
*/
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

{includes}

static void *taken[{takes}];
static int count;

/* Zeroed memory at a multiple of 64, which every argument takes. */
static void *take(size_t bytes) {{
  unsigned char *memory = calloc(bytes + 63, 1);
  if (memory == NULL) exit(1);
  taken[count++] = memory;
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
{results}
  while (count > 0) free(taken[--count]);
  return 0;
}}
"""

# Optional functions of the program, by the beginning of their calls.
_HELPERS = {
    "put(": """
/* The bits of a number, in the first bytes of its slot. */
static void put(void **slot, unsigned long long bits) { memcpy(slot, &bits, sizeof bits); }
""",
    "contents(": """
/* An array with the contents of a file. */
static void *contents(const char *name, size_t bytes) {
  void *memory = take(bytes);
  FILE *file = fopen(name, "rb");
  if (file == NULL || fread(memory, 1, bytes, file) != bytes) exit(1);
  fclose(file);
  return memory;
}
""",
    "filled(": """
/* An array of elements of `size` bytes that all have these bits. */
static void *filled(size_t bytes, unsigned long long bits, size_t size) {
  unsigned char *memory = take(bytes);
  size_t place;
  for (place = 0; place + size <= bytes; place += size) memcpy(memory + place, &bits, size);
  return memory;
}
""",
}

# Number of elements of a result that are printed.
_PRINTED = 4


def example(abi: Abi, packs: Mapping[str, Abi], constants: Mapping[str, str]) -> str:
    """A program in C99 that calls the kernel with the least numbers that it takes, and prints its
    results.

    ``packs`` are the kernels that pack arguments, by the arguments' names; ``constants`` the files
    with the contents of arguments.
    """
    numbers = [_least(p) if isinstance(p, Scalar) else 0 for p in abi.parameters]
    places: dict[str, str] = {}
    packed = {array.name for pack in packs.values() for array in pack.arrays[1:]}
    lines = _arguments("args", abi, numbers, places, constants, packed)
    for number, (name, pack) in enumerate(packs.items()):
        slots = f"pack{number}"
        lines += ["  {", f"    void *{slots}[{_slots(pack)}]; /* packs {name}, once */"]
        inner = _arguments(slots, pack, [0] * len(pack.parameters), dict(places), {})
        lines += ["  " + line for line in inner]
        lines += [f"    {pack.entry}({slots}, NULL, NULL, 1);", "  }"]
    entries = [abi.entry, *(pack.entry for pack in packs.values())]
    body = "\n".join(lines)
    return _PROGRAM.format(
        entry=abi.entry,
        objects=" ".join(f"{entry}.o" for entry in entries),
        includes="\n".join(f'#include "{entry}.h"' for entry in entries),
        takes=max(sum(map(body.count, ("= take(", "= contents(", "= filled("))), 1),
        helpers="".join(text for use, text in _HELPERS.items() if use in body),
        slots=_slots(abi),
        body=body,
        results="\n".join(_results(abi, numbers)),
    )


def _slots(abi: Abi) -> int:
    return max(len(abi.parameters) + len(abi.workspaces), 1)


def _arguments(
    slots: str,
    abi: Abi,
    numbers: Sequence[int],
    places: dict[str, str],
    constants: Mapping[str, str],
    packed: Collection[str] = (),
) -> list[str]:
    """The statements that fill ``slots``, an array of that name. ``places`` are the arrays that
    exist already, to which those of this call are added; ``packed`` arrays stay zero."""
    calling = Calling(abi)
    values = calling.values(numbers)
    sizes = iter(calling.array_bytes(values))
    lines = []
    for slot, (parameter, number) in enumerate(zip(abi.parameters, numbers, strict=True)):
        place = f"{slots}[{slot}]"
        if isinstance(parameter, Parameter):
            size = next(sizes)
            value = f"take({size})" if parameter.name in packed else _array(parameter, size)
            if parameter.name in constants:
                value = f'contents("{constants[parameter.name]}", {size})'
            lines.append(f"  {place} = {places.get(parameter.name, value)}; /* {parameter} */")
            places[parameter.name] = place
        else:
            bits = bits_of(parameter.dtype, number).number
            lines.append(f"  put(&{place}, {bits:#x}); /* {parameter} = {number} */")
    for slot, size in enumerate(calling.workspace_bytes(values), start=len(abi.parameters)):
        lines.append(f"  {slots}[{slot}] = take({size}); /* workspace */")
    return lines


def _array(array: Parameter, size: int) -> str:
    """The expression of an array: of ones if it holds floats, which are no indices. Padded arrays
    stay zero, as padding has to be."""
    sizes = [extent for extent in array.shape if isinstance(extent, int)]
    padded = len(sizes) == len(array.shape) and math.prod(sizes) * array.dtype.bytes != size
    if array.access == "out" or not array.dtype.is_float or padded:
        return f"take({size})"
    one = bits_of(array.dtype, 1)
    return f"filled({size}, {one.number:#x}, {one.bytes})"


def _results(abi: Abi, numbers: Sequence[int]) -> Iterator[str]:
    """The statements that print results."""
    calling = Calling(abi)
    sizes = iter(calling.array_bytes(calling.values(numbers)))
    for slot, parameter in enumerate(abi.parameters):
        if not isinstance(parameter, Parameter):
            continue
        count = min(next(sizes) // parameter.dtype.bytes, _PRINTED)
        if parameter.access == "in":
            continue
        form, passed, stored, note = printed(parameter.dtype)
        values = [f", ({passed})(({stored} *)args[{slot}])[{place}]" for place in range(count)]
        yield f'  printf("{parameter.name}{note}:{f" {form}" * count}\\n"{"".join(values)});'


def printed(type_: DType) -> tuple[str, str, str, str]:
    """How C prints an element: the format, its type, the type in memory, and a note in front."""
    if type_ in (f32, f64):
        return "%g", "double", "float" if type_ is f32 else "double", ""
    bits = 8 * type_.bytes
    if type_.kind == "int":
        return "%lld", "long long", f"int{bits}_t", ""
    if type_.is_float:
        return "%#llx", "unsigned long long", f"uint{bits}_t", f" (bits of {type_})"
    return "%llu", "unsigned long long", f"uint{bits}_t", ""


def _least(scalar: Scalar) -> int:
    """The least number above 0 that a call may pass, else the greatest below."""
    low = 1 if scalar.low is None else max(scalar.low, 1)
    least = -(-low // scalar.divisor) * scalar.divisor
    if scalar.high is not None and least > scalar.high:
        return scalar.high // scalar.divisor * scalar.divisor
    return least
