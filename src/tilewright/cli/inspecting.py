"""``tilewright show``, ``build`` and ``run``: one kernel's stages, its files, its results."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.bench.floor import floor_of
from tilewright.cli.arrays import load_array, raw, typed
from tilewright.cli.cases import cases_of, what_of
from tilewright.cli.checking import compile_case, repeat
from tilewright.cli.files import OutputFile, make_folder, open_output
from tilewright.cli.knobs import Knobs, Showing, refuse_options
from tilewright.cli.overview import overview_of, with_remarks
from tilewright.engine import CompiledKernel
from tilewright.engine.request import request_of
from tilewright.engine.signature import Signature, form_of
from tilewright.engine.trace import Trace
from tilewright.errors import (
    ArgumentError,
    ProblemError,
    TilewrightError,
    UnsupportedError,
    one_of,
)
from tilewright.interpret import pack, unpack
from tilewright.ir.arguments import Scalar, scalar_argument
from tilewright.ir.printer import lines_of
from tilewright.ir.stmt import Kernel
from tilewright.measure.stamp import stamped
from tilewright.ops.op import Op
from tilewright.passes.spmd import access_report, vectorize_items
from tilewright.recipes import choose
from tilewright.recipes.config import PlainConfig
from tilewright.recipes.parts.forms import Choices
from tilewright.recipes.recipe import table
from tilewright.testing.kernel_case import KernelCase

# The column of source lines beside a kernel's text, after shorter lines of it.
_COLUMN = 64


def show_kernels(knobs: Knobs, showing: Showing) -> None:
    """Carries out ``tilewright show``."""
    stage, page, legal = showing.stage, showing.page, showing.legal
    why, cure = "it has no groups", "time it by tilewright bench"
    refuse_options(knobs.driver, showing.named("measure"), why, cure)
    if showing.json is not None and stage != "cost":
        raise ProblemError(
            "--json is for the cost", where="--json", cure="write --stage cost --json FILE"
        )
    if legal and stage != "config":
        raise ProblemError(
            "--legal is for the config",
            where="--legal",
            why=f"--stage {stage} chooses nothing" if stage else "no stage is asked for",
            cure="write --stage config --legal",
        )
    cases = cases_of(knobs)
    if page is not None and len(cases) != 1:
        raise ProblemError(
            f"{len(cases)} cases are given", where="--page", cure="give one: a page has one kernel"
        )
    with ExitStack() as stack:
        output = open_output(stack, page, "--page")
        figures = open_output(stack, showing.json, "--json")
        costs: list[dict[str, Any]] = []
        for case in cases:
            trace = None if output is None else Trace()
            title = repeat(knobs, case)
            head = f"# {title}"
            try:
                kernel = compile_case(knobs, what_of(case), trace)
            except TilewrightError:
                if stage in ("", "all"):
                    print("\n".join([head, _listed(_stages_until_error(knobs, what_of(case)))]))
                raise
            if figures is not None:
                costs.append({"case": title, **_cost_data(kernel)})
            if stage or trace is None:
                text = _shown(kernel, stage or "all").rstrip("\n")
                if legal:
                    text = "\n".join([repr(kernel.config), *_legal(kernel)])
                # The first line of a schedule is its header.
                print("\n".join([text, head] if stage == "schedule" else [head, text]))
            if output is not None and trace is not None:
                texts, overview = dict(_texts(kernel)), overview_of(kernel, case)
                output.write(trace.page_text(title, texts, overview).encode())
                print(f"{output.path}: {title}")
        if figures is not None:
            figures.write(stamped(1, {"cases": costs}))


def _texts(kernel: CompiledKernel) -> Iterator[tuple[str, str]]:
    """The texts of a page besides stages, by name."""
    for name, text in (
        ("config", partial(_shown, kernel, "config")),
        ("schedule", partial(_shown, kernel, "schedule")),
        ("cost", partial(_shown, kernel, "cost")),
        ("LLVM IR", partial(_shown, kernel, "llvm")),
        ("assembly", partial(with_remarks, kernel)),
    ):
        try:
            yield name, text()
        except UnsupportedError as error:
            yield name, str(error)


def _shown(kernel: CompiledKernel, stage: str) -> str:
    if stage == "config":
        chosen = f"# chosen by: {kernel.origin}"
        return "\n".join([repr(kernel.config), chosen, *_candidates(kernel), *_accesses(kernel)])
    if stage == "cost":
        return "\n".join(_cost_lines(kernel))
    if stage in ("llvm", "asm", "schedule"):
        return kernel.source(stage)
    stages = kernel.stages
    if stage == "all":
        return _listed(stages)
    if stage not in stages:
        others = ("llvm", "asm", "schedule", "config", "cost")
        raise ProblemError(
            f"there is no stage {stage!r}",
            where="--stage",
            cure=one_of(stage, ["all", *stages, *others]),
        )
    return _beside_source(stages[stage])


def _listed(stages: Mapping[str, Kernel]) -> str:
    return "\n\n".join(
        f"# stage {name}\n{_beside_source(kernel)}" for name, kernel in stages.items()
    )


def _stages_until_error(knobs: Knobs, what: Op | Kernel) -> dict[str, Kernel]:
    """The stages, and the results of passes, up to the refused one."""
    trace = Trace(level=0)
    with suppress(TilewrightError):
        compile_case(knobs, what, trace)
    stages = {step.name: step.kernel for step in trace.steps if step.changed and step.kernel}
    return stages or {"naive": request_of(what, knobs.constant).start().kernel}


def _cost_data(kernel: CompiledKernel) -> dict[str, Any]:
    """The cost and the floor of a kernel as plain data; None: unknown."""
    cost = kernel.cost()
    try:
        floor: dict[str, Any] | None = asdict(floor_of(kernel, cost))
    except UnsupportedError:
        floor = None
    return asdict(cost) | {"floor": floor}


def _cost_lines(kernel: CompiledKernel) -> Iterator[str]:
    cost = kernel.cost()
    for field in fields(cost):
        value = getattr(cost, field.name)
        yield f"{field.name}: {'unknown' if value is None else value}"
    try:
        yield f"floor: {floor_of(kernel, cost)}"
    except UnsupportedError as error:
        yield f"floor: unknown ({error.what})"


def _candidates(kernel: CompiledKernel) -> list[str]:
    """The candidates of the config, as comments, so that the config can still be read."""
    machine = kernel.target.machine
    groups = choose.candidates(kernel.start, machine, kernel.config)
    lines: list[str] = []
    multiplying = choose.instructions(kernel.start, machine, kernel.config)
    for name, (config, candidates) in groups.items():
        if len(groups) > 1:
            lines.append(f"# {name}: {config!r}")
        if not any(candidate.prediction for candidate in candidates):
            lines.append(f"# no model predicts times of such kernels on {machine.name}")
            continue
        title = "predicted, not measured: the config above, then what it was chosen from"
        lines += [f"# {line}" for line in (title, *table(candidates))]
        lines += [f"# instruction: {line}" for line in multiplying.get(name, [])]
    return lines


def _accesses(kernel: CompiledKernel) -> list[str]:
    """How lanes made of work-items access memory, and the reasons of refused transforms, as
    comments."""
    plain = isinstance(kernel.config, PlainConfig)
    vectors, split = (kernel.stages.get(name) if plain else None for name in ("vectors", "split"))
    lines = [] if vectors is None else access_report(vectors)
    if split is not None and not lines:
        lanes = kernel.target.machine.vector_bytes // 4
        report = access_report(vectorize_items(split, lanes))
        lines = ["work-items run one after the other; as lanes they would access memory so:"]
        lines += report or ["not at all"]
    return [f"# {line}" for line in (*lines, *kernel.schedule.log.notes)]


def _legal(kernel: CompiledKernel) -> list[str]:
    """The legal values of the config's fields, as comments."""
    groups = choose.legal_values(kernel.start, kernel.target.machine, kernel.config)
    lines = ["# what each may be beside the others; --config 'NAME=VALUE, ...' changes some"]
    config = kernel.config
    parts = [name for name in config.names() if isinstance(getattr(config, name), Choices)]
    if parts:
        lines.append(f"# (of a part as --config \"{parts[0]}={{'FIELD': VALUE}}, ...\")")
    for name, values in groups.items():
        if len(groups) > 1:
            lines.append(f"# {name}")
        width = max(map(len, values))
        lines += [f"# {field.ljust(width)}  {text}" for field, text in values.items()]
    return lines


