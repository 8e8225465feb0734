"""From a driver's name and a descriptor to a problem."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.problems.binary import parse_binary
from tilewright.problems.conv import parse_conv
from tilewright.problems.eltwise import parse_eltwise
from tilewright.problems.library import LIBRARY
from tilewright.problems.matmul import parse_matmul
from tilewright.problems.pieces import Piece, unknown
from tilewright.problems.pool import parse_pool
from tilewright.problems.problem import Problem
from tilewright.problems.reduce import parse_reduce
from tilewright.problems.reorder import parse_reorder

DRIVERS: dict[str, Callable[[str], Problem]] = {
    "conv": parse_conv,
    "matmul": parse_matmul,
    "pool": parse_pool,
    "reduce": parse_reduce,
    "eltwise": parse_eltwise,
    "binary": parse_binary,
    "reorder": parse_reorder,
    **{driver: record.parse for driver, record in LIBRARY.items()},
}


def parse(driver: str, text: str) -> Problem:
    """The problem that ``text`` asks of ``driver`` (a key of `DRIVERS`).

    Raises `ProblemError` for an unknown driver and for a descriptor that makes no sense.
    """
    if driver not in DRIVERS:
        raise unknown("driver", Piece.whole(driver), DRIVERS)
    return DRIVERS[driver](text)
