"""The intermediate representation.

In reading order: `expr` (expressions) with `operators` (what they compute), `buffer` (memory and
layouts), `load` (expressions that read it), `stmt` (statements, views, structured ops, kernels),
`functions` (what calls do), `visit` (walking and rewriting), `uses` and `computes` (what
statements, views and structured ops depend on), `opaque` (named nests), `compare` (structural
equality), `printer` and `parser` with `expression_parser`, `compute_parser` and
`declaration_parser` (the text form; `syntax` is what they share), `verify` with its `verify_...`
(what well-formed means), `arguments` (checking what a call passes for scalars), `constants` (arrays
beside a kernel), `sizes` (proofs about symbolic sizes), `open_sizes` (ints that stand for
such), `symbols` (numbers in their place), `scope`
(names, as they come and go), `stages`
(what a schedule or a pass made of a kernel).

This is the face for those who use the IR. Those who work on it import the modules.
"""

from tilewright.ir.buffer import Buffer, Layout, Space, Swizzle, buffer, row_major
from tilewright.ir.compare import difference, same
from tilewright.ir.expr import (
    Binary,
    Bitcast,
    Cast,
    Const,
    Expr,
    ExprLike,
    Fma,
    Select,
    Unary,
    Var,
    all_of,
    binary,
    bitcast,
    cast,
    conjuncts,
    const,
    fma,
    maximum,
    minimum,
    select,
    unary,
    var,
)
from tilewright.ir.functions import FUNCTIONS, Function, Parameter
from tilewright.ir.load import Load, load
from tilewright.ir.parser import parse_expr, parse_kernel, parse_kernels, parse_stmt
from tilewright.ir.printer import headline, to_text
from tilewright.ir.stmt import (
    Allocate,
    Block,
    Call,
    Combiner,
    Compute,
    Dim,
    For,
    If,
    Kernel,
    Let,
    LoopKind,
    Opaque,
    Operand,
    Param,
    Result,
    ScalarParam,
    Stmt,
    Store,
    View,
    While,
)
from tilewright.ir.verify import verify
from tilewright.ir.visit import (
    block,
    map_kernel,
    rewrite,
    rewrite_exprs,
    rewrite_stmts,
    substitute,
    substitute_stmt,
    variables,
    walk,
    walk_stmts,
)

__all__ = [
    "FUNCTIONS",
    "Allocate",
    "Binary",
    "Bitcast",
    "Block",
    "Buffer",
    "Call",
    "Cast",
    "Combiner",
    "Compute",
    "Const",
    "Dim",
    "Expr",
    "ExprLike",
    "Fma",
    "For",
    "Function",
    "If",
    "Kernel",
    "Layout",
    "Let",
    "Load",
    "LoopKind",
    "Opaque",
    "Operand",
    "Param",
    "Parameter",
    "Result",
    "ScalarParam",
    "Select",
    "Space",
    "Stmt",
    "Store",
    "Swizzle",
    "Unary",
    "Var",
    "View",
    "While",
    "all_of",
    "binary",
    "bitcast",
    "block",
    "buffer",
    "cast",
    "conjuncts",
    "const",
    "difference",
    "fma",
    "headline",
    "load",
    "map_kernel",
    "maximum",
    "minimum",
    "parse_expr",
    "parse_kernel",
    "parse_kernels",
    "parse_stmt",
    "rewrite",
    "rewrite_exprs",
    "rewrite_stmts",
    "row_major",
    "same",
    "select",
    "substitute",
    "substitute_stmt",
    "to_text",
    "unary",
    "var",
    "variables",
    "verify",
    "walk",
    "walk_stmts",
]