def build_kernels(knobs: Knobs, output: Path, name: str | None) -> None:
    """Carries out ``tilewright build``."""
    cases = cases_of(knobs)
    if name is not None and len(cases) != 1:
        raise ProblemError(
            f"{len(cases)} cases are given",
            where="--name",
            why="each kernel needs a name of its own",
            cure="give one, or leave it out: names are made of the problems",
        )
    make_folder(output, "--output")
    for number, case in enumerate(cases):
        folder = output if len(cases) == 1 else output / str(number)
        kernel = compile_case(knobs, what_of(case))
        print(f"{kernel.export(folder, name)}: {repeat(knobs, case)}")
        print(f"  runs on {kernel.target.made_for}")


def run_kernel(knobs: Knobs, array: list[str], output: Path) -> None:
    """Carries out ``tilewright run``."""
    cases = cases_of(knobs)
    if len(cases) != 1:
        raise ProblemError(
            f"{len(cases)} cases are given", where="the command line", cure="give one"
        )
    (case,) = cases
    inputs = _loaded(array)
    numbers = case.numbers if isinstance(case, KernelCase) else {}
    make_folder(output, "--output")
    kernel = compile_case(knobs, what_of(case))
    for name, values in _results(kernel, inputs, numbers).items():
        contents = io.BytesIO()
        np.save(contents, raw(values), allow_pickle=False)
        with OutputFile(output / f"{name}.npy", "--output") as file:
            file.write(contents.getvalue())
        print(file.path)


