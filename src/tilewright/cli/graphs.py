"""``tilewright verify`` and ``show`` of graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import typer

from tilewright.cli.checking import verdicts_file
from tilewright.cli.files import open_output
from tilewright.cli.graph_files import GraphCase, Refused, graphs_of, only
from tilewright.cli.knobs import Knobs, Place, Showing, refuse_options
from tilewright.cli.loading import BAD_INPUT
from tilewright.cli.progress import progress
from tilewright.errors import ProblemError, TilewrightError, UnsupportedError, one_of
from tilewright.frontends.stablehlo.program import StableHLO
from tilewright.graph.compiling import compile_graph
from tilewright.graph.cutting import cut_graph, groups_in
from tilewright.graph.graph import Graph
from tilewright.graph.listing import Groups, kernels_text, listed, program_text
from tilewright.graph.memory import lifetimes, plan
from tilewright.graph.open_program import OpenGraphProgram, closed
from tilewright.graph.passes.pipeline import PASSES, optimized
from tilewright.graph.predicting import Deciding, chains_by
from tilewright.graph.program import GraphProgram, Timed
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.ir.symbols import bind_scalars
from tilewright.measure.stamp import stamped
from tilewright.targets.registry import find_target
from tilewright.testing.interpreted_graph import InterpretedGraph
from tilewright.testing.kernel_data import Contents
from tilewright.testing.stablehlo_files import checked
from tilewright.testing.verify import Status, Verdict, Verifiable, one_line, verdict_of, verify_on
from tilewright.testing.widened import widened

# Not at the limits of types: networks have no such data, and sums of them may have any result.
_KINDS = (Contents.INTEGERS, Contents.REALS)
Judge = Callable[[Mapping[str, Any], Mapping[str, Any]], str | None]
_PASSES = tuple(graph_pass.name for graph_pass in PASSES)
# Calls whose launches are timed, of which the median counts.
_CALLS = 9
_STAGES = ("graph", *_PASSES, "groups", "kernels", "program", "llvm", "asm", "schedule", "config")


def verify_graphs(
    knobs: Knobs,
    random: int,
    seed: int,
    on: Place,
    against: str,
    json_file: Path | None = None,
) -> None:
    """Carries out ``tilewright verify graph``."""
    if against:
        refuse_options("graph", ["against"], cure="leave it out: see verify --help")
    counts: Counter[str] = Counter()
    cases = list(graphs_of(knobs))
    with verdicts_file(json_file) as written:
        for case in progress(cases, len(cases), "verify"):
            for verdict, draw in _verdicts(knobs, case, random, seed, on):
                status = "REFUSED" if verdict.status is Status.SKIPPED else verdict.status.value
                reason, arguments = (
                    f"({verdict.reason}) " if verdict.reason else "",
                    case.arguments(draw),
                )
                print(f"{status} {reason}{arguments}", flush=True)
                counts[status.lower()] += 1
                written.append({"case": arguments, **verdict.as_json(), "status": status})
    print(", ".join(f"{counts[name]} {name}" for name in ("passed", "failed", "refused")))
    if counts["failed"]:
        raise typer.Exit(1)
    refused = [case.error for case in cases if isinstance(case, Refused)]
    if not all(isinstance(error, UnsupportedError) for error in refused):
        raise typer.Exit(BAD_INPUT)
    if not counts["passed"]:
        typer.echo("no graph was run: all were refused, for the reasons above", err=True)
        raise typer.Exit(1)


def _verdicts(
    knobs: Knobs, case: GraphCase | Refused, random: int, seed: int, on: Place
) -> Iterator[tuple[Verdict, int]]:
    """The verdict on each call of a graph, and the seed of its contents."""
    if isinstance(case, Refused):
        yield Verdict(Status.SKIPPED, one_line(case.error)), 0
        return
    for draw in range(seed, seed + max(1, random)):
        compile = partial(compiled, knobs, case, on)
        if isinstance(case.graph, StableHLO) and case.graph.checks:
            yield _judged(case, partial(checked, case.graph), compile, draw), draw
            continue
        verdict = _by_float64(case, compile, draw)
        if verdict.status is Status.PASSED and case.second is not None:
            second = _judged(case, case.second.fault, compile, draw)
            # If the framework cannot run it, the first verdict stands.
            passed = second.status is not Status.FAILED
            reasons = "; ".join(filter(None, (verdict.reason, second.reason)))
            verdict = Verdict(Status.PASSED, reasons) if passed else second
        yield verdict, draw


def _by_float64(case: GraphCase, compile: Callable[[], Verifiable], draw: int) -> Verdict:
    """Compares with the interpreter's results in f64 instead of f32; if these differ, or the graph
    uses the bits of numbers, with its results in the graph's own types."""
    kernel = case.case(draw)
    try:
        wide = widened(kernel.kernel)
    except TilewrightError:
        verdict = verify_on(compile, kernel.trials(kinds=_KINDS))
        reason = "in its own types: it looks at bits, which float64 has others of"
    else:
        exact = verify_on(compile, kernel.trials(wide, _KINDS))
        if exact.mismatch is None:
            return exact
        # Rounding may have decided a truncation or comparison.
        verdict = verify_on(compile, kernel.trials(kinds=_KINDS))
        if verdict.status is Status.FAILED:
            return exact
        reason = f"in its own types: float64 differs, {exact.reason}"
    return replace(verdict, reason=reason) if verdict.status is Status.PASSED else verdict


