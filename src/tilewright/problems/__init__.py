"""Problems: what can be asked for, as plain data, and the texts that ask for it.

In reading order:

- `problem`: what all problems have in common.
- `pieces`, `descriptor`, `shapes`: texts cut into pieces that know their place, for errors.
- `window`: one spatial dim of a sliding window; how missing sizes and padding are deduced.
- `conv`, `pool`, `matmul`, `reduce`, `eltwise`, `binary`, `reorder`: one problem each, with its
  parser; `library`: all other ops, each a record; `drivers` picks one by name.
- `functions`, `special_functions`, `complex_functions`, `activations`: scalar functions as
  expressions of the IR's operators; `unary_functions`, `binary_functions`: those of elements, in
  one record each.
- `policy`, `knobs`, `post_ops`: direction, types, algorithms, scales, zero points, post-ops.

The grammar and the names are those of benchdnn, oneDNN's test driver.
"""

from tilewright.problems.binary import BinaryProblem, parse_binary
from tilewright.problems.binary_functions import (
    BINARY_FUNCTIONS,
    BINARY_RECORDS,
    BinaryFunction,
)
from tilewright.problems.conv import ConvProblem, conv_from_sizes, parse_conv
from tilewright.problems.drivers import DRIVERS, parse
from tilewright.problems.eltwise import EltwiseProblem, parse_eltwise
from tilewright.problems.knobs import (
    Direction,
    PoolAlgorithm,
    ReduceAlgorithm,
    Scale,
    ZeroPoint,
    parse_direction,
    parse_fpmath,
    parse_pool_algorithm,
    parse_reduce_algorithm,
    parse_scales,
    parse_types,
    parse_zero_points,
)
from tilewright.problems.library import LIBRARY, Record
from tilewright.problems.matmul import MatmulProblem, parse_matmul
from tilewright.problems.policy import Policy
from tilewright.problems.pool import PoolProblem, parse_pool, pool_from_sizes
from tilewright.problems.post_ops import (
    Binary,
    PostOp,
    Prelu,
    Sum,
    Unary,
    describe_post_ops,
    parse_binary_function,
    parse_post_ops,
    parse_unary,
)
from tilewright.problems.problem import Problem, Shape
from tilewright.problems.reduce import ReduceProblem, parse_reduce
from tilewright.problems.reorder import ReorderProblem, parse_reorder
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
    "UNARY_ALIASES",
    "UNARY_FUNCTIONS",
    "Binary",
    "BinaryFunction",
    "BinaryProblem",
    "ConvProblem",
    "Direction",
    "EltwiseProblem",
    "MatmulProblem",
    "Policy",
    "PoolAlgorithm",
    "PoolProblem",
    "PostOp",
    "Prelu",
    "Problem",
    "Record",
    "ReduceAlgorithm",
    "ReduceProblem",
    "ReorderProblem",
    "Scale",
    "Shape",
    "Sum",
    "Unary",
    "UnaryFunction",
    "Window",
    "ZeroPoint",
    "conv_from_sizes",
    "describe_post_ops",
    "parse",
    "parse_binary",
    "parse_binary_function",
    "parse_conv",
    "parse_direction",
    "parse_eltwise",
    "parse_fpmath",
    "parse_matmul",
    "parse_pool",
    "parse_pool_algorithm",
    "parse_post_ops",
    "parse_reduce",
    "parse_reduce_algorithm",
    "parse_reorder",
    "parse_scales",
    "parse_types",
    "parse_unary",
    "parse_zero_points",
    "pool_from_sizes",
]
