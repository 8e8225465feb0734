"""What a transform says that refuses: which one it is, what it cannot do, where, and the cure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tilewright.errors import ScheduleError
from tilewright.ir.printer import headline
from tilewright.ir.stmt import Kernel, Stmt

_running: ContextVar[str] = ContextVar("running", default="")


@contextmanager
def running(name: str) -> Iterator[None]:
    """Inside it, the transform ``name`` runs: refusals are its own."""
    token = _running.set(name)
    try:
        yield
    finally:
        _running.reset(token)


def refusal(
    what: str, where: Kernel | Stmt | str, cure: str | None, why: str | None = None
) -> ScheduleError:
    """The error of the running transform, which refuses ``what`` there."""
    if isinstance(where, Kernel):
        where = f"kernel {where.name}"
    elif not isinstance(where, str):
        where = headline(where)
    name = _running.get()
    return ScheduleError(f"{name}: {what}" if name else what, where=where, why=why, cure=cure)
