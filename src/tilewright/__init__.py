"""Tilewright: a tensor-kernel compiler and runtime.

import tilewright as tw

op = tw.convolution("ic64ih56oc64oh56kh3ph1", epilogue=[tw.bias(), tw.relu()])
kernel = tw.compile(op, target="x86")
packed = kernel.pack("weights", w)
y = kernel(src=x, weights=packed, bias=b)
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Names are loaded when they are first used: numpy and LLVM take a while, for which the command
# line, and imports of a few names, should not wait.
if TYPE_CHECKING:
    # To type checkers, an array is a value of its elements' type with metadata.
    from typing import Annotated as Array

    from tilewright.compiling import compile, parse_kernel, parse_schedule
    from tilewright.engine import CompiledKernel, Packed, Schedule
    from tilewright.errors import FusionError, QueueError, TilewrightError
    from tilewright.frontends.models import from_onnx, from_torch
    from tilewright.frontends.stablehlo import from_stablehlo
    from tilewright.ir.buffer import Space, Swizzle
    from tilewright.ir.stmt import LoopKind
    from tilewright.lang.annotations import array, scalar
    from tilewright.lang.formulas import (
        acos,
        acosh,
        asin,
        asinh,
        atan,
        atan2,
        atanh,
        bit_reverse,
        cbrt,
        cosh,
        ctz,
        erfc,
        expm1,
        isfinite,
        isinf,
        ldexp,
        lgamma,
        log2,
        log10,
        rotate,
        sinh,
        tan,
        trunc,
    )
    from tilewright.lang.functions import function
    from tilewright.lang.groups import (
        group_all,
        group_any,
        group_broadcast,
        group_reduce,
        group_scan,
        shuffle_down,
        shuffle_up,
        shuffle_xor,
        subgroup_all,
        subgroup_any,
        subgroup_ballot,
        subgroup_broadcast,
        subgroup_reduce,
        subgroup_scan,
    )
    from tilewright.lang.ids import (
        global_id,
        global_size,
        group_id,
        lane_id,
        local_id,
        local_size,
        num_groups,
        subgroup_id,
        subgroup_size,
    )
    from tilewright.lang.kernel import kernel
    from tilewright.lang.mathematics import (
        bitcast,
        ceil,
        clz,
        common_type,
        cos,
        divide,
        erf,
        exp,
        exp2,
        floor,
        fma,
        isnan,
        log,
        log1p,
        mulhi,
        popcount,
        remainder,
        rsqrt,
        sin,
        sqrt,
        tanh,
        where,
    )
    from tilewright.lang.matrices import joint_matrix
    from tilewright.lang.matrix_types import matrix_combinations
    from tilewright.lang.memory import (
        atomic_add,
        atomic_and,
        atomic_compare_exchange,
        atomic_exchange,
        atomic_max,
        atomic_min,
        atomic_or,
        atomic_sub,
        atomic_xor,
        barrier,
        local,
        private,
    )
    from tilewright.lang.python_functions import printf, static_range
    from tilewright.lang.tunables import tunable
    from tilewright.lang.vectors import load_vector, store_vector, vector, vector_reduce
    from tilewright.ops.arguments import convolution, elementwise, matmul, pool, reduce, reorder
    from tilewright.ops.attention import attention
    from tilewright.ops.epilogue_elements import (
        add,
        bias,
        binary,
        div,
        mul,
        prelu,
        relu,
        scale,
        sub,
        sum,
        unary,
        zero_point,
    )
    from tilewright.ops.images import deconvolution, max_pool, parametric_relu, resample
    from tilewright.ops.moves import concat, pad, pixels, shuffle, slice, tile, transpose, zeropad
    from tilewright.ops.normalization import batch_norm, group_norm, layer_norm, rms_norm
    from tilewright.ops.places import embedding, gather, one_hot, scatter, sort, topk
    from tilewright.ops.recurrent import rnn
    from tilewright.ops.softmax import softmax
    from tilewright.ops.statistics import argmax, argmin, logsumexp, moments, scan
    from tilewright.queues import Accessor, Buffer, Event, Queue, wait
    from tilewright.recipes.config import Config
    from tilewright.recipes.recipe import Recipe
    from tilewright.recipes.users import register_recipe, unregister_recipe
    from tilewright.schedule.pipelines.pipeline import Fill
    from tilewright.schedule.staging.copiers import CopyUnit, Threads

__all__ = [
    "Accessor",
    "Array",
    "Buffer",
    "CompiledKernel",
    "Config",
    "CopyUnit",
    "Event",
    "Fill",
    "FusionError",
    "LoopKind",
    "Packed",
    "Queue",
    "QueueError",
    "Recipe",
    "Schedule",
    "Space",
    "Swizzle",
    "Threads",
    "TilewrightError",
    "acos",
    "acosh",
    "add",
    "argmax",
    "argmin",
    "array",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "atomic_add",
    "atomic_and",
    "atomic_compare_exchange",
    "atomic_exchange",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_sub",
    "atomic_xor",
    "attention",
    "autotune",
    "barrier",
    "batch_norm",
    "bf16",
    "bias",
    "binary",
    "bit_reverse",
    "bitcast",
    "boolean",
    "cbrt",
    "ceil",
    "clz",
    "common_type",
    "compile",
    "concat",
    "constant",
    "convolution",
    "cos",
    "cosh",
    "ctz",
    "deconvolution",
    "div",
    "divide",
    "elementwise",
    "embedding",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "f8_e4m3",
    "f8_e5m2",
    "f16",
    "f32",
    "f64",
    "floor",
    "fma",
    "from_onnx",
    "from_stablehlo",
    "from_torch",
    "function",
    "gather",
    "global_id",
    "global_size",
    "group_all",
    "group_any",
    "group_broadcast",
    "group_id",
    "group_norm",
    "group_reduce",
    "group_scan",
    "isfinite",
    "isinf",
    "isnan",
    "joint_matrix",
    "kernel",
    "lane_id",
    "layer_norm",
    "ldexp",
    "lgamma",
    "load_vector",
    "local",
    "local_id",
    "local_size",
    "log",
    "log1p",
    "log2",
    "log10",
    "logsumexp",
    "matmul",
    "matrix_combinations",
    "max_pool",
    "moments",
    "mul",
    "mulhi",
    "num_groups",
    "one_hot",
    "pad",
    "parametric_relu",
    "parse_kernel",
    "parse_schedule",
    "pixels",
    "pool",
    "popcount",
    "prelu",
    "printf",
    "private",
    "reduce",
    "register_recipe",
    "relu",
    "remainder",
    "reorder",
    "resample",
    "rms_norm",
    "rnn",
    "rotate",
    "rsqrt",
    "s8",
    "s16",
    "s32",
    "s64",
    "scalar",
    "scale",
    "scan",
    "scatter",
    "shuffle",
    "shuffle_down",
    "shuffle_up",
    "shuffle_xor",
    "sin",
    "sinh",
    "slice",
    "softmax",
    "sort",
    "sqrt",
    "static_range",
    "store_vector",
    "sub",
    "subgroup_all",
    "subgroup_any",
    "subgroup_ballot",
    "subgroup_broadcast",
    "subgroup_id",
    "subgroup_reduce",
    "subgroup_scan",
    "subgroup_size",
    "sum",
    "tan",
    "tanh",
    "tf32",
    "tile",
    "topk",
    "transpose",
    "trunc",
    "tunable",
    "u8",
    "u16",
    "u32",
    "u64",
    "unary",
    "unregister_recipe",
    "vector",
    "vector_reduce",
    "wait",
    "where",
    "zero_point",
    "zeropad",
]
__version__ = "0.1.0"

_OPS = ("convolution", "elementwise", "matmul", "pool", "reduce", "reorder")
_LIBRARY = {
    "softmax": ("softmax",),
    "normalization": ("layer_norm", "rms_norm", "batch_norm", "group_norm"),
    "statistics": ("argmax", "argmin", "moments", "logsumexp", "scan"),
    "moves": ("concat", "slice", "tile", "transpose", "pixels", "shuffle", "pad", "zeropad"),
    "places": ("gather", "embedding", "scatter", "one_hot", "sort", "topk"),
    "attention": ("attention",),
    "recurrent": ("rnn",),
    "images": ("resample", "max_pool", "deconvolution", "parametric_relu"),
}
_KERNELS = {
    "annotations": ("Array", "array", "constant", "scalar"),
    "functions": ("function",),
    "kernel": ("kernel",),
    "tunables": ("tunable",),
    "groups": (
        *("group_reduce", "group_scan", "group_broadcast", "group_any", "group_all"),
        *("subgroup_reduce", "subgroup_scan", "subgroup_broadcast", "subgroup_any"),
        *("subgroup_ballot", "subgroup_all", "shuffle_xor", "shuffle_up", "shuffle_down"),
    ),
    "matrices": ("joint_matrix",),
    "matrix_types": ("matrix_combinations",),
    "ids": (
        "global_id",
        "local_id",
        "group_id",
        "global_size",
        "local_size",
        "num_groups",
        "subgroup_id",
        "lane_id",
        "subgroup_size",
    ),
    "memory": (
        *("local", "private", "barrier", "atomic_add", "atomic_sub", "atomic_min", "atomic_max"),
        *("atomic_and", "atomic_or", "atomic_xor", "atomic_exchange", "atomic_compare_exchange"),
    ),
    "mathematics": (
        *("exp", "exp2", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "floor"),
        *("ceil", "fma", "where", "divide", "remainder", "mulhi", "clz", "popcount", "bitcast"),
        *("isnan", "common_type"),
    ),
    "formulas": (
        *("tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "asinh", "acosh", "atanh"),
        *("log2", "log10", "expm1", "cbrt", "trunc", "lgamma", "erfc", "ldexp", "isinf"),
        *("isfinite", "ctz", "bit_reverse", "rotate"),
    ),
    "vectors": ("vector", "load_vector", "store_vector", "vector_reduce"),
    "python_functions": ("static_range", "printf"),
}
_TYPES = (
    *("f64", "f32", "tf32", "f16", "bf16", "f8_e4m3", "f8_e5m2", "s64", "s32", "s16", "s8", "u64"),
    *("u32", "u16", "u8", "boolean"),
)
_HOMES = {
    **dict.fromkeys(("compile", "parse_kernel", "parse_schedule"), "tilewright.compiling"),
    "autotune": "tilewright.tuning",
    "CompiledKernel": "tilewright.engine",
    "Packed": "tilewright.engine",
    "Schedule": "tilewright.engine",
    "CopyUnit": "tilewright.schedule.staging.copiers",
    "Threads": "tilewright.schedule.staging.copiers",
    "Fill": "tilewright.schedule.pipelines.pipeline",
    "LoopKind": "tilewright.ir.stmt",
    "Space": "tilewright.ir.buffer",
    "Swizzle": "tilewright.ir.buffer",
    **dict.fromkeys(("FusionError", "QueueError", "TilewrightError"), "tilewright.errors"),
    **dict.fromkeys(("Accessor", "Buffer", "Event", "Queue", "wait"), "tilewright.queues"),
    "from_onnx": "tilewright.frontends.models",
    "from_stablehlo": "tilewright.frontends.stablehlo",
    "from_torch": "tilewright.frontends.models",
    "Config": "tilewright.recipes.config",
    "Recipe": "tilewright.recipes.recipe",
    "register_recipe": "tilewright.recipes.users",
    "unregister_recipe": "tilewright.recipes.users",
    **dict.fromkeys(_OPS, "tilewright.ops.arguments"),
    **{name: f"tilewright.lang.{file}" for file, names in _KERNELS.items() for name in names},
    **dict.fromkeys(_TYPES, "tilewright.dtypes"),
    **{name: f"tilewright.ops.{file}" for file, names in _LIBRARY.items() for name in names},
}
# The home of names without an entry: elements of epilogues.
_ELEMENTS = "tilewright.ops.epilogue_elements"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        # With these, Python says which name is close to it.
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__]
        )
    value = getattr(import_module(_HOMES.get(name, _ELEMENTS)), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    # The attributes of any module, and the face, without imports.
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
