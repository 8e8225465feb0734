"""All commands together, and their exit codes for errors."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from tilewright import __version__
from tilewright.cli.completing import cut_from_completions
from tilewright.cli.loading import BAD_INPUT, loading
from tilewright.config import join_words_at_colons, settings
from tilewright.errors import ProblemError, TilewrightError, one_of

# The module of each command, and the first line of its help. A module is loaded when its command
# runs: most need the compiler, which takes longer to load than some commands take to run.
_COMMANDS: dict[str, tuple[str, str]] = {
    "verify": (
        "verbs",
        "Check kernels: against float64 or the interpreter, and for what they write.",
    ),
    "check": ("verbs", "Run kernels in the checking interpreter: no device is needed."),
    "bench": (
        "benchmarking",
        "Time kernels beside PyTorch (oneDNN), where it is installed, or beside another target.",
    ),
    "show": (
        "verbs",
        "Print how a kernel came to be: its IR at each stage, LLVM's IR, assembly, config, "
        "schedule.",
    ),
    "build": (
        "verbs",
        "Write a kernel or graphs for programs without Python, and the ABI in words.",
    ),
    "run": ("verbs", "Run a kernel on arrays from .npy files, all of the logical shape."),
    "tune": (
        "tuning",
        "Search for the config with which a kernel is fastest, and keep it in a database.",
    ),
    "profile": (
        "verbs",
        "Say where the time of a graph goes: its kernels, beside what the roofline allows.",
    ),
    "rules": ("information", "List the simplifier's rules: name, pattern, replacement, condition."),
    "targets": (
        "information",
        "List the targets, their feature levels and devices, and which of them run here.",
    ),
    "sets": ("information", "List the sets of problems that ship, or the problems of one."),
    "doctor": (
        "information",
        "Say what Tilewright finds here: machine, caches, devices, versions, settings.",
    ),
    "db": (
        "databases",
        "Look at a database of tuned kernels, export it, or put several together.",
    ),
    "cache": (
        "information",
        "Say what the disk cache holds (kernels, programs, predicted times), or clear it.",
    ),
}
# Of an option that makes a command another one, the module of that.
_OTHERWISE = {("tune", "--fit"): "rates", ("tune", "--accuracy"): "rates"}
_SETTINGS: dict[str, Any] = {
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


class _Commands(TyperGroup):
    """The commands by name with their help; a command is loaded before it runs."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _COMMANDS:
            return None
        return TyperCommand(cmd_name, help=_COMMANDS[cmd_name][1], rich_markup_mode=None)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            raise ProblemError(
                f"there is no command {args[0]!r}",
                where="the first argument",
                cure=one_of(args[0], _COMMANDS),
            )
        name, command, remaining = super().resolve_command(ctx, args)
        return name, command and _loaded(str(name), remaining), remaining


def _loaded(name: str, arguments: list[str]) -> Any:
    """The command, with its options, or with its commands."""
    homes = (_OTHERWISE.get((name, argument)) for argument in arguments)
    home = next(filter(None, homes), _COMMANDS[name][0])
    with loading():
        module = import_module(f"tilewright.cli.{home}")
    if hasattr(module, f"{name}_app"):
        return typer.main.get_command(getattr(module, f"{name}_app"))
    alone = typer.Typer(add_completion=False, **_SETTINGS)
    alone.command(name)(getattr(module, f"{name}_command"))
    return typer.main.get_command(alone)


app = typer.Typer(name="tilewright", cls=_Commands, no_args_is_help=True, **_SETTINGS)


def _print_version(requested: bool) -> None:
    if requested:
        print(f"tilewright {__version__}")
        raise typer.Exit


@app.callback()
def _tilewright(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Tensor kernels: verify them, time them, look into them, build them."""


def run() -> None:
    """Runs the command in the arguments, and exits; see `start.main`."""
    try:
        settings()  # a wrong setting is bad input, whatever the command
        cut_from_completions(join_words_at_colons())
        try:
            app(prog_name="tilewright")
        finally:
            # An output that cannot be written is an error of the command, not of the exit.
            sys.stdout.flush()
    except TilewrightError as error:
        _refuse(str(error))
    except BrokenPipeError:
        # The reader of the output has closed it: nothing must be flushed at exit.
        sys.stdout = sys.stderr
        sys.exit(0)
    except OSError as error:
        # Errors of files have a name; others are of the standard output.
        name = error.filename
        if name is None:
            name, sys.stdout = "the output", sys.stderr
        _refuse(f"{name}: {error.strerror or error}")
    except MemoryError:
        _refuse("there is not enough memory for these arrays\n  cure: choose a smaller problem")


def _refuse(message: str) -> None:
    print(f"tilewright: {message}", file=sys.stderr)
    sys.exit(BAD_INPUT)