def _judged(
    case: GraphCase, fault_of: Judge, compile: Callable[[], Verifiable], draw: int
) -> Verdict:
    """The verdict by ``fault_of`` on the arguments and results of one call: by the file's own
    checks, or by another framework."""

    def check() -> Verdict:
        program = compile()
        arrays = case.case(draw).call(program)
        # Copies, as the call may update inputs.
        arguments = {name: np.array(arrays[name]) for name in case.graph.inputs}
        results = {name: arrays.pop(name) for name in case.graph.outputs}
        program(**arrays, out=results)
        fault = fault_of(arguments, results)
        return Verdict(Status.PASSED) if fault is None else Verdict(Status.FAILED, fault)

    return verdict_of(check)


def compiled(knobs: Knobs, case: GraphCase, on: Place = Place.DEVICE) -> Verifiable:
    """The graph, compiled for the target of the options, or in the interpreter."""
    if on is Place.INTERPRETER:
        return InterpretedGraph(case.graph, find_target(knobs.target).machine)
    return compile_graph(case.graph, knobs.target, knobs.threads, knobs.constant)


def show_graphs(knobs: Knobs, showing: Showing) -> None:
    """Carries out ``tilewright show graph``."""
    stage = showing.stage
    refuse_options(
        "graph",
        showing.named("page", "legal"),
        why="a graph is many kernels",
        cure="print them by --stage kernels, and show one by kernel FILE",
    )
    if stage != "groups":
        refuse_options(
            "graph",
            showing.named("measure", "json"),
            why="it is about groups",
            cure="add --stage groups",
        )
    if stage and stage not in ("all", *_STAGES):
        raise ProblemError(
            f"there is no stage {stage!r}", where="--stage", cure=one_of(stage, ("all", *_STAGES))
        )
    with ExitStack() as stack:
        output = open_output(stack, showing.json, "--json")
        figures: list[dict[str, Any]] = []
        for case in only(list(graphs_of(knobs))):
            print(f"# {case.arguments()}")
            if stage == "groups":
                groups, sizes = _groups(knobs, case, showing.measure)
                print(f"{_set_to(sizes)}{groups}")
                title = {"graph": case.arguments(), "sizes": dict(sizes)}
                figures.append(title | asdict(groups))
            elif stage in ("", "all"):
                names = ("graph", *_PASSES, "kernels", "program")
                print("\n\n".join(f"# stage {name}\n{_shown(knobs, case, name)}" for name in names))
            else:
                print(_shown(knobs, case, stage).rstrip("\n"))
        if output is not None:
            output.write(stamped(1, {"target": knobs.target, "graphs": figures}))


