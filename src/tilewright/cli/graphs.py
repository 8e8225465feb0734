"""``tilewright verify`` and ``show`` of graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import typer

from tilewright.cli.checking import verdicts_file
from tilewright.cli.graph_files import GraphCase, Refused, graphs_of, only
from tilewright.cli.knobs import Knobs, Place
from tilewright.cli.loading import BAD_INPUT
from tilewright.cli.progress import progress
from tilewright.errors import ProblemError, TilewrightError, UnsupportedError, one_of
from tilewright.frontends.stablehlo.program import StableHLO
from tilewright.graph.cutting import cut_graph
from tilewright.graph.listing import kernels_text, program_text
from tilewright.graph.memory import lifetimes, plan
from tilewright.graph.passes.pipeline import PASSES, optimized
from tilewright.graph.program import GraphProgram, compile_graph
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.targets.registry import find_target
from tilewright.testing.interpreted_graph import InterpretedGraph
from tilewright.testing.kernel_data import Contents
from tilewright.testing.stablehlo_files import checked
from tilewright.testing.verify import Status, Verdict, Verifiable, one_line, verdict_of, verify_on
from tilewright.testing.widened import widened

# What is at the limits of types is no data of a network, and sums of it may come out as anything.
_KINDS = (Contents.INTEGERS, Contents.REALS)
Judge = Callable[[Mapping[str, Any], Mapping[str, Any]], str | None]
_PASSES = tuple(each.name for each in PASSES)
_STAGES = ("graph", *_PASSES, "kernels", "program", "llvm", "asm", "schedule", "config")


def verify_graphs(
    knobs: Knobs,
    random: int,
    seed: int,
    on: Place,
    against: str,
    json_file: Path | None = None,
) -> None:
    """Does what ``tilewright verify graph`` is asked for."""
    if against:
        raise ProblemError(
            "graph takes no --against", where="--against", cure="leave it out: see verify --help"
        )
    counts: Counter[str] = Counter()
    found = list(graphs_of(knobs))
    with verdicts_file(json_file) as written:
        for case in progress(found, len(found), "verify"):
            for verdict, draw in _verdicts(knobs, case, random, seed, on):
                status = "REFUSED" if verdict.status is Status.SKIPPED else verdict.status.value
                reason, again = (
                    f"({verdict.reason}) " if verdict.reason else "",
                    case.arguments(draw),
                )
                print(f"{status} {reason}{again}", flush=True)
                counts[status.lower()] += 1
                written.append({"case": again, **verdict.as_json(), "status": status})
    print(", ".join(f"{counts[each]} {each}" for each in ("passed", "failed", "refused")))
    if counts["failed"]:
        raise typer.Exit(1)
    refused = [each.error for each in found if isinstance(each, Refused)]
    if not all(isinstance(each, UnsupportedError) for each in refused):
        raise typer.Exit(BAD_INPUT)
    if not counts["passed"]:
        typer.echo("no graph was run: all were refused, for the reasons above", err=True)
        raise typer.Exit(1)


def _verdicts(
    knobs: Knobs, case: GraphCase | Refused, random: int, seed: int, on: Place
) -> Iterator[tuple[Verdict, int]]:
    """What comes of each call of a graph, and which contents it had."""
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
            # Without a second opinion, the first one stands.
            passed = second.status is not Status.FAILED
            reasons = "; ".join(filter(None, (verdict.reason, second.reason)))
            verdict = Verdict(Status.PASSED, reasons) if passed else second
        yield verdict, draw


def _by_float64(case: GraphCase, compile: Callable[[], Verifiable], draw: int) -> Verdict:
    """Compares with what the interpreter computes with f64 in the place of f32; where that has no
    bits to look at, or comes out elsewhere, with what it computes in the graph's own types."""
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
        # A sum that is about to be truncated or compared may come out on another side.
        verdict = verify_on(compile, kernel.trials(kinds=_KINDS))
        if verdict.status is Status.FAILED:
            return exact
        reason = f"in its own types: float64 differs, {exact.reason}"
    return replace(verdict, reason=reason) if verdict.status is Status.PASSED else verdict


def _judged(
    case: GraphCase, fault_of: Judge, compile: Callable[[], Verifiable], draw: int
) -> Verdict:
    """What ``fault_of`` says of the arguments and results of one call: the file's own checks, or
    another framework."""

    def check() -> Verdict:
        program = compile()
        given = case.case(draw).call(program)
        # Some of which the call updates.
        arguments = {name: np.array(given[name]) for name in case.graph.inputs}
        results = {name: given.pop(name) for name in case.graph.outputs}
        program(**given, out=results)
        fault = fault_of(arguments, results)
        return Verdict(Status.PASSED) if fault is None else Verdict(Status.FAILED, fault)

    return verdict_of(check)


def compiled(knobs: Knobs, case: GraphCase, on: Place = Place.DEVICE) -> Verifiable:
    """The graph for the target of the options, or what its kernels are, for the interpreter."""
    if on is Place.INTERPRETER:
        return InterpretedGraph(case.graph, find_target(knobs.target).machine)
    return compile_graph(case.graph, knobs.target, knobs.threads, knobs.constant)


def show_graphs(
    knobs: Knobs, stage: str, page: Path | None, legal: bool, json: bool = False
) -> None:
    """Does what ``tilewright show graph`` is asked for."""
    for given, name in ((page is not None, "page"), (legal, "legal"), (json, "json")):
        if given:
            raise ProblemError(
                f"graph takes no --{name}",
                where=f"--{name}",
                why="a graph is many kernels",
                cure="print them by --stage kernels, and show one by kernel FILE",
            )
    if stage and stage not in ("all", *_STAGES):
        raise ProblemError(
            f"there is no stage {stage!r}", where="--stage", cure=one_of(stage, ("all", *_STAGES))
        )
    for case in only(list(graphs_of(knobs))):
        print(f"# {case.arguments()}")
        if stage in ("", "all"):
            names = ("graph", *_PASSES, "kernels", "program")
            print("\n\n".join(f"# stage {name}\n{_shown(knobs, case, name)}" for name in names))
        else:
            print(_shown(knobs, case, stage).rstrip("\n"))


def _shown(knobs: Knobs, case: GraphCase, stage: str) -> str:
    if stage == "graph":
        return to_text(case.graph.kernel)
    if stage in _PASSES:
        stages: dict[str, Kernel] = {}
        optimized(case.graph.kernel, lambda record: stages.update({record.name: record.kernel}))
        return to_text(stages[stage])
    if stage in ("kernels", "program"):
        cut = cut_graph(optimized(case.graph.kernel))
        return kernels_text(cut) if stage == "kernels" else program_text(cut, plan(lifetimes(cut)))
    found = program_of(knobs, case)
    parts: list[str] = []
    for number, group in enumerate(found.groups):
        made = group.compiled
        text = repr(made.config) if stage == "config" else made.source(stage).rstrip("\n")
        parts.append(f"# kernel {number}, {group.kernel.name}\n{text}")
    return "\n\n".join(parts)


def program_of(knobs: Knobs, case: GraphCase) -> GraphProgram:
    """The program. Raises `UnsupportedError` where the target makes none of graphs."""
    found = compile_graph(case.graph, knobs.target, knobs.threads, knobs.constant)
    if not isinstance(found, GraphProgram):
        raise UnsupportedError(
            f"{knobs.target} makes no program of a graph",
            why="it runs the graph as it is",
            cure="choose another --target",
        )
    return found
