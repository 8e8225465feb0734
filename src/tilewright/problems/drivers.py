"""From a driver's name and a descriptor to a problem."""

from __future__ import annotations

from tilewright.problems.conv import ConvProblem
from tilewright.problems.elementwise import BinaryProblem, EltwiseProblem, ReorderProblem
from tilewright.problems.library import LIBRARY
from tilewright.problems.matmul import MatmulProblem
from tilewright.problems.pieces import Piece, unknown
from tilewright.problems.pool import PoolProblem
from tilewright.problems.problem import Problem
from tilewright.problems.reduce import ReduceProblem

_FOUNDATION: tuple[type[Problem], ...] = (
    ConvProblem,
    MatmulProblem,
    PoolProblem,
    ReduceProblem,
    EltwiseProblem,
    BinaryProblem,
    ReorderProblem,
)
DRIVERS: dict[str, type[Problem]] = {kind.driver: kind for kind in _FOUNDATION} | LIBRARY

# benchdnn's names of drivers that have others here.
OTHER_DRIVER_NAMES = {"reduction": "reduce"}


def parse(driver: str, text: str) -> Problem:
    """The problem that ``text`` asks of ``driver`` (a key of `DRIVERS`).

    Raises `ProblemError` for an unknown driver and for a descriptor that makes no sense.
    """
    if driver not in DRIVERS:
        raise unknown("driver", Piece.whole(driver), DRIVERS)
    return DRIVERS[driver].parse(text)
