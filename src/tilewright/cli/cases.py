"""The cases of the command line: problems, and kernels from files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tilewright.bench import catalog
from tilewright.cli.batch import read_batch
from tilewright.cli.completing import FUSION, GRAPH, KERNEL
from tilewright.cli.kernels import draws, kernel_cases
from tilewright.cli.knobs import DEFAULTS, PROBLEM_KNOBS, Knobs, nothing_to_do, refuse_options
from tilewright.dtypes import DType, dtype
from tilewright.errors import ProblemError, one_of
from tilewright.ir.stmt import Kernel
from tilewright.ops.op import Op
from tilewright.problems import (
    DRIVERS,
    LIBRARY,
    Problem,
    parse,
    parse_direction,
    parse_fpmath,
    parse_post_ops,
    parse_scales,
    parse_types,
    parse_zero_points,
)
from tilewright.testing.case import TAG_KNOBS, Case
from tilewright.testing.kernel_case import KernelCase
from tilewright.testing.random_problems import random_cases

AnyCase = Case | KernelCase


def what_of(case: AnyCase) -> Op | Kernel:
    """The op or kernel of ``case``. Raises the errors of `Case.op`."""
    return case.op() if isinstance(case, Case) else case.kernel


def cases_of(knobs: Knobs, *, drawn: bool = False) -> Sequence[AnyCase]:
    """All cases, in the order of descriptors, with all combinations of knobs for each. ``drawn``:
    kernels get all the scalars of a call, random ones unless they are set.

    Raises `ProblemError` and other errors of the project for invalid input.
    """
    if knobs.driver == KERNEL:
        return _kernels(knobs, drawn)
    return _problems(knobs)


def _kernels(knobs: Knobs, drawn: bool) -> list[KernelCase]:
    refuse_options("kernel", [*knobs.texts, *knobs.given("batch")])
    if not knobs.descriptors:
        raise nothing_to_do("give a file with kernels: kernel FILE, or kernel FILE:NAME")
    cases = kernel_cases(knobs.descriptors, knobs.sets, knobs.constant, knobs.contents)
    if not drawn:
        return cases
    return [draw for case in cases for draw in draws(case, knobs.random, knobs.seed)]


def _problems(knobs: Knobs) -> list[Case]:
    if knobs.driver not in DRIVERS:
        raise ProblemError(
            f"unknown driver {knobs.driver!r}",
            where="the first argument",
            why="graphs have their own verbs: verify, show, bench, profile"
            if knobs.driver == GRAPH
            else "fusions have one verb: show"
            if knobs.driver == FUSION
            else None,
            cure=one_of(knobs.driver, (*DRIVERS, KERNEL)),
        )
    given = knobs.given("constant", "contents")
    refuse_options(knobs.driver, given, why="it is for kernels from files")
    cases: list[Case] = []
    for descriptor in knobs.descriptors:
        cases += _product(knobs.driver, parse(knobs.driver, descriptor), knobs.texts)
    for name in (name for word in knobs.sets for name in word.split(",")):
        cases += _set_cases(knobs, name)
    if knobs.batch is not None:
        for texts, descriptor in read_batch(knobs.batch, knobs.driver, knobs.texts, DEFAULTS):
            cases += _product(knobs.driver, parse(knobs.driver, descriptor), texts)
    if knobs.random:
        cases += _random(knobs)
    if not cases:
        raise nothing_to_do("give a descriptor, --set NAME or --batch FILE")
    return cases


def _set_cases(knobs: Knobs, name: str) -> Iterator[Case]:
    problem_set = catalog.load(name)
    if problem_set.driver != knobs.driver:
        raise ProblemError(
            f"set {name} is for {problem_set.driver}, not {knobs.driver}",
            where="--set",
            cure=f"use the driver {problem_set.driver}, or another set: tilewright sets",
        )
    for problem in problem_set.problems:
        yield from _product(knobs.driver, problem, knobs.texts)


def _random(knobs: Knobs) -> Iterator[Case]:
    if knobs.texts:
        raise ProblemError(
            "random cases draw their knobs themselves",
            where="--" + next(iter(knobs.texts)),
            cure="leave it out, or give descriptors instead of --random",
        )
    return random_cases(knobs.driver, knobs.random, knobs.seed)


def _product(driver: str, problem: Problem, texts: dict[str, str]) -> Iterator[Case]:
    """The cases of one problem: all combinations of the values of knobs."""
    values = DEFAULTS | texts
    tag_knobs = [TAG_KNOBS[role] for role in problem.roles if role in TAG_KNOBS]
    _check_knobs(driver, texts, tag_knobs)
    lists = [values[name].split(",") for name in values if not name.endswith("tag")]
    tag_lists = [values[name].split(",") for name in tag_knobs]
    for combination in itertools.product(*lists):
        chosen = dict(
            zip((name for name in values if not name.endswith("tag")), combination, strict=True)
        )
        case = _case(problem, chosen)
        for tags in itertools.product(*tag_lists):
            tag_of = dict(zip(tag_knobs, tags, strict=True))
            all_tags = (tag_of.get(TAG_KNOBS.get(role, ""), "any") for role in problem.roles)
            yield replace(case, tags=tuple(all_tags))


def _check_knobs(driver: str, texts: dict[str, str], tag_knobs: list[str]) -> None:
    """Refuses knobs that the driver would ignore."""
    useless = {*PROBLEM_KNOBS, "wtag"} - {*tag_knobs, *DRIVERS[driver].knobs}
    if driver in LIBRARY:
        useless |= {"attr-scales", "attr-zero-points", "attr-post-ops"}
    if driver not in ("conv", "matmul"):
        useless |= {"bia-dt", "attr-fpmath"}
    refuse_options(driver, (name for name in texts if name in useless))


def _case(problem: Problem, texts: dict[str, str]) -> Case:
    mb = texts["mb"]
    if not (mb.isascii() and mb.isdecimal() and len(mb) < 19):
        raise ProblemError(
            f"--mb takes a whole number, not {mb!r}", where="--mb", cure="write --mb 1"
        )
    problem = problem.with_mb(int(mb)) if int(mb) else problem
    for knob in problem.knobs:
        if texts[knob]:
            problem = getattr(problem, f"with_{knob}")(texts[knob])
    return Case(
        problem,
        parse_types(texts["dt"], problem.roles),
        direction=parse_direction(texts["dir"]),
        bias=_bias_type(texts["bia-dt"]),
        scales=parse_scales(texts["attr-scales"]),
        zero_points=parse_zero_points(texts["attr-zero-points"]),
        post_ops=parse_post_ops(texts["attr-post-ops"]),
        fpmath=parse_fpmath(texts["attr-fpmath"]),
    )


def _bias_type(text: str) -> DType | None:
    return dtype(text) if text else None
