"""Tilewright: a tensor-kernel compiler and runtime.

import tilewright as tw

op = tw.convolution("ic64ih56oc64oh56kh3ph1", epilogue=[tw.bias(), tw.relu()])
kernel = tw.compile(op, target="x86")
packed = kernel.pack("weights", w)
y = kernel(src=x, weights=packed, bias=b)
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Names are loaded when they are first used: numpy and LLVM take a while, for which the command
# line, and imports of a few names, should not wait. Type checkers export what is imported `as`
# itself. (Sorting these imports would give each of them a line of its own.)
if TYPE_CHECKING:
    # isort: off
    from tilewright.compiling import (
        compile as compile,
        parse_kernel as parse_kernel,
        parse_schedule as parse_schedule,
    )
    from tilewright.engine import (
        CompiledKernel as CompiledKernel,
        Packed as Packed,
        Schedule as Schedule,
    )
    from tilewright.errors import (
        FusionError as FusionError,
        QueueError as QueueError,
        TilewrightError as TilewrightError,
    )
    from tilewright.frontends.models import from_onnx as from_onnx, from_torch as from_torch
    from tilewright.frontends.stablehlo import from_stablehlo as from_stablehlo
    from tilewright.ir.buffer import Space as Space, Swizzle as Swizzle
    from tilewright.ir.stmt import LoopKind as LoopKind
    from tilewright.lang.annotations import Array as Array, array as array, scalar as scalar
    from tilewright.lang.formulas import (
        acos as acos,
        acosh as acosh,
        asin as asin,
        asinh as asinh,
        atan as atan,
        atan2 as atan2,
        atanh as atanh,
        bit_reverse as bit_reverse,
        cbrt as cbrt,
        cosh as cosh,
        ctz as ctz,
        erfc as erfc,
        expm1 as expm1,
        isfinite as isfinite,
        isinf as isinf,
        ldexp as ldexp,
        lgamma as lgamma,
        log2 as log2,
        log10 as log10,
        rotate as rotate,
        sinh as sinh,
        tan as tan,
        trunc as trunc,
    )
    from tilewright.lang.functions import function as function
    from tilewright.lang.groups import (
        group_all as group_all,
        group_any as group_any,
        group_broadcast as group_broadcast,
        group_reduce as group_reduce,
        group_scan as group_scan,
        shuffle_down as shuffle_down,
        shuffle_up as shuffle_up,
        shuffle_xor as shuffle_xor,
        subgroup_all as subgroup_all,
        subgroup_any as subgroup_any,
        subgroup_ballot as subgroup_ballot,
        subgroup_broadcast as subgroup_broadcast,
        subgroup_reduce as subgroup_reduce,
        subgroup_scan as subgroup_scan,
    )
    from tilewright.lang.ids import (
        global_id as global_id,
        global_size as global_size,
        group_id as group_id,
        lane_id as lane_id,
        local_id as local_id,
        local_size as local_size,
        num_groups as num_groups,
        subgroup_id as subgroup_id,
        subgroup_size as subgroup_size,
    )
    from tilewright.lang.kernel import kernel as kernel
    from tilewright.lang.mathematics import (
        bitcast as bitcast,
        ceil as ceil,
        clz as clz,
        common_type as common_type,
        cos as cos,
        divide as divide,
        erf as erf,
        exp as exp,
        exp2 as exp2,
        floor as floor,
        fma as fma,
        isnan as isnan,
        log as log,
        log1p as log1p,
        mulhi as mulhi,
        popcount as popcount,
        remainder as remainder,
        rsqrt as rsqrt,
        sin as sin,
        sqrt as sqrt,
        tanh as tanh,
        where as where,
    )
    from tilewright.lang.matrices import joint_matrix as joint_matrix
    from tilewright.lang.matrix_types import matrix_combinations as matrix_combinations
    from tilewright.lang.memory import (
        atomic_add as atomic_add,
        atomic_and as atomic_and,
        atomic_compare_exchange as atomic_compare_exchange,
        atomic_exchange as atomic_exchange,
        atomic_max as atomic_max,
        atomic_min as atomic_min,
        atomic_or as atomic_or,
        atomic_sub as atomic_sub,
        atomic_xor as atomic_xor,
        barrier as barrier,
        local as local,
        private as private,
    )
    from tilewright.lang.python_functions import printf as printf, static_range as static_range
    from tilewright.lang.tunables import tunable as tunable
    from tilewright.lang.vectors import (
        load_vector as load_vector,
        store_vector as store_vector,
        vector as vector,
        vector_reduce as vector_reduce,
    )
    from tilewright.ops.arguments import (
        convolution as convolution,
        elementwise as elementwise,
        matmul as matmul,
        pool as pool,
        reduce as reduce,
        reorder as reorder,
    )
    from tilewright.ops.attention import attention as attention
    from tilewright.ops.epilogue_elements import (
        add as add,
        bias as bias,
        binary as binary,
        div as div,
        mul as mul,
        prelu as prelu,
        relu as relu,
        scale as scale,
        sub as sub,
        sum as sum,
        unary as unary,
        zero_point as zero_point,
    )
    from tilewright.ops.images import (
        deconvolution as deconvolution,
        max_pool as max_pool,
        parametric_relu as parametric_relu,
        resample as resample,
    )
    from tilewright.ops.moves import (
        concat as concat,
        pad as pad,
        pixels as pixels,
        shuffle as shuffle,
        slice as slice,
        tile as tile,
        transpose as transpose,
        zeropad as zeropad,
    )
    from tilewright.ops.normalization import (
        batch_norm as batch_norm,
        group_norm as group_norm,
        layer_norm as layer_norm,
        rms_norm as rms_norm,
    )
    from tilewright.ops.places import (
        embedding as embedding,
        gather as gather,
        one_hot as one_hot,
        scatter as scatter,
        sort as sort,
        topk as topk,
    )
    from tilewright.ops.recurrent import rnn as rnn
    from tilewright.ops.softmax import softmax as softmax
    from tilewright.ops.statistics import (
        argmax as argmax,
        argmin as argmin,
        logsumexp as logsumexp,
        moments as moments,
        scan as scan,
    )
    from tilewright.queues import (
        Accessor as Accessor,
        Buffer as Buffer,
        Event as Event,
        Queue as Queue,
        wait as wait,
    )
    from tilewright.recipes.config import Config as Config
    from tilewright.recipes.recipe import Recipe as Recipe
    from tilewright.recipes.users import (
        register_recipe as register_recipe,
        unregister_recipe as unregister_recipe,
    )
    from tilewright.schedule.pipelines.pipeline import Fill as Fill
    from tilewright.schedule.staging.copiers import CopyUnit as CopyUnit, Threads as Threads

__version__ = "0.1.0"

# The face: modules, and the names that come from each.
_FACE = """
compiling: compile parse_kernel parse_schedule
dtypes: bf16 boolean f8_e4m3 f8_e5m2 f16 f32 f64 s8 s16 s32 s64 tf32 u8 u16 u32 u64
engine: CompiledKernel Packed Schedule
errors: FusionError QueueError TilewrightError
frontends.models: from_onnx from_torch
frontends.stablehlo: from_stablehlo
ir.buffer: Space Swizzle
ir.stmt: LoopKind
lang.annotations: Array array constant scalar
lang.formulas: acos acosh asin asinh atan atan2 atanh bit_reverse cbrt cosh ctz erfc expm1
    isfinite isinf ldexp lgamma log2 log10 rotate sinh tan trunc
