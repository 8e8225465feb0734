"""Rows of a database for tests."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tilewright.engine.kernel import CompiledKernel
from tilewright.engine.winners import Asked
from tilewright.tune.database import Row


def row(config: str = "PlainConfig()", seconds: float | None = 1e-3, **values: Any) -> Row:
    """A row of no kernel in particular, that took so long, or failed."""
    said: dict[str, Any] = {
        **dict.fromkeys(("kernel", "title", "features", "generator"), "k"),
        "target": "x86",
        "threads": 1,
        "outcome": "timeout" if seconds is None else "correct",
    }
    times = () if seconds is None else (seconds,)
    return Row(**{**said, "config": config, "times": times, **values})


def row_of(kernel: CompiledKernel, config: object, seconds: float, /, **values: Any) -> Row:
    """What the tuner stores of a ``config`` of a kernel that is compiled."""
    asked = asdict(Asked.of(kernel.request, kernel.target, kernel.threads))
    return row(str(config), seconds, **{**asked, "title": kernel.request.title(), **values})
