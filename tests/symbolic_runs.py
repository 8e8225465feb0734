"""Random kernels with symbolic sizes, each compiled once and run at several sizes, compared with
the interpreter.

As a program, ``python3 tests/symbolic_runs.py --target x86 --kernels 2000 --seed 7``
prints the seed of each kernel that differs.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from random_symbols import random_numbers, random_symbolic_kernel
from tilewright.errors import TilewrightError
from tilewright.interpret import run
from tilewright.ir.arguments import Scalar
from tilewright.ir.stmt import Kernel
from tilewright.ir.symbols import scalar_constants, substitute_buffer
from tilewright.ir.verify import verify
from tilewright.passes import run as run_passes
from tilewright.recipes import plain
from tilewright.schedule.schedule import KernelSchedule
from tilewright.targets.program import Program, abi_of
from tilewright.targets.registry import find_target
from tilewright.targets.target import Target

_SIZES = 5
_THREADS = 2


def compiled(kernel: Kernel, target: Target) -> tuple[Kernel, bytes, Program | None]:
    """``kernel`` as it is lowered, its binary, and its program (None if it does not run here)."""
    config = plain.default_config(kernel, target.machine)
    schedule = KernelSchedule(kernel, target.machine)
    plain.Plain().schedule(schedule, target.machine, config)
    lowered = run_passes(schedule.kernel)
    verify(lowered)
    module = target.lower(lowered)
    binary = target.assemble(module)
    program = target.load(binary, abi_of(lowered, module)) if target.runs_here else None
    return lowered, binary, program


def memory_of(kernel: Kernel, numbers: Mapping[str, Scalar], seed: int) -> dict[str, Any]:
    """Small integers for the arrays of a call, as flat memory."""
    generator = np.random.default_rng(seed)
    constants = scalar_constants(kernel, numbers)
    memory: dict[str, Any] = {}
    for param in kernel.arrays:
        extent = substitute_buffer(param.buffer, constants).layout.extent
        low = 0 if param.dtype.kind == "uint" else -9
        memory[param.name] = generator.integers(low, 10, extent).astype(param.dtype.numpy)
    return memory


def difference_at(
    kernel: Kernel, program: Program, numbers: Mapping[str, Scalar], seed: int
) -> str | None:
    """The first array in which ``program`` differs from the interpreter; None: none."""
    memory = memory_of(kernel, numbers, seed)
    interpreted = {name: array.copy() for name, array in memory.items()}
    run(kernel, {**numbers, **interpreted})
    arguments = dict(numbers)
    arguments.update((name, array.ctypes.data) for name, array in memory.items())
    program.run([arguments[p.name] for p in kernel.params], _THREADS)
    for name, array in memory.items():
        if not np.array_equal(array, interpreted[name]):
            where = int(np.flatnonzero(array != interpreted[name])[0])
            return (
                f"{name}[{where}] is {array[where]}, not {interpreted[name][where]}, for {numbers}"
            )
    return None


def fault_of(seed: int, target: Target) -> str | None:
    """The fault of the random kernel of ``seed`` on ``target``; None if there is none."""
    rng = random.Random(seed)
    kernel = random_symbolic_kernel(rng)
    try:
        verify(kernel)
        _, _, program = compiled(kernel, target)
        for count in range(_SIZES if program is not None else 0):
            assert program is not None
            difference = difference_at(kernel, program, random_numbers(rng, kernel), count)
            if difference is not None:
                return difference
    except TilewrightError as error:
        return str(error)
    return None


def main(words: list[str] | None = None) -> int:
    """The sweep; 1 if a kernel differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="x86")
    parser.add_argument("--kernels", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first kernel")
    options = parser.parse_args(words)
    target = find_target(options.target)
    wrong = 0
    for seed in range(options.seed, options.seed + options.kernels):
        fault = fault_of(seed, target)
        if fault is not None:
            wrong += 1
            print(f"seed {seed}: {fault}", flush=True)
    print(f"{options.kernels} kernels from seed {options.seed} on {target.name}: {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
