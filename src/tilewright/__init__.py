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

from tilewright.calls import checked_call

# Names are loaded when they are first used: numpy and LLVM take a while, which the command line,
# and whoever imports this for one of them, should not wait for.
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tilewright.engine import CompiledKernel, Packed, Schedule
    from tilewright.engine.trace import Trace
    from tilewright.errors import TilewrightError
    from tilewright.frontends.models import from_onnx, from_torch
    from tilewright.frontends.stablehlo import from_stablehlo
    from tilewright.graph.graph import Graph
    from tilewright.ir.buffer import Space, Swizzle
    from tilewright.ir.stmt import Kernel, LoopKind
    from tilewright.ops.arguments import convolution, elementwise, matmul, pool, reduce, reorder
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
    from tilewright.ops.op import Op
    from tilewright.ops.places import embedding, gather, one_hot, scatter, sort, topk
    from tilewright.ops.softmax import softmax
    from tilewright.ops.statistics import argmax, argmin, logsumexp, moments, scan
    from tilewright.recipes.config import Config
    from tilewright.recipes.users import register_recipe, unregister_recipe
    from tilewright.schedule.copiers import CopyUnit, Threads
    from tilewright.schedule.pipeline import Fill
    from tilewright.schedule.record import Record

__all__ = [
    "CompiledKernel",
    "CopyUnit",
    "Fill",
    "LoopKind",
    "Packed",
    "Schedule",
    "Space",
    "Swizzle",
    "Threads",
    "TilewrightError",
    "add",
    "argmax",
    "argmin",
    "array",
    "atomic_add",
    "atomic_and",
    "atomic_compare_exchange",
    "atomic_exchange",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_sub",
    "atomic_xor",
    "barrier",
    "batch_norm",
    "bf16",
    "bias",
    "binary",
    "bitcast",
    "boolean",
    "ceil",
    "clz",
    "common_type",
    "compile",
    "concat",
    "constant",
    "convolution",
    "cos",
    "deconvolution",
    "div",
    "divide",
    "elementwise",
    "embedding",
    "erf",
    "exp",
    "exp2",
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
    "isnan",
    "joint_matrix",
    "kernel",
    "lane_id",
    "layer_norm",
    "load_vector",
    "local",
    "local_id",
    "local_size",
    "log",
    "log1p",
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
    "slice",
    "softmax",
    "sort",
    "sqrt",
    "static_range",
    "store_vector",
    "sub",
    "subgroup_all",
    "subgroup_any",
    "subgroup_broadcast",
    "subgroup_id",
    "subgroup_reduce",
    "subgroup_scan",
    "subgroup_size",
    "sum",
    "tanh",
    "tf32",
    "tile",
    "topk",
    "transpose",
    "u8",
    "u16",
    "u32",
    "u64",
    "unary",
    "unregister_recipe",
    "vector",
    "vector_reduce",
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
    "images": ("resample", "max_pool", "deconvolution", "parametric_relu"),
}
_KERNELS = {
    "annotations": ("array", "constant", "scalar"),
    "kernel": ("function", "kernel"),
    "groups": (
        "group_reduce",
        "group_scan",
        "group_broadcast",
        "group_any",
        "group_all",
        "subgroup_reduce",
        "subgroup_scan",
        "subgroup_broadcast",
        "subgroup_any",
        "subgroup_all",
        "shuffle_xor",
        "shuffle_up",
        "shuffle_down",
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
        "local",
        "private",
        "barrier",
        "atomic_add",
        "atomic_sub",
        "atomic_min",
        "atomic_max",
        "atomic_and",
        "atomic_or",
        "atomic_xor",
        "atomic_exchange",
        "atomic_compare_exchange",
    ),
    "mathematics": (
        "exp",
        "exp2",
        "log",
        "log1p",
        "sqrt",
        "rsqrt",
        "sin",
        "cos",
        "tanh",
        "erf",
        "floor",
        "ceil",
        "fma",
        "where",
        "divide",
        "remainder",
        "mulhi",
        "clz",
        "popcount",
        "bitcast",
        "isnan",
        "common_type",
    ),
    "vectors": ("vector", "load_vector", "store_vector", "vector_reduce"),
    "python_functions": ("static_range", "printf"),
}
_TYPES = (
    "f64",
    "f32",
    "tf32",
    "f16",
    "bf16",
    "f8_e4m3",
    "f8_e5m2",
    "s64",
    "s32",
    "s16",
    "s8",
    "u64",
    "u32",
    "u16",
    "u8",
    "boolean",
)
_HOMES = {
    "CompiledKernel": "tilewright.engine",
    "Packed": "tilewright.engine",
    "Schedule": "tilewright.engine",
    "CopyUnit": "tilewright.schedule.copiers",
    "Threads": "tilewright.schedule.copiers",
    "Fill": "tilewright.schedule.pipeline",
    "LoopKind": "tilewright.ir.stmt",
    "Space": "tilewright.ir.buffer",
    "Swizzle": "tilewright.ir.buffer",
    "TilewrightError": "tilewright.errors",
    "from_onnx": "tilewright.frontends.models",
    "from_stablehlo": "tilewright.frontends.stablehlo",
    "from_torch": "tilewright.frontends.models",
    "register_recipe": "tilewright.recipes.users",
    "unregister_recipe": "tilewright.recipes.users",
    **dict.fromkeys(_OPS, "tilewright.ops.arguments"),
    **{name: f"tilewright.lang.{file}" for file, names in _KERNELS.items() for name in names},
    **dict.fromkeys(_TYPES, "tilewright.dtypes"),
    **{name: f"tilewright.ops.{file}" for file, names in _LIBRARY.items() for name in names},
}
# What is listed and has no home of its own is an element of an epilogue.
_ELEMENTS = "tilewright.ops.epilogue_elements"


