"""Random programs of scalars: what a kernel computes, against Python with numpy's scalars.

``python tests/fuzz_python.py --count 10000 --seed 1`` prints the programs that differ. They are
compiled by the dozen: each is a function with `@tw.function`, and one the kernel itself.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from lang_texts import defined
from scalar_meaning import FLOATS, NAMES, bounds
from scalar_programs import TYPES, Function, Writer, function
from tilewright.errors import KernelError, TilewrightError

ROWS = 8  # work-items: a row of arguments for each
_COLUMNS = 3
_SLOTS = 40  # results of a type
_BATCH = 12


class Batch:
    """A kernel that runs ``programs``, and is one itself, of scalar parameters."""

    def __init__(
        self, rng: random.Random, programs: Sequence[Function], helpers: Sequence[Function]
    ):
        self.rng, self.programs = rng, programs
        self.scalars = [rng.choice(TYPES) for _ in range(4)]
        self.places: dict[str, list[str]] = {type_: [] for type_ in TYPES}
        writer = Writer(rng, helpers)
        names = [f"p{n}" for n in range(len(self.scalars))]
        writer.types.update(zip(names, self.scalars, strict=True))
        writer.ready.update(names)
        arrays = [f'{way}_{t}: tw.array("{t}", 2)' for way in ("in", "out") for t in TYPES]
        values = [f"{name}: tw.{t}" for name, t in zip(names, self.scalars, strict=True)]
        writer.line("item = tw.global_id(0)", "pass")
        self.kernel = [f"@tw.kernel\ndef batch({', '.join([*arrays, *values])}):", *writer.kernel]
        writer.kernel.clear()
        for number, program in enumerate(programs):
            self._call(number, program)
        writer.body(6)
        self.kernel += writer.kernel
        self.own = [name for name in sorted(writer.ready) if writer.types[name] in TYPES]
        for name in self.own:
            self._store(str(writer.types[name]), name, "own")
        returned = f"    return ({', '.join([*self.own, ''])})" if self.own else "    return ()"
        self.reference = "\n".join([f"def own({', '.join(names)}):", *writer.reference, returned])
        texts = [function.kernel for function in (*helpers, *programs)]
        self.text = "\n".join([*texts, *self.kernel, ""])
        self.python = "\n".join([*(e.reference for e in (*helpers, *programs)), self.reference, ""])

    def _call(self, number: int, program: Function) -> None:
        results = [f"r{number}_{n}" for n in range(len(program.results))]
        values = [f"in_{t}[item, {n}]" for n, t in enumerate(program.parameters)]
        self.kernel.append(f"    {', '.join(results)} = {program.name}({', '.join(values)})")
        for name, type_ in zip(results, program.results, strict=True):
            self._store(type_, name, program.name)

    def _store(self, type_: str, name: str, owner: str) -> None:
        place = len(self.places[type_])
        assert place < _SLOTS
        self.places[type_].append(owner)
        self.kernel.append(f"    out_{type_}[item, {place}] = {name}")

    def wrong(self, target: str) -> list[str]:
        """What differs: the program, and its results."""
        inputs = {t: numbers(self.rng, t, (ROWS, _COLUMNS)) for t in TYPES}
        outputs = {t: np.zeros((ROWS, _SLOTS), value.dtype) for t, value in inputs.items()}
        scalars = [numbers(self.rng, t, (1,))[0] for t in self.scalars]
        kernel = defined(self.text)["batch"]
        try:
            kernel.launch(ROWS, *inputs.values(), *outputs.values(), *scalars, target=target)
        except TilewrightError as error:
            return [f"{target}: {error}"]
        expected = {t: np.zeros_like(output) for t, output in outputs.items()}
        self._reference(inputs, scalars, expected)
        result = []
        for t in TYPES:
            same = (outputs[t] == expected[t]) | (
                (outputs[t] != outputs[t]) & (expected[t] != expected[t])
            )
            for row, place in zip(*np.nonzero(~same), strict=True):
                values = f"{outputs[t][row, place]!r}, Python {expected[t][row, place]!r}"
                result.append(f"{self.places[t][place]} in row {row}, {t}: {target} {values}")
        return result

    def _reference(
        self, inputs: dict[str, Any], scalars: list[Any], outputs: dict[str, Any]
    ) -> None:
        space = dict(NAMES)
        exec(compile(self.python, "<reference>", "exec"), space)
        own = space["own"](*scalars)
        for row in range(ROWS):
            filled = dict.fromkeys(TYPES, 0)
            for program in self.programs:
                values = [inputs[t][row, n] for n, t in enumerate(program.parameters)]
                results = space[program.name](*values)
                results = results if len(program.results) > 1 else (results,)
                for type_, value in zip(program.results, results, strict=True):
                    outputs[type_][row, filled[type_]] = value
                    filled[type_] += 1
            for value in own:
                type_ = next(t for t in TYPES if outputs[t].dtype.type is type(value))
                outputs[type_][row, filled[type_]] = value
                filled[type_] += 1


def numbers(rng: random.Random, type_: str, shape: tuple[int, ...]) -> Any:
    """Arguments: small ones, limits, and any."""
    name = type_.replace("s", "int").replace("u", "uint").replace("f", "float")
    result = np.zeros(shape, name)
    for at in np.ndindex(shape):
        if type_ in FLOATS:
            odd = [0.0, float("inf"), float("nan"), 1e30, -1e-30]
            result[at] = rng.choice(
                [rng.uniform(-10, 10), float(rng.randrange(-5, 6)), rng.choice(odd)]
            )
        else:
            low, high = bounds(type_)
            close = rng.randrange(max(low, -6), 7)
            result[at] = rng.choice([close, close, low, high, rng.randrange(low, high + 1)])
    return result


def loose(rng: random.Random) -> str | None:
    """What is wrong with how a program is taken that may read names without a value: it is refused,
    or Python doesn't miss one either."""
    program = function(rng, "program", (), rng.randrange(2, 8), loose=True)
    head = ", ".join(f'x{n}: tw.array("{t}", 1)' for n, t in enumerate(program.parameters))
    values = ", ".join(f"x{n}[0]" for n in range(len(program.parameters)))
    text = (
        f"{program.kernel}\n@tw.kernel\ndef k({head}):\n    tw.printf('{{}}', program({values}))\n"
    )
    try:
        defined(text)["k"].over(1)
    except KernelError as error:
        return None if "may have no value here" in error.what else f"{text}\n{error}"
    space = dict(NAMES)
    exec(compile(program.reference, "<reference>", "exec"), space)
    for _ in range(ROWS):
        try:
            space["program"](*(numbers(rng, t, (1,))[0] for t in program.parameters))
        except UnboundLocalError as error:
            return f"{text}\ntaken, and in Python {error}"
    return None


