"""Files of schedules."""

from __future__ import annotations

from pathlib import Path

from tilewright.errors import ArgumentError
from tilewright.recipes.config import OwnSchedule
from tilewright.schedule.records.reading import parse_schedule


def read_steps(path: Path) -> str:
    """The config that replays the schedule in a file, as text. Raises `ArgumentError` for a file
    that cannot be read, `ParseError` for one that is no schedule."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise ArgumentError(
            f"cannot read {path}", where="--schedule", why=reason, cure="choose another file"
        ) from error
    parse_schedule(text, str(path))
    return repr(OwnSchedule(text))