@checked_call
def compile(
    what: Op | Kernel | Graph | Schedule,
    target: str | None = None,
    threads: int | None = None,
    config: Config | Mapping[str, Any] | str | None = None,
    trace: Trace | None = None,
    constant: Sequence[str] = (),
    schedule: Schedule | str | None = None,
) -> CompiledKernel:
    """Compiles ``what`` for ``target``, or takes the code from the caches in memory and on disk.

    ``what`` is an op, a kernel, a graph, or a schedule of an op or a kernel. A graph, or a
    kernel of more than 16 computes that takes no numbers, becomes a program of several kernels
    (`GraphProgram`), unless a config, a schedule or a trace asks for one. ``target`` is a
    family, or a family and a variant (``"x86:avx2"``, ``"spirv:gpu"``); by default the
    schedule's, or ``"x86"``. ``threads``, 1 to 256, run the kernel (default: all cores); of an
    OpenCL device that is a processor, so many cores do, and any other runs it whole. ``config``
    overrides the model's choice: a config object, or its text; or some of its fields, as
    ``{"tile": {"oc": 32}}`` or as the text ``"tile={'oc': 32}"``. ``trace`` records what every
    stage and pass did. ``schedule`` is what to do instead of what recipes would: a `Schedule`,
    or its text, of the same kernel and machine. ``constant`` names arrays whose contents stay
    the same, so that they may be packed before the kernel runs; others are taken as they are,
    but for weights of an op whose layout is ``any``.

    Raises `UnsupportedError`, `ScheduleError`, `ArgumentError`, `ParseError` for the text of a
    schedule, `VerificationError` for an ill-formed kernel, or `DeviceError` for a device that is
    not there or that refuses the kernel.
    """
    # LLVM and the schedules load with the first kernel: describing ops needs neither.
    from tilewright.engine import compile_kernel
    from tilewright.graph.graph import Graph, is_graph

    if config is None and trace is None and schedule is None and is_graph(what):
        from tilewright.graph.program import compile_graph

        return compile_graph(what, target, threads, constant)
    if isinstance(what, Graph):
        constant = constant or what.constant
        what = what.kernel
    return compile_kernel(what, target, threads, config, trace, constant, schedule)


@checked_call
def parse_kernel(
    text: str, file: str | None = None, constants: Mapping[str, Any] | None = None
) -> Kernel:
    """The kernel that ``text`` says, in the form in which kernels print; ``file`` is where it came
    from, for errors. ``constants`` are contents by their digest, as they lie in memory.

    It is not verified: `compile` does that. Raises `ParseError`, which marks the place, and
    `ArgumentError` for a constant of another type or length.
    """
    from tilewright.ir.parser import parse_kernel as parse

    return parse(text, file=file, constants=constants)


@checked_call
def parse_schedule(text: str) -> Record:
    """The steps that ``text`` says, in the form in which schedules print: read, not executed.

    Raises `ParseError`, which marks the place.
    """
    from tilewright.schedule.reading import parse_schedule as parse

    return parse(text)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        # With these, Python says which name is close to it.
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__]
        )
    found = getattr(import_module(_HOMES.get(name, _ELEMENTS)), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    # What a module of Python has, and the face: not what this one imports.
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