def fuzz(count: int, seed: int, targets: Sequence[str] = ("x86", "interpreter")) -> list[str]:
    """What ``count`` programs compute, or are taken for, that Python says otherwise."""
    rng, wrong = random.Random(seed), []
    for start in range(0, count, _BATCH):
        batch_seed = rng.randrange(2**32)
        wrong += one_batch(
            random.Random(batch_seed), min(_BATCH, count - start), targets, batch_seed
        )
    return wrong


def one_batch(rng: random.Random, count: int, targets: Sequence[str], seed: int) -> list[str]:
    """The same of one kernel, and of one loose program."""
    helpers = [function(rng, f"helper{n}", (), 2) for n in range(3)]
    programs = [
        function(rng, f"program{n}", helpers, rng.randrange(2, 8)) for n in range(count - 1)
    ]
    batch = Batch(rng, programs, helpers)
    with np.errstate(all="ignore"):
        result = loose(rng)
        wrong = [] if result is None else [result]
        for target in targets:
            differing = batch.wrong(target)
            if differing:
                wrong.append("\n".join([batch.text, *differing, f"batch {seed}"]))
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    wrong = fuzz(args.count, args.seed)
    print("\n\n".join(wrong[:10]))
    print(f"{len(wrong)} kernels of {args.count} programs compute what Python does not")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
