"""Rows of the database as JSON: all that they say, a row a line; or in the form T4 of Kernel Tuner
("TuningSchema" 1.0.0, `results-schema.json`), which other tools read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TextIO

from tilewright.engine.rows import Row, from_json
from tilewright.errors import DatabaseError, ScheduleError, one_of
from tilewright.recipes.config import Config, parse_config
from tilewright.recipes.parts.forms import Choices

SCHEMA = 1
FORMATS = ("json", "t4")


def write_rows(rows: Iterable[Row], stream: TextIO, format: str = "json") -> int:
    """Writes ``rows`` in a ``format`` of `FORMATS`; returns how many. Raises `DatabaseError` for
    another one."""
    if format not in FORMATS:
        raise DatabaseError(f"there is no format {format!r}", cure=one_of(format, FORMATS))
    head, name = (f'"schema": {SCHEMA}', "rows")
    if format == "t4":
        head, name = '"schema_version": "1.0.0"', "results"
    stream.write(f'{{{head}, "{name}": [')
    count = 0
    for row in rows:
        data = row.as_json() if format == "json" else t4(row)
        stream.write((",\n" if count else "\n") + json.dumps(data))
        count += 1
    stream.write("\n]}\n")
    return count


def read_rows(stream: TextIO) -> list[Row]:
    """The rows that `write_rows` wrote as JSON. Raises `DatabaseError` for anything else."""
    cure = "pass what `tilewright db export` wrote, without --format"
    try:
        data = json.load(stream)
    except (ValueError, RecursionError) as error:
        raise DatabaseError("the text is no JSON", why=str(error), cure=cure) from error
    if not isinstance(data, dict) or not isinstance(data.get("rows"), list):
        raise DatabaseError("the file has no rows", cure=cure)
    if data.get("schema") != SCHEMA:
        why = f"its schema is {data.get('schema')!r}, and this Tilewright reads {SCHEMA}"
        raise DatabaseError("the file is of another version", why=why, cure=cure)
    rows: list[Row] = []
    for number, item in enumerate(data["rows"], start=1):
        try:
            rows.append(from_json(item))
        except DatabaseError as error:
            raise DatabaseError(
                error.what, where=f"row {number}", why=error.why, cure=cure
            ) from error
    return rows


def t4(row: Row) -> dict[str, Any]:
    """A row as one of the results of a T4 file; its times are milliseconds."""
    measured = [] if row.seconds is None else [_measurement("time", row.seconds * 1e3, "ms")]
    said = {"kernel": row.title, "target": row.target, "generator": row.generator, "why": row.why}
    return {
        "timestamp": row.stamp,
        "configuration": choices_of(row.config),
        "objectives": ["time"],
        "times": {
            "compilation_time": row.compile_seconds * 1e3,
            "runtimes": [time * 1e3 for time in row.times],
        },
        "invalidity": row.outcome,
        "correctness": float(row.outcome == "correct"),
        "measurements": [
            *measured,
            _measurement("threads", row.threads),
            *(_measurement(name, text) for name, text in said.items() if text),
        ],
    }


def _measurement(name: str, value: float | str, unit: str = "") -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit}


def choices_of(text: str) -> dict[str, Any]:
    """The choices of a config by their paths; of one that no longer parses, its text."""
    try:
        config = parse_config(text)
    except ScheduleError:
        return {"config": text}
    return {"recipe": type(config).__name__, **dict(_choices(config, ""))}


def _choices(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Choices):
        value = {name: getattr(value, name) for name in value.names()}
    elif isinstance(value, tuple) and any(isinstance(item, Config) for item in value):
        value = dict(enumerate(value))
    if not isinstance(value, Mapping):
        yield path, value
        return
    for name, part in value.items():
        yield from _choices(part, f"{path}.{name}" if path else str(name))
