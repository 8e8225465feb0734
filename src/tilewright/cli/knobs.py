"""The options that commands share: which cases, on what.

`with_knobs` gives a command all of them: its function takes one `Knobs` first, and the command line
shows the options as if they were its own. `cases` makes the cases. The compiler is not imported
here, as `--help` and completion would have to wait for it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from tilewright.cli import completing
from tilewright.cli.completing import DRIVERS, FUSION, GRAPH, KERNEL
from tilewright.cli.files import read_text
from tilewright.cli.loading import loading
from tilewright.config import MAX_THREADS
from tilewright.errors import ProblemError

# Options whose values multiply cases (lists are separated by commas): defaults, and their help.
_TEXTS = {
    "dir": ("FWD_D", "FWD_D, FWD_B, BWD_D, BWD_W or BWD_WB; or a list."),
    "dt": ("f32", "A type, or SRC:WEI:DST; or a list: f32,bf16."),
    "stag": ("any", "Layout of src, such as nhwc."),
    "wtag": ("any", "Layout of the weights, or src1."),
    "dtag": ("any", "Layout of dst."),
    "mb": ("0", "Minibatch; 0: as in the descriptor."),
    "alg": ("", "What pool, reduce, eltwise (elu:0.5) or binary do."),
    "axis": ("", "The dim of softmax and the like."),
    "flags": ("", "Letters: of lnorm, bnorm, gnorm such as CH, of scan E and R."),
    "eps": ("", "Of lnorm, bnorm, gnorm: 1e-05; of norms of reduce: 0."),
    "p": ("", "The exponent of norms of reduce: 1."),
    "ss_dt": ("", "Of norms: the type of scale and shift."),
    "group": ("", "Of shuffle: the size of groups."),
    "value": ("", "Of pad: what constants are."),
    "scale": ("", "Of sdpa: the factor of scores."),
    "cap": ("", "Of sdpa: the bound of scores."),
    "window": ("", "Of sdpa: how many keys count."),
    "order": ("", "Of rnn: left2right, right2left, concat or sum."),
    "activation": ("", "Of rnn: RELU, TANH or LOGISTIC."),
    "bia-dt": ("", "Adds a bias of this type."),
    "attr-scales": ("", "Such as src:common:0.25+wei:per_oc, or wei:per_ocic:f32:64x1."),
    "attr-zero-points": ("", "Such as src:common:3, or wei:per_ocic:u4:64x1."),
    "attr-post-ops": ("", "Such as sum+relu or add:f32:per_oc."),
    "attr-fpmath": ("", "tf32 or bf16: what f32 is rounded to in products."),
}
DEFAULTS = {name: default for name, (default, _) in _TEXTS.items()}
# Settings of problems among these.
PROBLEM_KNOBS = (
    *("alg", "axis", "flags", "eps", "p", "ss_dt", "group", "value"),
    *("scale", "cap", "window", "order", "activation"),
)


class Place(Enum):
    """Where kernels run to be verified."""

    DEVICE = "device"
    INTERPRETER = "interpreter"


@dataclass(frozen=True)
class Showing:
    """The options of ``tilewright show`` besides: the stage ("": all of them), the files to write,
    and whether to say what is legal and to time groups."""

    stage: str = ""
    page: Path | None = None
    json: Path | None = None
    legal: bool = False
    measure: bool = False

    def named(self, *names: str) -> list[str]:
        """Those of ``names`` that are set."""
        return [name for name in names if getattr(self, name)]


@dataclass(frozen=True)
class Knobs:
    """The values of the shared options. ``texts``: those of `DEFAULTS` that were given; ``sets``
    are names of sets of problems, or a kernel's scalars with their values; ``schedule`` is the file
    of the schedule in ``config``."""

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

    def given(self, *options: str) -> list[str]:
        """Those of ``options`` that were given, by their names without dashes."""
        values = {**vars(self), "set": self.sets}
        return [name for name in options if values[name] not in (None, ())]


def refuse_options(
    subject: str, options: Iterable[str], why: str | None = None, cure: str = "leave it out"
) -> None:
    """Raises `ProblemError` for the first of ``options``, none of which ``subject`` has."""
    for name in options:
        raise ProblemError(f"{subject} takes no --{name}", where=f"--{name}", why=why, cure=cure)


def nothing_to_do(cure: str) -> ProblemError:
    """The error for options without a case."""
    return ProblemError("there is nothing to do", where="the command line", cure=cure)


def _text_option(name: str, help: str) -> inspect.Parameter:
    """An option of `_TEXTS`; "" where it is not given."""
    dashes, value = name.replace("_", "-"), name.replace("-", "_")
    spellings = dict.fromkeys((dashes, value)) if name.endswith("dt") else (name,)
    option = typer.Option(
        *(f"--{spelling}" for spelling in spellings),
        help=help,
        autocompletion=completing.directions if name == "dir" else None,
    )
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(value, kind, default="", annotation=Annotated[str, option])


_Driver = Annotated[
    str,
    typer.Argument(
        help="One of " + ", ".join((*DRIVERS, KERNEL, GRAPH, FUSION)) + ".",
        autocompletion=completing.drivers,
    ),
]


def _knobs(
    texts: dict[str, str],
    driver: _Driver,
    descriptors: Annotated[
        list[str] | None,
        typer.Argument(
            help="benchdnn descriptors, such as ic64ih56oc64kh3ph1. Of kernel: FILE or FILE:NAME, "
            "IR text. Of graph, fusion: files."
        ),
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            help="Such as x86:avx2, spirv, nvidia:sm_80: see targets.",
            autocompletion=completing.targets,
        ),
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
            "--set",
            help="Problems that ship: tilewright sets. Of kernel: a number, n=64.",
            autocompletion=completing.sets,
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
    return Knobs(
        driver,
        tuple(descriptors or ()),
        texts,
        target,
        threads,
        _config(target, config, schedule),
        batch,
        tuple(sets or ()),
        tuple(constant or ()),
        tuple(contents or ()),
        schedule,
    )


def _config(target: str, config: str | None, schedule: Path | None) -> str | None:
    """The config of the options: of a schedule's file, the one that replays it. Raises
    `ProblemError` for a config beside a schedule, and errors of the target and the file, such as
    `ParseError` for one that is no schedule."""
    with loading():
        from tilewright.recipes.config import OwnSchedule
        from tilewright.schedule.records.reading import parse_schedule
        from tilewright.targets.registry import find_target
    find_target(target)  # an unknown target is bad input, whatever the cases
    if schedule is not None:
        if config is not None:
            raise ProblemError(
                "a config and a schedule are given", where="--schedule", cure="leave one out"
            )
        text = read_text(schedule, "--schedule", "choose another file")
        parse_schedule(text, str(schedule))
        return repr(OwnSchedule(text))
    return config


def with_knobs(command: Callable[..., None], *, driver: bool = True) -> Callable[..., None]:
    """A command whose function takes `Knobs` as its first argument. Without ``driver``, that one
    may be left out, and is "" then."""
    texts = {name: _text_option(name, help) for name, (_, help) in _TEXTS.items()}
    shared = [*_parameters(_knobs)[1:], *texts.values()]
    if not driver:
        shared[0] = shared[0].replace(default="")
    own_options = _parameters(command)[1:]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        own_values = {option.name: values.pop(option.name) for option in own_options}
        texts_of = {name: values.pop(option.name) for name, option in texts.items()}
        texts_of = {name: text for name, text in texts_of.items() if text}
        command(_knobs(texts_of, **values), **own_values)

    # typer reads the signature, and would follow __wrapped__ to that of the command.
    del run.__dict__["__wrapped__"]
    run.__annotations__ = {}
    run.__signature__ = inspect.Signature([*shared, *own_options])  # type: ignore[attr-defined]
    return run


def _parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    """The parameters with evaluated annotations; keyword-only, so that they may be in any order."""
    hints = get_type_hints(function, include_extras=True)
    return [
        parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(function).parameters.items()
    ]