def _groups(knobs: Knobs, case: GraphCase, measure: bool) -> tuple[Groups, Mapping[str, Any]]:
    """The groups of a graph, and the sizes that they are for, where calls pass some; ``measure``:
    with the medians of some calls."""
    graph, machine = case.graph.kernel, find_target(knobs.target).machine
    constant = tuple(knobs.constant) or case.graph.constant
    sizes: Mapping[str, Any] = {}
    if graph.scalars:
        sizes = case.case(0).numbers
        graph = bind_scalars(graph, sizes)
    seconds: dict[int, list[float]] = {}
    if measure:
        closed_case = replace(case, graph=Graph(graph, constant))
        for timed in chain(*timed_calls(program_of(knobs, closed_case), closed_case, _CALLS)):
            seconds.setdefault(timed.launch, []).append(timed.seconds)
    deciding, again = (Deciding.on(machine, constant) for _ in range(2))
    graph = optimized(graph, deciding=deciding)
    cut = cut_graph(graph, chains_by(deciding), deciding)
    groups = groups_in(graph, chains_by(again), again)
    medians = {number: median(times) for number, times in seconds.items()}
    return listed(cut, groups, machine, deciding, constant, medians), sizes


def _set_to(sizes: Mapping[str, Any]) -> str:
    """A line that says for which sizes something is shown, if for some."""
    return f"for {', '.join(f'{name} = {n}' for name, n in sizes.items())}:\n" if sizes else ""


def _shown(knobs: Knobs, case: GraphCase, stage: str) -> str:
    machine = find_target(knobs.target).machine
    if stage == "graph":
        return to_text(case.graph.kernel)
    if stage in _PASSES:
        stages: dict[str, Kernel] = {}
        optimized(
            case.graph.kernel,
            lambda record: stages.update({record.name: record.kernel}),
            deciding=Deciding.on(machine, knobs.constant),
        )
        return to_text(stages[stage])
    if stage in ("kernels", "program"):
        deciding = Deciding.on(machine, knobs.constant)
        graph = optimized(case.graph.kernel, deciding=deciding)
        cut = cut_graph(graph, chains_by(deciding), deciding)
        if stage == "kernels":
            return kernels_text(cut)
        # Places in memory are those for some sizes.
        numbers = case.case(0).numbers if graph.scalars else {}
        cut = closed(cut, numbers) if numbers else cut
        return _set_to(numbers) + program_text(cut, plan(lifetimes(cut)))
    program = program_of(knobs, case)
    parts: list[str] = []
    for number, group in enumerate(program.groups):
        kernel = group.compiled
        text = repr(kernel.config) if stage == "config" else kernel.source(stage).rstrip("\n")
        parts.append(f"# kernel {number}, {group.kernel.name}\n{text}")
    return "\n\n".join(parts)


def program_of(knobs: Knobs, case: GraphCase) -> GraphProgram:
    """The program. Raises `UnsupportedError` if the target has no programs for graphs."""
    program = compile_graph(case.graph, knobs.target, knobs.threads, knobs.constant)
    if isinstance(program, OpenGraphProgram):
        names = [scalar.name for scalar in case.graph.kernel.scalars]
        raise UnsupportedError(
            f"the graph of {case.source} has sizes that calls pass",
            where=", ".join(names),
            why="this is about a program with its memory, which is planned for sizes",
            cure="set them: " + " ".join(f"--set {name}=64" for name in names),
        )
    if not isinstance(program, GraphProgram):
        raise UnsupportedError(
            f"{knobs.target} makes no program of a graph",
            why="it runs the graph as it is",
            cure="choose another --target",
        )
    return program


def timed_calls(program: GraphProgram, case: GraphCase, calls: int) -> list[list[Timed]]:
    """Times ``calls`` calls launch by launch, after one warm-up call."""
    if not program.target.runs_here:
        raise UnsupportedError(
            f"kernels for {program.target.name} do not run here", cure="choose another --target"
        )
    arguments = case.case(0).call(program)
    program.timed(**arguments)
    return [program.timed(**arguments) for _ in range(calls)]
