"""How a command of the command line ended; the fixture ``tilewright`` runs one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Command = Callable[..., Ended]
