"""``tilewright db``: what the tuner left, looked at, passed on, put together, tidied up."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.files import open_output, read_text
from tilewright.cli.loading import loading
from tilewright.errors import ArgumentError, short

if TYPE_CHECKING:
    from tilewright.tune.database import Database, Row

db_app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

File = Annotated[Path, typer.Argument(help="A database, as `tilewright tune --db FILE` makes it.")]
Others = Annotated[list[Path], typer.Argument(help="The files whose rows are added.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write the rows to this file, too.")]
Kernel = Annotated[str, typer.Option("--kernel", help="Only kernels with this in their title.")]
Target = Annotated[str | None, typer.Option("--target", help="Only rows of this target.")]
Outcome = Annotated[
    str | None, typer.Option("--outcome", help="Only rows that ended so: correct, compile, ...")
]

_UNITS = {"d": 1.0, "h": 1 / 24, "w": 7.0}


@db_app.callback()
def db_command() -> None:
    """Look at a database of tuned kernels, export it, or put several together.

    Exit codes: 0 fine, 1 there is no such row, or some could not be read, 2 bad input.
    """


@db_app.command("show")
def show(
    file: File,
    kernel: Kernel = "",
    target: Target = None,
    outcome: Outcome = None,
    newest: Annotated[
        int, typer.Option("--newest", min=0, help="At most so many rows; 0: all.")
    ] = 50,
    json_file: Json = None,
) -> None:
    """Print what was tried, the newest last, and how many rows there are of each outcome.

    Examples:

      tilewright db show tuned.db

      tilewright db show tuned.db --kernel ic64 --outcome timeout --json rows.json
    """
    with ExitStack() as stack:
        database = _opened(stack, file, readonly=True)
        output = open_output(stack, json_file, "--json")
        rows = [row for row in database.rows(target=target, outcome=outcome) if kernel in row.title]
        shown = rows[-newest:] if newest else rows
        cells = [
            (str(r.number), r.title, r.target, str(r.threads), r.outcome, _time(r), _what(r))
            for r in shown
        ]
        _table(("row", "kernel", "target", "threads", "outcome", "time", "config, or why"), cells)
        counts = ", ".join(f"{count} {name}" for name, count in database.counts().items())
        print(f"{len(shown)} of {len(rows)} rows; in the file: {counts or 'none'}")
        if output is not None:
            output.write(_exported(rows))
    _end(bool(rows))


@db_app.command("best")
def best(file: File, kernel: Kernel = "", target: Target = None, json_file: Json = None) -> None:
    """Print the fastest config of each kernel, in each place that it was tried in.

    "Used" is what `compile` takes where it finds this file: rows of this version of the generator.

    Examples:

      tilewright db best tuned.db

      tilewright db best tuned.db --kernel ic64 --target x86 --json best.json
    """
    with loading():
        from tilewright.engine.generator import generator_version
    with ExitStack() as stack:
        database = _opened(stack, file, readonly=True)
        output = open_output(stack, json_file, "--json")
        rows = [row for row in database.winners(target) if kernel in row.title]
        cells = [
            (
                *(str(r.number), r.title, r.target, str(r.threads), _time(r)),
                *("yes" if r.generator == generator_version() else "no", r.stamp[:10], r.config),
            )
            for r in rows
        ]
        _table(("row", "kernel", "target", "threads", "time", "used", "date", "config"), cells)
        print(f"{len(rows)} kernels")
        if output is not None:
            output.write(_exported(rows))
    _end(bool(rows))


@db_app.command("export")
def export(
    file: File,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="To this file.")] = None,
    format: Annotated[
        str, typer.Option("--format", help="json (all of each row), or t4 (Kernel Tuner's).")
    ] = "json",
    kernel: Kernel = "",
    target: Target = None,
    outcome: Outcome = None,
) -> None:
    """Write rows as JSON, to the standard output or a file.

    Examples:

      tilewright db export tuned.db -o tuned.json

      tilewright db export tuned.db --format t4 --kernel ic64 -o results.json
    """
    with ExitStack() as stack:
        database = _opened(stack, file, readonly=True)
        output = open_output(stack, out, "--out")
        rows = [row for row in database.rows(target=target, outcome=outcome) if kernel in row.title]
        data = _exported(rows, format)
        if output is None:
            sys.stdout.write(data.decode())
            return
        output.write(data)
    print(f"{len(rows)} rows written to {out}")


@db_app.command("import")
def import_(file: File, others: Others) -> None:
    """Add the rows that `export` wrote as JSON, newer ones in place of older ones.

    Examples:

      tilewright db import tuned.db theirs.json
    """
    texts = [read_text(path, "OTHERS", "name a file that `db export` wrote") for path in others]
    with ExitStack() as stack:
        database = _opened(stack, file)
        for path, text in zip(others, texts, strict=True):
            print(f"{path}: {database.import_(StringIO(text))} rows added")


@db_app.command("merge")
def merge(file: File, others: Others) -> None:
    """Add the rows of other databases, newer ones in place of older ones; of a damaged one, what
    can be read.

    Examples:

      tilewright db merge tuned.db machine1.db machine2.db
    """
    damaged = 0
    with ExitStack() as stack:
        database = _opened(stack, file)
        for path in others:
            merged = database.merge(path)
            damaged += merged.damaged
            lost = f", {merged.damaged} cannot be read" if merged.damaged else ""
            print(f"{path}: {merged.added} rows added{lost}")
    _end(not damaged)


@db_app.command("prune")
def prune(
    file: File,
    older_than: Annotated[
        str | None, typer.Option("--older-than", help="Rows older than so long: 30d, 12h, 8w.")
    ] = None,
    other_generators: Annotated[
        bool, typer.Option("--other-generators", help="Rows of other versions of the generator.")
    ] = False,
    failed: Annotated[bool, typer.Option("--failed", help="Rows that are not correct.")] = False,
    keep: Annotated[
        int | None, typer.Option("--keep", min=0, help="All but the N fastest of each kernel.")
    ] = None,
) -> None:
    """Remove rows that are damaged, and those that the options name.

    Examples:

      tilewright db prune tuned.db --keep 20 --other-generators

      tilewright db prune tuned.db --older-than 90d
    """
    with loading():
        from tilewright.engine.generator import generator_version
    before = None if older_than is None else _ago(older_than)
    generator = generator_version() if other_generators else None
    with ExitStack() as stack:
        database = _opened(stack, file)
        count = database.prune(before=before, generators_but=generator, failed=failed, keep=keep)
    print(f"{count} rows removed")


def _opened(stack: ExitStack, file: Path, readonly: bool = False) -> Database:
    with loading():
        from tilewright.tune.database import Database
    return stack.enter_context(Database(file, readonly=readonly))


def _exported(rows: Sequence[Row], format: str = "json") -> bytes:
    with loading():
        from tilewright.tune.exchange import write_rows
    text = StringIO()
    write_rows(rows, text, format)
    return text.getvalue().encode()


def _time(row: Row) -> str:
    with loading():
        from tilewright.engine.overview import duration
    return "" if row.seconds is None else duration(row.seconds)


def _what(row: Row) -> str:
    return row.config if row.outcome == "correct" else row.why or row.config


def _ago(text: str) -> str:
    """The time that is so long ago, as rows have it."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not (number.isascii() and number.isdecimal()) or len(number) > 5:
        raise ArgumentError(
            f"{short(text)} is no length of time",
            where="--older-than",
            cure="write a whole number and h, d or w, such as 30d",
        )
    return (datetime.now(UTC) - timedelta(days=int(number) * _UNITS[unit])).isoformat()


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A line for each row; a cell is as wide as its column, and the last as wide as it is."""
    cells = [titles, *((name.replace("\n", " ") for name in row) for row in rows)]
    lines = [list(row) for row in cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles) - 1)]
    for line in lines if rows else ():
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=False))
        print("  ".join((*padded, line[-1])).rstrip())


def _end(fine: bool) -> Any:
    if not fine:
        raise typer.Exit(1)
