"""What the tuner found to be fastest, asked for before the model is.

A database is never trusted: a row counts only if its seal fits, it is of the same kernel, target,
generator and threads, and its config parses; whether that is legal shows when it is scheduled.
Everything else is said in a warning, once a process, and the model chooses.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.engine.disk_cache import content_key
from tilewright.engine.generator import generator_version
from tilewright.engine.request import Request
from tilewright.targets.target import Target


@dataclass(frozen=True)
class Asked:
    """What a row has to be of, as `rows.Row` has it."""

    kernel: str
    target: str
    features: str
    generator: str
    threads: int

    @classmethod
    def of(cls, request: Request, target: Target, threads: int) -> Asked:
        """What is asked for when ``request`` is compiled for ``target``."""
        kernel = content_key(request.identity.encode())
        return cls(kernel, target.name, target.identity, generator_version(), threads)
