"""``tilewright show``, ``build`` and ``run``: one kernel's stages, its files, its results."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from tilewright.cli.arrays import load_array, raw, typed
from tilewright.cli.checking import compile_case, repeat
from tilewright.cli.knobs import Knobs, what_of, with_knobs
from tilewright.cli.output import OutputFile, make_folder, open_output
from tilewright.engine import CompiledKernel
from tilewright.engine.signature import Signature, form_of
from tilewright.engine.trace import Trace
from tilewright.errors import ArgumentError, ProblemError, UnsupportedError
from tilewright.interpret import pack, unpack
from tilewright.ir.arguments import Scalar, scalar_argument
from tilewright.ir.printer import to_text
from tilewright.recipes import choose
from tilewright.recipes.recipe import table
from tilewright.recipes.shorthand import short
from tilewright.testing.kernel_case import KernelCase


@with_knobs
def show_command(
    knobs: Knobs,
    stage: Annotated[
        str,
        typer.Option(
            "--stage",
            help="A stage's name, all (the default), llvm, asm, schedule, config or cost.",
        ),
    ] = "",
    page: Annotated[
        Path | None, typer.Option("--page", help="Write all of it to this file, for a browser.")
    ] = None,
) -> None:
    """Print how a kernel came to be: its IR at each stage, LLVM's IR, assembly, its config,
    its schedule.

    Each stage is IR that parses back and runs in the interpreter. After the config stand the
    candidates that it was chosen from, with what the model predicts of each. The schedule is the
    transforms from the naive kernel on, as Python: a file of them, edited or not, is what
    --schedule takes.

    A page (one file, which needs no network) has all of it: what each stage, pass and transform
    changed, side by side, the config with its candidates, the cost, LLVM's IR and assembly.

    Examples:

      tilewright show conv ic64ih56oc64kh3ph1

      tilewright show matmul --stage config --dt bf16 --target nvidia:sm_80 4096x4096:4096x4096

      tilewright show matmul --stage schedule 256x256:256x256 > steps.py

      tilewright show conv --stage asm --target x86:avx2 ic64ih56oc64kh3ph1

      tilewright show kernel --target spirv:gpu scale.tw:scale

      tilewright show conv --page conv.html ic64ih56oc64kh3ph1
    """
    cases = knobs.cases()
    if page is not None and len(cases) != 1:
        raise ProblemError(
            f"{len(cases)} cases are given", where="--page", cure="give one: a page has one kernel"
        )
    with ExitStack() as stack:
        output = open_output(stack, page, "--page")
        for case in cases:
            trace = None if output is None else Trace()
            kernel = compile_case(knobs, what_of(case), trace)
            title = repeat(knobs, case)
            if stage or trace is None:
                text, head = _shown(kernel, stage or "all").rstrip("\n"), f"# {title}"
                # The first line of a schedule says what it is for.
                print("\n".join([text, head] if stage == "schedule" else [head, text]))
            if output is not None and trace is not None:
                output.write(trace.page_text(title, dict(_texts(kernel))).encode())
                print(f"{output.path}: {title}")


def _texts(kernel: CompiledKernel) -> Iterator[tuple[str, str]]:
    """What a page has beside stages, by name."""
    for name, stage in (
        ("config", "config"),
        ("schedule", "schedule"),
        ("cost", "cost"),
        ("LLVM IR", "llvm"),
        ("assembly", "asm"),
    ):
        try:
            yield name, _shown(kernel, stage)
        except UnsupportedError as error:
            yield name, str(error)


def _shown(kernel: CompiledKernel, stage: str) -> str:
    if stage == "config":
        return "\n".join([repr(kernel.config), *_candidates(kernel)])
    if stage == "cost":
        cost = kernel.cost()
        return "\n".join(f"{name}: {getattr(cost, name)}" for name in type(cost).__annotations__)
    if stage in ("llvm", "asm", "schedule"):
        return kernel.source(stage)
    stages = kernel.stages
    if stage == "all":
        return "\n\n".join(f"# stage {name}\n{to_text(each)}" for name, each in stages.items())
    if stage not in stages:
        others = ("llvm", "asm", "schedule", "config", "cost")
        raise ProblemError(
            f"there is no stage {stage!r}",
            where="--stage",
            cure="choose one of " + ", ".join(["all", *stages, *others]),
        )
    return to_text(stages[stage])


def _candidates(kernel: CompiledKernel) -> list[str]:
    """What the config was chosen from, as comments: the config stays what can be read again."""
    machine = kernel.target.machine
    groups = choose.candidates(kernel.start, machine, kernel.config)
    lines: list[str] = []
    for name, (config, found) in groups.items():
        if len(groups) > 1:
            lines.append(f"# {name}: {config!r}")
        if not any(each.prediction for each in found):
            lines.append(f"# no model predicts times of such kernels on {machine.name}")
            continue
        title = "predicted, not measured: the config above, then what it was chosen from"
        lines += [f"# {line}" for line in (title, *table(found, short))]
    return lines


@with_knobs
def build_command(
    knobs: Knobs,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write to.")],
) -> None:
    """Write a kernel for programs without Python, and its ABI in words.

    That is an object file with a C header, a SPIR-V module, or PTX and a cubin.

    Several cases get a folder each, numbered from 0.

    Examples:

      tilewright build conv --dt bf16 ic64ih56oc64kh3ph1 -o build

      tilewright build conv --target spirv:gpu ic64ih56oc64kh3ph1 -o build

      tilewright build conv --target nvidia:sm_80 ic64ih56oc64kh3ph1 -o build

      tilewright build kernel scale.tw -o build
    """
    cases = knobs.cases()
    make_folder(output, "--output")
    for number, case in enumerate(cases):
        folder = output if len(cases) == 1 else output / str(number)
        where = compile_case(knobs, what_of(case)).export(folder)
        print(f"{where}: {repeat(knobs, case)}")


@with_knobs
def run_command(
    knobs: Knobs,
    array: Annotated[
        list[str], typer.Option("--array", "-a", help="NAME=FILE.npy, for each input.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The folder to write NAME.npy to.")
    ],
) -> None:
    """Run a kernel on arrays from .npy files, all of the logical shape.

    Of a kernel from a file, --set gives the numbers that no shape tells.

    Results are written as .npy files of the logical shape. bf16 and fp8 are raw bytes there, as
    numpy has no names for them.

    Examples:

      tilewright run conv mb1ic2ih4oc2kh3 -a src=x.npy -a weights=w.npy -o results

      tilewright run kernel scale.tw --set alpha=2 -a a=x.npy -o results
    """
    cases = knobs.cases()
    if len(cases) != 1:
        raise ProblemError(
            f"{len(cases)} cases are given", where="the command line", cure="give one"
        )
    (case,) = cases
    given = _given(array)
    numbers = case.numbers if isinstance(case, KernelCase) else {}
    make_folder(output, "--output")
    kernel = compile_case(knobs, what_of(case))
    for name, values in _results(kernel, given, numbers).items():
        contents = io.BytesIO()
        np.save(contents, raw(values), allow_pickle=False)
        with OutputFile(output / f"{name}.npy", "--output") as file:
            file.write(contents.getvalue())
        print(file.path)


def _given(words: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word in words:
        name, _, file = word.partition("=")
        if not file:
            raise ProblemError(
                f"{word!r} is not NAME=FILE", where="--array", cure="write --array src=x.npy"
            )
        found[name] = load_array(file, f"--array {name}")
    return found


def _results(
    kernel: CompiledKernel, given: dict[str, Any], numbers: Mapping[str, Scalar]
) -> dict[str, Any]:
    """Runs the kernel on arrays of logical shape, and gives its results in the same form."""
    names = [argument.name for argument in kernel.signature.arguments]
    for name in given:
        if name not in names:
            raise ArgumentError(
                f"there is no argument {name!r}",
                where="--array",
                cure="choose one of " + ", ".join(names),
            )
    numbers = dict(_all_numbers(kernel.signature, given, numbers))
    arguments = kernel.signature.at(numbers)
    memory: dict[str, Any] = {}
    for argument in arguments:
        name = argument.name
        if argument.access == "out":
            memory[name] = np.zeros(argument.buffer.layout.extent, argument.dtype.numpy)
        elif name in given:
            memory[name] = pack(
                argument.buffer, typed(argument.buffer, given[name], f"--array {name}")
            )
        else:
            raise ArgumentError(f"{name} is missing", cure=f"give --array {name}=FILE.npy")
    arrays = {
        each.name: form_of(each.buffer.shape, each.dtype, each.buffer.layout).view(
            memory[each.name]
        )
        for each in arguments
    }
    for name in kernel.packed:
        arrays[name] = kernel.pack(name, arrays[name])
    kernel(**arrays, **numbers)
    results = [argument for argument in arguments if argument.access != "in"]
    return {each.name: unpack(each.buffer, memory[each.name]) for each in results}


def _all_numbers(
    signature: Signature, given: Mapping[str, Any], numbers: Mapping[str, Scalar]
) -> Iterator[tuple[str, Scalar]]:
    """The numbers of a call: those that are set, and sizes that the shapes of arrays tell."""
    for param in signature.scalars:
        if param.name in numbers:
            yield param.name, numbers[param.name]
            continue
        told = [
            (array, dim)
            for array, dim in signature.sizes.get(param.name, ())
            if array in given and dim < given[array].ndim
        ]
        if not told:
            raise ArgumentError(f"{param.name} is missing", cure=f"give --set {param.name}=NUMBER")
        array, dim = told[0]
        where = f"--array {array}: {param.name} is dim {dim}"
        yield param.name, scalar_argument(param, given[array].shape[dim], where)
