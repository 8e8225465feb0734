"""From a driver's name and a descriptor to a problem."""

from __future__ import annotations

from tilewright.problems.conv import ConvProblem
from tilewright.problems.descriptor import tokenize
from tilewright.problems.elementwise import BinaryProblem, EltwiseProblem, ReorderProblem
from tilewright.problems.library import LIBRARY
from tilewright.problems.matmul import MatmulProblem
from tilewright.problems.pieces import Piece, unknown
from tilewright.problems.pool import PoolProblem
from tilewright.problems.problem import Problem, name_suffix
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

# benchdnn's drivers that are others here.
OTHER_DRIVER_NAMES = {"reduction": "reduce", "ip": "conv", "sum": "binary"}


def parse(driver: str, text: str) -> Problem:
    """The problem that ``text`` asks of ``driver`` (a key of `DRIVERS`, or of
    `OTHER_DRIVER_NAMES`).

    Raises `ProblemError` for an unknown driver and for a descriptor that makes no sense.
    """
    if driver == "ip":
        return _inner_product(text)
    if driver == "sum":
        whole = ReorderProblem.parse(text)
        return BinaryProblem(whole.shape, whole.shape, whole.name)
    driver = OTHER_DRIVER_NAMES.get(driver, driver)
    if driver not in DRIVERS:
        raise unknown("driver", Piece.whole(driver), DRIVERS)
    return DRIVERS[driver].parse(text)


def _inner_product(text: str) -> ConvProblem:
    """benchdnn's ``mb2ic64ih7oc10``: a convolution whose kernel is as large as the image."""
    fields = tokenize(text, ("mb", "ic", "id", "ih", "iw", "oc"))
    sizes = {key: field.value for key, field in fields.by_key.items()}
    spatial = [key for key in ("id", "ih", "iw") if key in sizes]
    if not spatial:
        sizes["iw"], spatial = 1, ["iw"]
    sizes |= {"k" + key[1]: sizes[key] for key in spatial}
    described = "".join(f"{key}{size}" for key, size in sizes.items())
    return ConvProblem.parse(described + name_suffix(fields.name))
