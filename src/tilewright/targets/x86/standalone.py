"""A program of several kernels as a static library with a C header, and a program that calls it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.dtypes import DType, bf16, f16, f32, f64
from tilewright.targets.c_names import unique_names
from tilewright.targets.calling import bits_of
from tilewright.targets.standalone import Standalone, StandaloneArgument, StandaloneFunction
from tilewright.targets.x86.assemble import assemble
from tilewright.targets.x86.example import printed
from tilewright.targets.x86.objects import library, renamed
from tilewright.targets.x86.standalone_code import module_text
from tilewright.targets.x86.standalone_entries import ERRORS, kernel_symbol

_HEADER = """/* {name}: made by Tilewright for {target}.
   Runs on {made_for}, with Linux. Link with -lm, and with -lpthread before glibc 2.34. */
#ifndef {guard}
#define {guard}
#include <stdint.h>
#ifdef __cplusplus
extern "C" {{
#endif

/* What functions return. */
enum {{
{errors}
}};

#ifndef TILEWRIGHT_TYPES
#define TILEWRIGHT_TYPES
typedef void (*tw_phase)(void **args, long long thread, long long threads);
typedef void (*tw_parallel)(void *pool, tw_phase phase, void **args, long long threads);
#endif

/* The constants, and a pool of threads. */
struct {name};

/* Opens the program: maps the file of constants ({constants}), and takes `threads` threads, the
   caller's among them, for every call. Results do not depend on how many. */
int {name}_open(struct {name} **program, const char *constants, int64_t threads);

/* Ends its threads, and frees all. No call may run. Null is fine. */
void {name}_close(struct {name} *program);

/* From now on, calls run on the caller's threads: parallel(pool, phase, args, threads) must call
   phase(args, t, threads) for t = 0 .. threads-1, in any order or at once, and return when all are
   done. */
void {name}_use_pool(struct {name} *program, tw_parallel parallel, void *pool);
{functions}
#ifdef __cplusplus
}}
#endif
#endif
"""

_FUNCTION = """
/* {title}. Each pointer is aligned to its element; what is written overlaps nothing else. */
struct {name}_arguments {{
{fields}
}};
#define {upper}_ARENA {arena} /* bytes of memory between the kernels, at a multiple of 64 */
/* `arena`: such memory, which one call at a time uses, or null: the call allocates it. Several
   threads may call at once; one of them has the pool. */
int {name}(struct {program} *program, const struct {name}_arguments *arguments, void *arena);
"""

_PROGRAM = """/* Calls what {name}.h declares, on ones in arrays of floats and zeros in others,
   and prints the first elements of the results. In C99, compile and run it:

   cc {name}_example.c {name}.a -lm -lpthread -o {name}_example
   ./{name}_example [THREADS [CONSTANTS]]
*/
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "{name}.h"

static void *taken[{takes}];
static int count;

/* Zeroed memory at a multiple of 64. */
static void *take(size_t bytes) {{
  unsigned char *memory = calloc(bytes + 63, 1);
  if (memory == NULL) exit(1);
  taken[count++] = memory;
  return memory + (64 - (uintptr_t)memory % 64) % 64;
}}
{filled}
static void check(int error, const char *what) {{
  if (error == {upper}_OK) return;
  fprintf(stderr, "%s: error %d\\n", what, error);
  exit(1);
}}

