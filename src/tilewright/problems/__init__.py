"""Problems: what can be asked for, as plain data, and the texts that ask for it.

In reading order:

- `problem`: what all problems have in common.
- `pieces`, `descriptor`, `shapes`: texts cut into pieces that know their place, for errors.
- `window`: one spatial dim of a sliding window; how missing sizes and padding are deduced.
- `draws`: random sizes.
- `conv`, `pool`, `matmul`, `reduce`, `elementwise`: problems, each with its parser; `library`: all
  other ops, each a record; `drivers` picks one by name.
- `functions`, `special_functions`, `error_functions`, `complex_functions`, `activations`: scalar
  functions as expressions of the IR's operators; `unary_functions`, `binary_functions`: those of
  elements, in one record each.
- `policy`, `knobs`, `post_ops`: direction, types, algorithms, scales, zero points, post-ops.

The grammar and the names are those of benchdnn, oneDNN's test driver.
"""

from tilewright.problems.binary_functions import (
    BINARY_FUNCTIONS,
    BINARY_RECORDS,
    BinaryFunction,
)
from tilewright.problems.conv import ConvProblem
from tilewright.problems.drivers import DRIVERS, OTHER_DRIVER_NAMES, parse
from tilewright.problems.elementwise import BinaryProblem, EltwiseProblem, ReorderProblem
from tilewright.problems.knobs import (
    Direction,
    Scale,
    ZeroPoint,
    parse_direction,
    parse_fpmath,
    parse_scales,
    parse_types,
    parse_zero_points,
)
from tilewright.problems.library import LIBRARY, Record
from tilewright.problems.matmul import MatmulProblem
from tilewright.problems.pieces import plain_name
from tilewright.problems.policy import Policy
from tilewright.problems.pool import PoolProblem
from tilewright.problems.post_ops import (
    Binary,
    PostOp,
    Prelu,
    Sum,
    Unary,
    describe_post_ops,
    parse_post_ops,
    parse_unary,
)
from tilewright.problems.problem import Answer, Problem, Shape
from tilewright.problems.reduce import ReduceProblem
from tilewright.problems.unary_functions import (
    UNARY_ALIASES,
    UNARY_FUNCTIONS,
    UnaryFunction,
)
from tilewright.problems.window import Window

__all__ = [
    "BINARY_FUNCTIONS",
    "BINARY_RECORDS",
    "DRIVERS",
    "LIBRARY",
    "OTHER_DRIVER_NAMES",
    "UNARY_ALIASES",
    "UNARY_FUNCTIONS",
    "Answer",
    "Binary",
    "BinaryFunction",
    "BinaryProblem",
    "ConvProblem",
    "Direction",
    "EltwiseProblem",
    "MatmulProblem",
    "Policy",
    "PoolProblem",
    "PostOp",
    "Prelu",
    "Problem",
    "Record",
    "ReduceProblem",
    "ReorderProblem",
    "Scale",
    "Shape",
    "Sum",
    "Unary",
    "UnaryFunction",
    "Window",
    "ZeroPoint",
    "describe_post_ops",
    "parse",
    "parse_direction",
    "parse_fpmath",
    "parse_post_ops",
    "parse_scales",
    "parse_types",
    "parse_unary",
    "parse_zero_points",
    "plain_name",
]
