"""The options that commands share, and the cases that they ask for: problems, and kernels.

`with_knobs` gives a command all of them: its function takes one `Knobs` first, and the command line
shows them as if they were written out.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from tilewright.bench import catalog
from tilewright.cli.batch import read_batch
from tilewright.cli.kernels import draws, kernel_cases
from tilewright.cli.steps import read_steps
from tilewright.config import MAX_THREADS
from tilewright.dtypes import DType, dtype
from tilewright.errors import ProblemError
from tilewright.ir.stmt import Kernel
from tilewright.ops.op import Op
from tilewright.problems import (
    DRIVERS,
    Problem,
    parse,
    parse_binary_function,
    parse_direction,
    parse_fpmath,
    parse_pool_algorithm,
    parse_post_ops,
    parse_reduce_algorithm,
    parse_scales,
    parse_types,
    parse_unary,
    parse_zero_points,
)
from tilewright.targets.registry import find_target
from tilewright.testing.case import ROLES, Case
from tilewright.testing.kernel_case import KernelCase
from tilewright.testing.random_problems import random_cases

# Knobs whose values make cases, by the name of the option; lists are separated by commas.
_DEFAULTS = {
    "dir": "FWD_D",
    "dt": "f32",
    "stag": "any",
    "wtag": "any",
    "dtag": "any",
    "mb": "0",
    "alg": "",
    "bia-dt": "",
    "attr-scales": "",
    "attr-zero-points": "",
    "attr-post-ops": "",
    "attr-fpmath": "",
}
# Which knob gives the tag of each tensor.
_TAG_KNOBS = {"src": "stag", "src0": "stag", "weights": "wtag", "src1": "wtag", "dst": "dtag"}
_ALGORITHM_PARSERS: dict[str, Callable[[str], object]] = {
    "pool": parse_pool_algorithm,
    "reduce": parse_reduce_algorithm,
    "eltwise": parse_unary,
    "binary": parse_binary_function,
}


AnyCase = Case | KernelCase
# The driver whose descriptors are files of kernels.
KERNEL = "kernel"


def what_of(case: AnyCase) -> Op | Kernel:
    """What is compiled for ``case``. Raises what `Case.op` does."""
    return case.op() if isinstance(case, Case) else case.kernel


@dataclass(frozen=True)
class Knobs:
    """What the shared options say. ``texts``: those of `_DEFAULTS` that were given; ``sets`` are
    names of sets of problems, or of a kernel's numbers with their values; ``schedule`` is the file
    that the schedule in ``config`` came from."""

    driver: str
    descriptors: tuple[str, ...] = ()
    texts: dict[str, str] = field(default_factory=dict)
    target: str = "x86"
    threads: int | None = None
    config: str | None = None
    batch: Path | None = None
    sets: tuple[str, ...] = ()
    constant: tuple[str, ...] = ()
    contents: tuple[Path, ...] = ()
    schedule: Path | None = None
    random: int = 0
    seed: int = 0

    def cases(self, *, drawn: bool = False) -> Sequence[AnyCase]:
        """All cases, in the order of descriptors, the product of knobs for each. ``drawn``: kernels
        with all the numbers of a call, random ones where none are set.

        Raises `ProblemError` and other errors of the project for what makes no sense.
        """
        if self.driver == KERNEL:
            return self._kernels(drawn)
        return self._problems()

    def _kernels(self, drawn: bool) -> list[KernelCase]:
        useless = [*self.texts, *(["batch"] if self.batch is not None else [])]
        for name in useless:
            raise ProblemError(f"kernel takes no --{name}", where=f"--{name}", cure="leave it out")
        if not self.descriptors:
            raise ProblemError(
                "there is nothing to do",
                where="the command line",
                cure="give a file with kernels: kernel FILE, or kernel FILE:NAME",
            )
        cases = kernel_cases(self.descriptors, self.sets, self.constant, self.contents)
        if not drawn:
            return cases
        return [each for case in cases for each in draws(case, self.random, self.seed)]

    def _problems(self) -> list[Case]:
        if self.driver not in DRIVERS:
            raise ProblemError(
                f"unknown driver {self.driver!r}",
                where="the first argument",
                cure="choose one of " + ", ".join((*DRIVERS, KERNEL)),
            )
        for name in [n for n in ("constant", "contents") if getattr(self, n)]:
            raise ProblemError(
                f"{self.driver} takes no --{name}",
                where=f"--{name}",
                why="it is for kernels from files",
                cure="leave it out",
            )
        found: list[Case] = []
        for descriptor in self.descriptors:
            found += _product(self.driver, parse(self.driver, descriptor), self.texts)
        for name in (name for word in self.sets for name in word.split(",")):
            found += self._of_set(name)
        if self.batch is not None:
            for texts, descriptor in read_batch(self.batch, self.driver, self.texts, _DEFAULTS):
                found += _product(self.driver, parse(self.driver, descriptor), texts)
        if self.random:
            found += self._random()
        if not found:
            raise ProblemError(
                "there is nothing to do",
                where="the command line",
                cure="give a descriptor, --set NAME or --batch FILE",
            )
        return found

    def _of_set(self, name: str) -> Iterator[Case]:
        chosen = catalog.load(name)
        if chosen.driver != self.driver:
            raise ProblemError(
                f"set {name} is for {chosen.driver}, not {self.driver}",
                where="--set",
                cure=f"use the driver {chosen.driver}, or another set: tilewright sets",
            )
        for problem in chosen.problems:
            yield from _product(self.driver, problem, self.texts)

    def _random(self) -> Iterator[Case]:
        if self.texts:
            raise ProblemError(
                "random cases draw their knobs themselves",
                where="--" + next(iter(self.texts)),
                cure="leave it out, or give descriptors instead of --random",
            )
        return random_cases(self.driver, self.random, self.seed)


def _product(driver: str, problem: Problem, texts: dict[str, str]) -> Iterator[Case]:
    """The cases of one problem: every combination of the values of knobs."""
    values = _DEFAULTS | texts
    tag_knobs = [_TAG_KNOBS[role] for role in ROLES[driver]]
    _check_knobs(driver, texts, tag_knobs)
    lists = [values[name].split(",") for name in values if not name.endswith("tag")]
    tag_lists = [values[name].split(",") for name in tag_knobs]
    for each in itertools.product(*lists):
        chosen = dict(zip((name for name in values if not name.endswith("tag")), each, strict=True))
        case = _case(driver, problem, chosen)
        for tags in itertools.product(*tag_lists):
            yield replace(case, tags=tags)


def _check_knobs(driver: str, texts: dict[str, str], tag_knobs: list[str]) -> None:
    """Refuses knobs that the driver would ignore."""
    useless = {"wtag"} - set(tag_knobs)
    if driver not in _ALGORITHM_PARSERS:
        useless.add("alg")
    if driver not in ("conv", "matmul"):
        useless |= {"bia-dt", "attr-fpmath"}
    for name in texts:
        if name in useless:
            raise ProblemError(
                f"{driver} takes no --{name}", where=f"--{name}", cure="leave it out"
            )


def _case(driver: str, problem: Problem, texts: dict[str, str]) -> Case:
    if texts["alg"]:
        _ALGORITHM_PARSERS[driver](texts["alg"])
    mb = texts["mb"]
    if not (mb.isascii() and mb.isdecimal() and len(mb) < 19):
        raise ProblemError(
            f"--mb takes a whole number, not {mb!r}", where="--mb", cure="write --mb 1"
        )
    return Case(
        problem.with_mb(int(mb)) if int(mb) else problem,
        parse_types(texts["dt"], ROLES[driver]),
        direction=parse_direction(texts["dir"]),
        algorithm=texts["alg"],
        bias=_bias_type(texts["bia-dt"]),
        scales=parse_scales(texts["attr-scales"]),
        zero_points=parse_zero_points(texts["attr-zero-points"]),
        post_ops=parse_post_ops(texts["attr-post-ops"]),
        fpmath=parse_fpmath(texts["attr-fpmath"]),
    )


def _bias_type(text: str) -> DType | None:
    return dtype(text) if text else None


def _texts(
    dir: Annotated[
        str, typer.Option("--dir", help="FWD_D, FWD_B, BWD_D, BWD_W or BWD_WB; or a list.")
    ] = "",
    dt: Annotated[
        str, typer.Option("--dt", help="A type, or SRC:WEI:DST; or a list: f32,bf16.")
    ] = "",
    stag: Annotated[str, typer.Option("--stag", help="Layout of src, such as nhwc.")] = "",
    wtag: Annotated[str, typer.Option("--wtag", help="Layout of the weights, or src1.")] = "",
    dtag: Annotated[str, typer.Option("--dtag", help="Layout of dst.")] = "",
    mb: Annotated[str, typer.Option("--mb", help="Minibatch; 0: as in the descriptor.")] = "",
    alg: Annotated[
        str, typer.Option("--alg", help="What pool, reduce, eltwise (elu:0.5) or binary do.")
    ] = "",
    bia_dt: Annotated[
        str, typer.Option("--bia-dt", "--bia_dt", help="Adds a bias of this type.")
    ] = "",
    attr_scales: Annotated[
        str, typer.Option("--attr-scales", help="Such as src:common:0.25+wei:per_oc.")
    ] = "",
    attr_zero_points: Annotated[
        str, typer.Option("--attr-zero-points", help="Such as src:common:3.")
    ] = "",
    attr_post_ops: Annotated[
        str, typer.Option("--attr-post-ops", help="Such as sum+relu or add:f32:per_oc.")
    ] = "",
    attr_fpmath: Annotated[
        str, typer.Option("--attr-fpmath", help="tf32 or bf16: what f32 is rounded to in products.")
    ] = "",
) -> dict[str, str]:
    """The options of `_DEFAULTS` that were given."""
    given = locals()
    texts = {name: given[name.replace("-", "_")] for name in _DEFAULTS}
    return {name: text for name, text in texts.items() if text}


def _knobs(
    texts: dict[str, str],
    driver: Annotated[str, typer.Argument(help="One of " + ", ".join((*DRIVERS, KERNEL)) + ".")],
    descriptors: Annotated[
        list[str] | None,
        typer.Argument(
            help="benchdnn descriptors, such as ic64ih56oc64kh3ph1. Of kernel: FILE or FILE:NAME, "
            "IR text."
        ),
    ] = None,
    target: Annotated[
        str, typer.Option("--target", help="Such as x86:avx2, spirv, nvidia:sm_80: see targets.")
    ] = "x86",
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            min=1,
            max=MAX_THREADS,
            help="Default: all of this process. Of an OpenCL CPU, so many cores; GPUs run whole.",
        ),
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", help="A schedule's config, as show prints it.")
    ] = None,
    schedule: Annotated[
        Path | None,
        typer.Option("--schedule", help="A file of steps, as show --stage schedule prints them."),
    ] = None,
    batch: Annotated[
        Path | None, typer.Option("--batch", help="A file of options and descriptors.")
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Problems that ship: tilewright sets. Of kernel: a number, n=64."
        ),
    ] = None,
    constant: Annotated[
        list[str] | None,
        typer.Option("--constant", help="Of kernel: an array that may be packed beforehand."),
    ] = None,
    contents: Annotated[
        list[Path] | None,
        typer.Option("--contents", help="Of kernel: a constant's, FILE.npy, known by its digest."),
    ] = None,
) -> Knobs:
    find_target(target)  # one that is not there is bad input, whatever the cases
    if schedule is not None:
        if config is not None:
            raise ProblemError(
                "a config and a schedule are given", where="--schedule", cure="leave one out"
            )
        config = read_steps(schedule)
    return Knobs(
        driver,
        tuple(descriptors or ()),
        texts,
        target,
        threads,
        config,
        batch,
        tuple(sets or ()),
        tuple(constant or ()),
        tuple(contents or ()),
        schedule,
    )


def with_knobs(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose function takes `Knobs` as its first argument."""
    texts = _parameters(_texts)
    shared = [*_parameters(_knobs)[1:], *texts]
    own = _parameters(command)[1:]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        mine = {parameter.name: given.pop(parameter.name) for parameter in own}
        said = _texts(**{parameter.name: given.pop(parameter.name) for parameter in texts})
        command(_knobs(said, **given), **mine)

    # typer reads the signature, and would follow __wrapped__ to the command's.
    del run.__dict__["__wrapped__"]
    run.__annotations__ = {}
    run.__signature__ = inspect.Signature([*shared, *own])  # type: ignore[attr-defined]
    return run


def _parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    """The parameters with their annotations evaluated; keyword-only, so that any order will do."""
    hints = get_type_hints(function, include_extras=True)
    return [
        parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(function).parameters.items()
    ]