int main(int argc, char **argv) {{
  struct {name} *program;
  const char *constants = argc > 2 ? argv[2] : "{constants}";
  int threads = argc > 1 ? atoi(argv[1]) : {threads};
  check({name}_open(&program, constants, threads), "{name}_open");
{body}  {name}_close(program);
  while (count > 0) free(taken[--count]);
  return 0;
}}
"""

_FILLED = """
/* An array of elements of `size` bytes that all have these bits. */
static void *filled(size_t bytes, unsigned long long bits, size_t size) {
  unsigned char *memory = take(bytes);
  size_t place;
  for (place = 0; place + size <= bytes; place += size) memcpy(memory + place, &bits, size);
  return memory;
}
"""
_PRINTED = 4

_C_TYPES = {f32: "float", f64: "double", f16: "uint16_t", bf16: "uint16_t"}


def standalone_files(
    standalone: Standalone,
    target: str,
    made_for: str,
    tiles: bool,
) -> dict[str, bytes]:
    """The library, its header, a program that calls it, and how it is called in words; with
    ``tiles``, kernels use AMX."""
    name = standalone.name
    members: dict[str, tuple[bytes, Sequence[str]]] = {}
    for number, (code, abi) in enumerate(standalone.kernels):
        symbol = kernel_symbol(name, number)
        members[f"{symbol}.o"] = renamed(code, abi.entry, symbol), (symbol,)
    functions = [function.name for function in standalone.functions]
    symbols = [f"{name}_{verb}" for verb in ("open", "close", "use_pool")]
    module = assemble(module_text(standalone, tiles), cpu="x86-64", opt=0)
    members[f"{name}.o"] = module, (*symbols, *functions)
    return {
        f"{name}.a": library(members),
        f"{name}.h": _header(standalone, target, made_for).encode(),
        f"{name}_example.c": _example(standalone).encode(),
        f"{name}.md": _words(standalone, target, made_for).encode(),
    }


def _header(standalone: Standalone, target: str, made_for: str) -> str:
    name, constants = standalone.name, standalone.constants
    prefix = name.upper()
    errors = [f"  {prefix}_{error} = {n}, /* {text} */" for n, (error, text) in enumerate(ERRORS)]
    errors[-1] = errors[-1].replace(",", "", 1)
    file = "there are none, so null will do" if constants is None else f"`{constants.name}`"
    return _HEADER.format(
        name=name,
        target=target,
        made_for=made_for,
        guard=f"TILEWRIGHT_{prefix}_H",
        errors="\n".join(errors),
        constants=file,
        functions="".join(_declared(standalone, function) for function in standalone.functions),
    )


def _declared(standalone: Standalone, function: StandaloneFunction) -> str:
    fields = []
    for argument, field in zip(function.arguments, field_names(function.arguments), strict=True):
        const = "const " if argument.access == "in" else ""
        fields.append(
            f"  {const}{_c_type(argument.dtype)} *{field}; /* {argument.access} {argument}, "
            f"{argument.bytes} bytes */"
        )
    return _FUNCTION.format(
        title=function.title.replace("*/", "* /"),
        name=function.name,
        upper=function.name.upper(),
        program=standalone.name,
        fields="\n".join(fields) or "  void *none; /* takes nothing */",
        arena=function.plan.arena,
    )


def field_names(arguments: Sequence[StandaloneArgument]) -> list[str]:
    """What C calls the arguments."""
    return unique_names(argument.name for argument in arguments)


def _c_type(type_: DType) -> str:
    if type_ in _C_TYPES:
        return _C_TYPES[type_]
    return f"{'' if type_.kind == 'int' else 'u'}int{8 * type_.bytes}_t"


def _example(standalone: Standalone) -> str:
    body = "\n".join(line for function in standalone.functions for line in _called(function))
    constants = standalone.constants
    takes = sum(map(body.count, ("= take(", "= filled(")))
    return _PROGRAM.format(
        name=standalone.name,
        upper=standalone.name.upper(),
        takes=max(takes, 1),
        filled=_FILLED if "= filled(" in body else "",
        constants="" if constants is None else constants.name,
        threads=standalone.threads,
        body=f"{body}\n" if body else "",
    )


def _called(function: StandaloneFunction) -> Iterator[str]:
    """The call of one function, in a block of its own."""
    name = function.name
    yield "  {"
    yield f"    struct {name}_arguments arguments;"
    yield f"    void *arena = take({name.upper()}_ARENA);"
    fields = field_names(function.arguments)
    for argument, field in zip(function.arguments, fields, strict=True):
        value = f"take({argument.bytes})"
        if argument.access != "out" and argument.dtype.is_float:
            one = bits_of(argument.dtype, 1)
            value = f"filled({argument.bytes}, {one.number:#x}, {one.bytes})"
        yield f"    arguments.{field} = {value};"
    yield f'    check({name}(program, &arguments, arena), "{name}");'
    for argument, field in zip(function.arguments, fields, strict=True):
        if argument.access == "in":
            continue
        number = min(argument.bytes // argument.dtype.bytes, _PRINTED)
        form, passed, stored, note = printed(argument.dtype)
        values = [f", ({passed})(({stored} *)arguments.{field})[{n}]" for n in range(number)]
        yield (
            f'    printf("{name} {argument.name}{note}:{f" {form}" * number}\\n"{"".join(values)});'
        )
    yield "  }"


def _words(standalone: Standalone, target: str, made_for: str) -> str:
    """What ``NAME.md`` says."""
    name, constants = standalone.name, standalone.constants
    lines = [
        f"# {name}",
        "",
        f"Runs on {made_for}, with Linux. Target: {target}.",
        "",
        f"`{name}.a` has the functions that `{name}.h` declares: `{name}_open` and "
        f"`{name}_close`, and one for each graph, which takes the program, a struct of pointers in "
        "the order of the table, and memory for what lies between its kernels "
        f"({name.upper()}_..._ARENA bytes at a multiple of 64, or null). Every function but "
        "`close` and `use_pool` returns a number:",
        "",
        *(
            f"- {number}, `{name.upper()}_{error}`: {text}"
            for number, (error, text) in enumerate(ERRORS)
        ),
        "",
    ]
    if constants is not None:
        lines += [
            f"`{constants.name}` ({constants.size} bytes) are the constants, as the kernels read "
            "them. `open` maps it: processes share it, and what is not used is not loaded.",
            "",
        ]
    for function in standalone.functions:
        lines += [f"## {function.name}", "", f"{function.title}. Arena: {function.plan.arena}."]
        lines += ["", "| argument | access | type | shape | strides (elements) | bytes |"]
        lines += ["| --- | --- | --- | --- | --- | --- |"]
        for argument, field in zip(
            function.arguments, field_names(function.arguments), strict=True
        ):
            lines.append(
                f"| `{field}` | {argument.access} | {argument.dtype} "
                f"| {argument.shape} | {argument.strides} | {argument.bytes} |"
            )
        lines.append("")
    lines.append(f"`{name}_example.c` calls all; its first lines say how to compile it.")
    return "\n".join(lines) + "\n"
