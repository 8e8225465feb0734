"""All commands together, and how they end."""

from __future__ import annotations

import sys

import typer

from tilewright.cli.benchmarking import bench_command
from tilewright.cli.check import check_command
from tilewright.cli.checking import verify_command
from tilewright.cli.information import (
    cache_command,
    doctor_command,
    rules_command,
    sets_command,
    targets_command,
)
from tilewright.cli.inspecting import build_command, run_command, show_command
from tilewright.config import settings
from tilewright.errors import TilewrightError

BAD_INPUT = 2

app = typer.Typer(
    name="tilewright",
    help="Tensor kernels: verify them, time them, look into them, build them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, command in {
    "verify": verify_command,
    "check": check_command,
    "bench": bench_command,
    "show": show_command,
    "build": build_command,
    "run": run_command,
    "rules": rules_command,
    "targets": targets_command,
    "sets": sets_command,
    "doctor": doctor_command,
    "cache": cache_command,
}.items():
    app.command(name)(command)


def run() -> None:
    """Runs the command that the arguments name, and exits; see `start.main`."""
    try:
        settings()  # a wrong one is bad input, whatever the command
        try:
            app(prog_name="tilewright")
        finally:
            # What nobody takes is an error of the command, not of the interpreter's end.
            sys.stdout.flush()
    except TilewrightError as error:
        _refuse(str(error))
    except BrokenPipeError:
        # Whoever read our output has seen enough; nothing is left to be flushed at exit.
        sys.stdout = sys.stderr
        sys.exit(0)
    except OSError as error:
        # Those of files have a name: all else that is written goes to the standard output.
        name = error.filename
        if name is None:
            name, sys.stdout = "the output", sys.stderr
        _refuse(f"{name}: {error.strerror or error}")
    except MemoryError:
        _refuse("there is not enough memory for these arrays\n  cure: choose a smaller problem")


def _refuse(message: str) -> None:
    print(f"tilewright: {message}", file=sys.stderr)
    sys.exit(BAD_INPUT)
