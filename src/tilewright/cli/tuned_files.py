"""What ``tilewright tune`` makes of a database without a search: a report."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from tilewright.cli.files import OutputFile, open_output
from tilewright.cli.knobs import Knobs, nothing_to_do, refuse_options
from tilewright.tune.database import Database
from tilewright.tune.report import report_text
from tilewright.tune.search import Search


def report_database(knobs: Knobs, path: Path, file: Path | None) -> None:
    """Writes a report of all rows of the database at ``path`` to ``file``. Raises `ProblemError`
    where there is no file, or an option of a search, `DatabaseError` where there is no row."""
    if file is None:
        raise nothing_to_do(
            "say what is to be tuned, such as conv --set resnet_50; or give --report FILE.html, "
            "for what is in the database"
        )
    refuse_options("a report of a database", [*knobs.texts, *knobs.given("set", "batch")])
    with ExitStack() as stack:
        database = stack.enter_context(Database(path, readonly=True))
        page = open_output(stack, file, "--report")
        assert page is not None
        page.write(report_text(path.name, database.rows()).encode())
    print(f"{file}: a report of {path}")


def report_searches(page: OutputFile, database: Database, searches: Sequence[Search]) -> None:
    """Writes a report of what the ``database`` has of ``searches``, earlier runs included."""
    rows = [row for search in searches for row in database.rows(**asdict(search.subject.asked))]
    page.write(report_text(f"{database.path.name}: what was tuned", rows).encode())
