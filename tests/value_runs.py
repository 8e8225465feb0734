"""Random kernels of all types with values at the limits of types (`random_values`): the interpreter
against a plain evaluation (`plain_runs`), and machine code against the interpreter.

As a program, ``python3 tests/value_runs.py --target x86 --count 2000 --seed 7`` prints
the seed of each kernel that differs, is refused, or crashes; kernels run in child processes, many
in each.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from plain_runs import plain_run
from random_values import edge_arrays, edge_numbers, random_value_kernel
from tilewright.engine.request import request_of
from tilewright.errors import TilewrightError
from tilewright.interpret import run, unpack
from tilewright.ir.arguments import Scalar
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.ir.symbols import scalar_constants, substitute_buffer
from tilewright.ir.verify import verify
from tilewright.passes import run as run_passes
from tilewright.recipes import choose
from tilewright.targets.program import Program, abi_of
from tilewright.targets.registry import find_target
from tilewright.targets.target import Target

Arrays = dict[str, Any]
_CALLS = 3
_THREADS = 2
# Kernels in one process; a crash ends only these.
_TOGETHER = 100


def fault_of(seed: int, target: Target | None) -> str | None:
    """The fault of the interpreter or of ``target`` (if any) on the random kernel of ``seed``; None
    if there is none."""
    rng = random.Random(seed)
    kernel = random_value_kernel(rng)
    try:
        verify(kernel)
        program = _program(kernel, target) if target is not None else None
        for count in range(_CALLS):
            numbers = edge_numbers(rng, kernel)
            difference = difference_at(kernel, program, numbers, seed + count)
            if difference is not None:
                return f"{difference}, for {numbers}"
    except TilewrightError as error:
        return str(error)
    return None


def _program(kernel: Kernel, target: Target) -> Program | None:
    """``kernel`` as a user gets it: scheduled by the recipe that is chosen for it."""
    _, scheduled = choose.choose(request_of(kernel).start(), target.machine)
    lowered = run_passes(scheduled.kernel)
    verify(lowered)
    module = target.lower(lowered)
    binary = target.assemble(module)
    return target.load(binary, abi_of(lowered, module)) if target.runs_here else None


def difference_at(
    kernel: Kernel, program: Program | None, numbers: Mapping[str, Scalar], seed: int
) -> str | None:
    """The first element where the interpreter differs from the plain evaluation, or ``program``
    from the interpreter; None if there is none."""
    memory = edge_arrays(kernel, numbers, seed)
    interpreted = {name: array.copy() for name, array in memory.items()}
    plain = _logical(kernel, numbers, memory)
    plain_run(kernel, numbers, plain)
    run(kernel, {**numbers, **interpreted})
    difference = _first(_logical(kernel, numbers, interpreted), plain)
    if difference is not None:
        return f"the interpreter: {difference}"
    if program is None:
        return None
    arguments: dict[str, Any] = dict(numbers)
    arguments.update((name, array.ctypes.data) for name, array in memory.items())
    program.run([arguments[p.name] for p in kernel.params], _THREADS)
    return _first(memory, interpreted)


def _logical(kernel: Kernel, numbers: Mapping[str, Scalar], memory: Arrays) -> Arrays:
    """Copies of arrays as tensors."""
    constants = scalar_constants(kernel, numbers)
    return {
        p.name: np.array(unpack(substitute_buffer(p.buffer, constants), memory[p.name]))
        for p in kernel.arrays
    }


def _first(got: Arrays, expected: Arrays) -> str | None:
    """The first element that differs in any bit; all NaN are equal."""
    for name, want in expected.items():
        a, b = (np.ascontiguousarray(array) for array in (got[name], want))
        codes = f"u{a.dtype.itemsize}"
        equal = a.view(codes) == b.view(codes)
        if a.dtype.kind not in "biu":
            with np.errstate(all="ignore"):
                wide = [array.astype(np.float64) for array in (a, b)]
            equal |= np.isnan(wide[0]) & np.isnan(wide[1])
        if not equal.all():
            place = tuple(map(int, np.argwhere(~equal)[0]))
            return f"{name}{list(place)} is {a[place]!r}, not {b[place]!r}"
    return None


def main(words: list[str] | None = None) -> int:
    """The sweep; 1 if a kernel is faulty."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="x86", help="'interpreter': no machine code")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first kernel")
    parser.add_argument("--show", action="store_true", help="print the kernel of the seed only")
    parser.add_argument("--here", action="store_true", help="in this process")
    options = parser.parse_args(words)
    if options.show:
        print(to_text(random_value_kernel(random.Random(options.seed))))
        return 0
    seeds = range(options.seed, options.seed + options.count)
    if options.here:
        return _here(seeds, options.target)
    parts = [seeds[at : at + _TOGETHER] for at in range(0, len(seeds), _TOGETHER)]
    wrong = sum(_in_processes(part, options.target) for part in parts)
    print(
        f"{options.count} kernels from seed {options.seed} on {options.target}: {wrong} are wrong"
    )
    return 1 if wrong else 0


def _here(seeds: range, name: str) -> int:
    target = None if name == "interpreter" else find_target(name)
    for seed in seeds:
        print(f"at {seed}", flush=True)
        fault = fault_of(seed, target)
        if fault is not None:
            print(f"seed {seed}: {fault}", flush=True)
    return 0


def _in_processes(seeds: range, target: str) -> int:
    """The number of faulty kernels, run in a child process, and in another one after each crash."""
    wrong = 0
    while seeds:
        words = ["--here", f"--target={target}", f"--seed={seeds[0]}", f"--count={len(seeds)}"]
        process = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True)
        lines = process.stdout.splitlines()
        faults = [line for line in lines if not line.startswith("at ")]
        last = [int(line.removeprefix("at ")) for line in lines if line.startswith("at ")]
        if faults:
            print("\n".join(faults), flush=True)
        wrong += sum(line.startswith("seed ") for line in faults)
        if process.returncode == 0:
            break
        if not last:
            raise SystemExit(
                f"no kernel ran: the process ended ({process.returncode}): {process.stderr}"
            )
        wrong += 1
        reason = process.stderr.strip().splitlines()[-1:] or [""]
        print(f"seed {last[-1]}: ends the process ({process.returncode}): {reason[0]}", flush=True)
        seeds = range(last[-1] + 1, seeds.stop)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
