"""The cases of the command line: problems, and kernels from files."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import typer

from tilewright.bench import catalog
from tilewright.cli.batch import Line, read_batch
from tilewright.cli.benchdnn import (
    IGNORED,
    OPTIONS,
    as_convolutions,
    by_places,
    check_available,
    check_options,
    in_our_words,
    with_bias,
)
from tilewright.cli.benchdnn_layers import descriptor_in_our_words, with_mask, with_sizes
from tilewright.cli.completing import FUSION, GRAPH, KERNEL
from tilewright.cli.kernels import draws, kernel_cases
from tilewright.cli.knobs import DEFAULTS, PROBLEM_KNOBS, Knobs, nothing_to_do, refuse_options
from tilewright.dtypes import DType, dtype
from tilewright.errors import (
    LayoutError,
    ProblemError,
    TilewrightError,
    UnsupportedError,
    one_of,
)
from tilewright.ir.stmt import Kernel
from tilewright.ops.op import Op
from tilewright.problems import (
    DRIVERS,
    LIBRARY,
    OTHER_DRIVER_NAMES,
    PoolProblem,
    Problem,
    parse,
    parse_direction,
    parse_fpmath,
    parse_post_ops,
    parse_scales,
    parse_types,
    parse_zero_points,
    plain_name,
)
from tilewright.problems.library import AttentionProblem, DeconvProblem, RecurrentProblem
from tilewright.testing.case import TAG_KNOBS, Case
from tilewright.testing.kernel_case import KernelCase
from tilewright.testing.random_problems import random_cases

AnyCase = Case | KernelCase


@dataclass(frozen=True)
class Unread:
    """Words of a file of which no case can be made, and the error that says why."""

    driver: str
    words: str
    where: str
    error: TilewrightError

    def arguments(self) -> str:
        """What stands in the file, and where, in the place of what repeats a case."""
        return f"{self.driver} {self.words} ({self.where})"


def what_of(case: AnyCase) -> Op | Kernel:
    """The op or kernel of ``case``. Raises the errors of `Case.op`."""
    return case.op() if isinstance(case, Case) else case.kernel


def cases_of(
    knobs: Knobs, *, drawn: bool = False, unread: list[Unread] | None = None
) -> Sequence[AnyCase]:
    """All cases, in the order of descriptors, with all combinations of knobs for each. ``drawn``:
    kernels get all the scalars of a call, random ones unless they are set. ``unread`` gets what
    makes no case in a batch file; without it, the first of these is raised.

    Raises `ProblemError` and other errors of the project for invalid input.
    """
    if knobs.driver == KERNEL:
        return _kernels(knobs, drawn)
    return _problems(knobs, unread)


def _kernels(knobs: Knobs, drawn: bool) -> list[KernelCase]:
    refuse_options("kernel", [*knobs.texts, *knobs.given("batch")])
    if not knobs.descriptors:
        raise nothing_to_do("give a file with kernels: kernel FILE, or kernel FILE:NAME")
    cases = kernel_cases(knobs.descriptors, knobs.sets, knobs.constant, knobs.contents)
    if not drawn:
        return cases
    return [draw for case in cases for draw in draws(case, knobs.random, knobs.seed)]


def _problems(knobs: Knobs, unread: list[Unread] | None) -> list[Case]:
    asked, driver = knobs.driver, OTHER_DRIVER_NAMES.get(knobs.driver, knobs.driver)
    knobs = replace(knobs, driver=driver)
    if driver not in DRIVERS:
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
    options = knobs.given("constant", "contents")
    refuse_options(knobs.driver, options, why="it is for kernels from files")
    cases: list[Case] = []
    for descriptor in knobs.descriptors:
        cases += _product(parse(asked, descriptor), knobs.texts)
    for name in (name for word in knobs.sets for name in word.split(",")):
        cases += _set_cases(knobs, name)
    bad: list[Unread] = []
    if knobs.batch is not None:
        for line in batch_lines(replace(knobs, driver=asked)):
            cases += cases_of_line(asked, line, bad)
        if bad and unread is None:
            raise bad[0].error
    if unread is not None:
        unread += bad
    if knobs.random:
        cases += _random(knobs)
    if not cases and not bad:
        raise nothing_to_do("give a descriptor, --set NAME or --batch FILE")
    return cases


def batch_lines(knobs: Knobs) -> Iterator[Line]:
    """The descriptors of the batch file with their options. What is ignored is said on the standard
    error, once."""
    assert knobs.batch is not None
    noted: set[str] = set()
    for line in read_batch(knobs.batch, knobs.driver, knobs.texts, (*DEFAULTS, *OPTIONS)):
        for name in line.options:
            if name in IGNORED and name not in noted:
                noted.add(name)
                typer.echo(f"note: --{name} is ignored: {IGNORED[name]}", err=True)
        yield line


def cases_of_line(driver: str, line: Line, unread: list[Unread]) -> Iterator[Case]:
    """The cases of one descriptor of a batch file; what makes none is added to ``unread``, once for
    each reason."""
    reasons: set[str] = set()

    def refuse(error: TilewrightError) -> None:
        if error.what not in reasons:
            reasons.add(error.what)
            words = " ".join([*(f"--{n}={v}" for n, v in line.options.items()), line.word])
            unread.append(Unread(driver, words, line.where, error))

    if line.error is not None:
        return refuse(line.error)
    try:
        check_options(driver, line.options)
        problem = parse(driver, descriptor_in_our_words(driver, line.word))
        combinations = [
            combination
            for texts in in_our_words(driver, line.options)
            for combination in _combinations(problem, texts)
        ]
    except (LayoutError, ProblemError, UnsupportedError) as error:
        return refuse(error)
    for combination in combinations:
        try:
            said: Iterable[tuple[Problem, dict[str, str]]] = [(problem, combination)]
            if isinstance(problem, DeconvProblem):
                said = as_convolutions(problem, combination)
            elif isinstance(problem, RecurrentProblem):
                said = [with_sizes(problem, combination)]
            elif isinstance(problem, AttentionProblem):
                said = [with_mask(problem, combination)]
            elif isinstance(problem, PoolProblem) and _is_gradient_of_maximum(combination):
                said = [by_places(problem, combination)]
            for layer, values in said:
                yield _case(layer, with_bias(layer, values))
        except (LayoutError, ProblemError, UnsupportedError) as error:
            refuse(error)
    return None


def _is_gradient_of_maximum(values: Mapping[str, str]) -> bool:
    return (
        values["dir"].upper() == "BWD_D" and plain_name(values["alg"] or "max", ("max",)) == "max"
    )


def _set_cases(knobs: Knobs, name: str) -> Iterator[Case]:
    problem_set = catalog.load(name)
    if problem_set.driver != knobs.driver:
        raise ProblemError(
            f"set {name} is for {problem_set.driver}, not {knobs.driver}",
            where="--set",
            cure=f"use the driver {problem_set.driver}, or another set: tilewright sets",
        )
    for problem in problem_set.problems:
        yield from _product(problem, knobs.texts)


def _random(knobs: Knobs) -> Iterator[Case]:
    if knobs.texts:
        raise ProblemError(
            "random cases draw their knobs themselves",
            where="--" + next(iter(knobs.texts)),
            cure="leave it out, or give descriptors instead of --random",
        )
    return random_cases(knobs.driver, knobs.random, knobs.seed)


def _product(problem: Problem, texts: Mapping[str, str]) -> Iterator[Case]:
    """The cases of one problem: all combinations of the values of knobs."""
    return (_case(problem, combination) for combination in _combinations(problem, texts))


def _combinations(problem: Problem, texts: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """All combinations of the values of knobs. Raises `ProblemError` for a tag of a tensor that the
    problem does not have."""
    tag_knobs = {TAG_KNOBS[role] for role in problem.roles if role in TAG_KNOBS}
    refuse_options(problem.driver, (n for n in texts if n.endswith("tag") and n not in tag_knobs))
    values = DEFAULTS | dict(texts)
    names = [name for name in values if not name.endswith("tag") or name in tag_knobs]
    for combination in itertools.product(*(values[name].split(",") for name in names)):
        yield dict(zip(names, combination, strict=True))


def _check_knobs(problem: Problem, values: Mapping[str, str]) -> None:
    """Refuses knobs that the driver would ignore."""
    driver = problem.driver
    check_available(driver, values)
    names = [name for name, value in values.items() if value]
    refuse_options(driver, (n for n in names if n in PROBLEM_KNOBS and n not in problem.knobs))
    bare = driver in LIBRARY and not LIBRARY[driver].finished
    attributes = {"attr-scales", "attr-zero-points", "attr-post-ops"} if bare else set()
    if driver not in ("conv", "matmul"):
        attributes |= {"bia-dt", "attr-fpmath"}
    for name in names:
        if name in attributes:
            raise UnsupportedError(
                f"{driver} takes no --{name}", where=f"--{name}", cure="make it an op of its own"
            )


def _case(problem: Problem, texts: dict[str, str]) -> Case:
    _check_knobs(problem, texts)
    mb = texts["mb"]
    if not (mb.isascii() and mb.isdecimal() and len(mb) < 19):
        raise ProblemError(
            f"--mb takes a whole number, not {mb!r}", where="--mb", cure="write --mb 1"
        )
    problem = problem.with_mb(int(mb)) if int(mb) else problem
    for knob in problem.knobs:
        if texts[knob]:
            problem = problem.with_option(knob, texts[knob])
    if texts["dir"].upper() == "FWD_I":
        problem = problem.for_inference()
    return Case(
        problem,
        parse_types(texts["dt"], problem.roles),
        tuple(texts.get(TAG_KNOBS.get(role, ""), "any") for role in problem.roles),
        direction=parse_direction(texts["dir"]),
        bias=_bias_type(texts["bia-dt"]),
        scales=parse_scales(texts["attr-scales"]),
        zero_points=parse_zero_points(texts["attr-zero-points"]),
        post_ops=parse_post_ops(texts["attr-post-ops"]),
        fpmath=parse_fpmath(texts["attr-fpmath"]),
    )


def _bias_type(text: str) -> DType | None:
    return dtype(text) if text else None