lang.functions: function
lang.groups: group_all group_any group_broadcast group_reduce group_scan shuffle_down shuffle_up
    shuffle_xor subgroup_all subgroup_any subgroup_ballot subgroup_broadcast subgroup_reduce
    subgroup_scan
lang.ids: global_id global_size group_id lane_id local_id local_size num_groups subgroup_id
    subgroup_size
lang.kernel: kernel
lang.mathematics: bitcast ceil clz common_type cos divide erf exp exp2 floor fma isnan log log1p
    mulhi popcount remainder rsqrt sin sqrt tanh where
lang.matrices: joint_matrix
lang.matrix_types: matrix_combinations
lang.memory: atomic_add atomic_and atomic_compare_exchange atomic_exchange atomic_max atomic_min
    atomic_or atomic_sub atomic_xor barrier local private
lang.python_functions: printf static_range
lang.tunables: tunable
lang.vectors: load_vector store_vector vector vector_reduce
ops.arguments: convolution elementwise matmul pool reduce reorder
ops.attention: attention
ops.epilogue_elements: add bias binary div mul prelu relu scale sub sum unary zero_point
ops.images: deconvolution max_pool parametric_relu resample
ops.moves: concat pad pixels shuffle slice tile transpose zeropad
ops.normalization: batch_norm group_norm layer_norm rms_norm
ops.places: embedding gather one_hot scatter sort topk
ops.recurrent: rnn
ops.softmax: softmax
ops.statistics: argmax argmin logsumexp moments scan
queues: Accessor Buffer Event Queue wait
recipes.config: Config
recipes.recipe: Recipe
recipes.users: register_recipe unregister_recipe
schedule.pipelines.pipeline: Fill
schedule.staging.copiers: CopyUnit Threads
tuning: autotune
"""
_HOMES = {
    name: f"tilewright.{module}"
    for module, names in re.findall(r"^(\S+): ((?:.|\n )+)$", _FACE, re.MULTILINE)
    for name in names.split()
}
if not TYPE_CHECKING:
    # Type checkers would take a computed list for an empty one.
    __all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        # With these, Python says which name is close to it.
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__]
        )
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    # The attributes of any module, and the face, without imports.
    return sorted({*_HOMES, *(name for name in globals() if name.startswith("__"))})
