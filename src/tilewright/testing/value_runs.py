"""Random kernels of all types with values at their ends (`random_values`): the interpreter against
a plain evaluation (`plain_runs`), and machine code against the interpreter.

As a program, ``python -m tilewright.testing.value_runs --target x86 --count 2000 --seed 7``: it
prints the seed of each kernel that differs, is refused, or ends the process: kernels run in
processes of their own, many each.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

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
from tilewright.targets.registry import Target, find_target
from tilewright.testing.plain_runs import plain_run
from tilewright.testing.random_values import edge_arrays, edge_numbers, random_value_kernel

Arrays = dict[str, Any]
_CALLS = 3
_THREADS = 2
# Kernels of one process, so that little is lost where one ends it.
_TOGETHER = 100


def fault_of(seed: int, target: Target | None) -> str | None:
    """What is wrong with the random kernel of ``seed``: of the interpreter, and of ``target``
    where one is given; None where nothing is."""
    rng = random.Random(seed)
    kernel = random_value_kernel(rng)
    try:
        verify(kernel)
        program = _program(kernel, target) if target is not None else None
        for count in range(_CALLS):
            numbers = edge_numbers(rng, kernel)
            found = difference_at(kernel, program, numbers, seed + count)
            if found is not None:
                return f"{found}, for {numbers}"
    except TilewrightError as error:
        return str(error)
    return None


def _program(kernel: Kernel, target: Target) -> Program | None:
    """``kernel`` as a user gets it: by the recipe that is chosen for it."""
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
    from the interpreter; None where none does."""
    memory = edge_arrays(kernel, numbers, seed)
    wanted = {name: array.copy() for name, array in memory.items()}
    plain = _logical(kernel, numbers, memory)
    plain_run(kernel, numbers, plain)
    run(kernel, {**numbers, **wanted})
    found = _first(_logical(kernel, numbers, wanted), plain)
    if found is not None:
        return f"the interpreter: {found}"
    if program is None:
        return None
    passed: dict[str, Any] = dict(numbers)
    passed.update((name, array.ctypes.data) for name, array in memory.items())
    program.run([passed[p.name] for p in kernel.params], _THREADS)
    return _first(memory, wanted)


def _logical(kernel: Kernel, numbers: Mapping[str, Scalar], memory: Arrays) -> Arrays:
    """Copies of arrays as tensors."""
    constants = scalar_constants(kernel, numbers)
    return {
        p.name: np.array(unpack(substitute_buffer(p.buffer, constants), memory[p.name]))
        for p in kernel.arrays
    }


def _first(got: Arrays, wanted: Arrays) -> str | None:
    """The first element that differs, to the bit; one NaN is as good as another."""
    for name, want in wanted.items():
        a, b = (np.ascontiguousarray(each) for each in (got[name], want))
        codes = f"u{a.dtype.itemsize}"
        same = a.view(codes) == b.view(codes)
        if a.dtype.kind not in "biu":
            with np.errstate(all="ignore"):
                wide = [each.astype(np.float64) for each in (a, b)]
            same |= np.isnan(wide[0]) & np.isnan(wide[1])
        if not same.all():
            place = tuple(map(int, np.argwhere(~same)[0]))
            return f"{name}{list(place)} is {a[place]!r}, not {b[place]!r}"
    return None


def main(words: list[str] | None = None) -> int:
    """The sweep; 1 where something is wrong with a kernel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="x86", help="'interpreter': no machine code")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first kernel")
    parser.add_argument("--show", action="store_true", help="print the kernel of the seed only")
    parser.add_argument("--here", action="store_true", help="in this process")
    chosen = parser.parse_args(words)
    if chosen.show:
        print(to_text(random_value_kernel(random.Random(chosen.seed))))
        return 0
    seeds = range(chosen.seed, chosen.seed + chosen.count)
    if chosen.here:
        return _here(seeds, chosen.target)
    parts = [seeds[at : at + _TOGETHER] for at in range(0, len(seeds), _TOGETHER)]
    wrong = sum(_apart(part, chosen.target) for part in parts)
    print(f"{chosen.count} kernels from seed {chosen.seed} on {chosen.target}: {wrong} are wrong")
    return 1 if wrong else 0


def _here(seeds: range, name: str) -> int:
    target = None if name == "interpreter" else find_target(name)
    for seed in seeds:
        print(f"at {seed}", flush=True)
        found = fault_of(seed, target)
        if found is not None:
            print(f"seed {seed}: {found}", flush=True)
    return 0


def _apart(seeds: range, target: str) -> int:
    """How many kernels are wrong, run in a process of their own; another one after each that ends
    it."""
    wrong = 0
    while seeds:
        words = ["--here", f"--target={target}", f"--seed={seeds[0]}", f"--count={len(seeds)}"]
        ran = subprocess.run(
            [sys.executable, "-m", __spec__.name, *words], capture_output=True, text=True
        )
        lines = ran.stdout.splitlines()
        faults = [line for line in lines if not line.startswith("at ")]
        last = [int(line.removeprefix("at ")) for line in lines if line.startswith("at ")]
        if faults:
            print("\n".join(faults), flush=True)
        wrong += sum(line.startswith("seed ") for line in faults)
        if ran.returncode == 0:
            break
        if not last:
            raise SystemExit(f"no kernel ran: the process ended ({ran.returncode}): {ran.stderr}")
        wrong += 1
        reason = ran.stderr.strip().splitlines()[-1:] or [""]
        print(f"seed {last[-1]}: ends the process ({ran.returncode}): {reason[0]}", flush=True)
        seeds = range(last[-1] + 1, seeds.stop)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