def _loaded(words: list[str]) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    for word in words:
        name, _, file = word.partition("=")
        if not file:
            raise ProblemError(
                f"{word!r} is not NAME=FILE", where="--array", cure="write --array src=x.npy"
            )
        arrays[name] = load_array(file, f"--array {name}")
    return arrays


def _results(
    kernel: CompiledKernel, inputs: dict[str, Any], numbers: Mapping[str, Scalar]
) -> dict[str, Any]:
    """The kernel's results on arrays of logical shape, in that shape."""
    names = [argument.name for argument in kernel.signature.arguments]
    for name in inputs:
        if name not in names:
            raise ArgumentError(
                f"there is no argument {name!r}",
                where="--array",
                cure=one_of(name, names),
            )
    numbers = dict(_all_numbers(kernel.signature, inputs, numbers))
    arguments = kernel.signature.at(numbers)
    memory: dict[str, Any] = {}
    for argument in arguments:
        name = argument.name
        if argument.access == "out":
            memory[name] = np.zeros(argument.buffer.layout.extent, argument.dtype.numpy)
        elif name in inputs:
            memory[name] = pack(
                argument.buffer, typed(argument.buffer, inputs[name], f"--array {name}")
            )
        else:
            raise ArgumentError(f"{name} is missing", cure=f"give --array {name}=FILE.npy")
    arrays: dict[str, Any] = {
        argument.name: form_of(argument.buffer.shape, argument.dtype, argument.buffer.layout).view(
            memory[argument.name]
        )
        for argument in arguments
    }
    for name in kernel.packed:
        arrays[name] = kernel.pack(name, arrays[name])
    kernel(**arrays, **numbers)
    results = [argument for argument in arguments if argument.access != "in"]
    return {argument.name: unpack(argument.buffer, memory[argument.name]) for argument in results}


def _all_numbers(
    signature: Signature, inputs: Mapping[str, Any], numbers: Mapping[str, Scalar]
) -> Iterator[tuple[str, Scalar]]:
    """The scalars of a call: those that are set, and sizes taken from the shapes of arrays."""
    for param in signature.scalars:
        if param.name in numbers:
            yield param.name, numbers[param.name]
            continue
        dims_with_size = [
            (array, dim)
            for array, dim in signature.sizes.get(param.name, ())
            if array in inputs and dim < inputs[array].ndim
        ]
        if not dims_with_size:
            raise ArgumentError(f"{param.name} is missing", cure=f"give --set {param.name}=NUMBER")
        array, dim = dims_with_size[0]
        where = f"--array {array}: {param.name} is dim {dim}"
        yield param.name, scalar_argument(param, inputs[array].shape[dim], where)


def _beside_source(kernel: Kernel) -> str:
    """The text of a kernel, which still parses: a statement from another source line than the one
    above has that line as a comment, unless it is the same text."""
    lines: list[str] = []
    last: tuple[str | None, int] | None = None
    for line, stmt in lines_of(kernel):
        span = None if stmt is None else stmt.span
        if span is None or span.file is None:
            lines.append(line)
            continue
        place, source = (span.file, span.line), span.caret().partition("\n")[0].strip()
        if place == last or source == line.strip():
            lines.append(line)
        else:
            lines.append(f"{line:<{_COLUMN}}  # {Path(span.file).name}:{span.line}: {source}")
        last = place
    return "\n".join(lines)
