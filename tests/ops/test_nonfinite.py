"""Infinities and NaN in operands: outputs that use them are what IEEE 754 says, all others are as
if they were not there; only where a tap of an output's window lies in the padding is it left open
whether 0 is multiplied. In every kind of schedule, in three directions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from nonfinite import Terms, allowed, terms_of, wrong
from sweeps import in_turns
from tilewright.dtypes import DType
from tilewright.engine import compile_kernel
from tilewright.interpret import run
from tilewright.ir import parse_kernel, to_text
from tilewright.ops.op import Op
from tilewright.schedule.dims.pad import pad
from tilewright.targets.registry import find_target
from tilewright.testing.guarded import Guarded
from tilewright.testing.interpreted import InterpretedKernel

pytestmark = pytest.mark.usefixtures("own_cache")
DIRECTIONS = ("fwd", "bwd_data", "bwd_weights")
# Targets whose code is run, and those whose schedules are.
NATIVE = "native"
SCHEDULED = (
    "x86:avx512_bf16",
    "x86:amx",
    "spirv:cpu",
    "spirv:gpu",
    "nvidia:sm_80",
    "nvidia:sm_90a",
)


def check(op: Op, target: str) -> None:
    """Runs the kernel on finite numbers but for some in one operand, then the other, then both."""
    op = op.resolved()
    kernel: Any
    if target == NATIVE:
        kernel = compile_kernel(op, threads=2)
    else:
        kernel = InterpretedKernel(op, find_target(target).machine)
    terms = _terms(op)
    result = next(argument for argument in op.arguments if argument.access != "in")
    for spoiled in (terms.names[:1], terms.names[1:2], terms.names[:2]):
        arrays = {
            argument.name: _values(argument.shape, argument.dtype, argument.name in spoiled, seed)
            for seed, argument in enumerate(op.arguments)
            if argument.access == "in"
        }
        guarded = {
            argument.name: Guarded(argument, arrays.get(argument.name)) for argument in op.arguments
        }
        values = {name: guarded[name].array for name in arrays}
        for name in kernel.packed:
            values[name] = kernel.pack(name, values[name])
        kernel(**values, out=guarded[result.name].array)
        sums, may_be_nan = allowed(terms, arrays, result.shape)
        got = guarded[result.name].values.astype(np.float64)
        bad = wrong(got, sums, may_be_nan)
        assert not bad, (spoiled, bad[:5], got[bad[0]], sums[bad[0]])
        assert spoiled != terms.names[:1] or not may_be_nan.any()


_known: dict[str, Terms] = {}


def _terms(op: Op) -> Terms:
    """The terms of an op, whose layouts and types do not matter."""
    key = f"{op.problem!r} {op.direction}"
    return _known.setdefault(key, terms_of(op)) if key not in _known else _known[key]


def _values(shape: tuple[int, ...], dtype: DType, spoiled: bool, seed: int) -> Any:
    generator = np.random.default_rng(seed)
    values = generator.integers(-2, 3, shape).astype(np.float64)
    if spoiled:
        count = max(2, values.size // 40)
        places = generator.choice(values.size, count, replace=False)
        odd = generator.choice([np.inf, -np.inf, np.nan], count)
        values.reshape(-1)[places] = odd
    return values.astype(dtype.numpy)


@pytest.mark.parametrize(
    ("problem", "tag", "direction"),
    in_turns(
        4,
        ["mb1ic3ih5oc4kh3ph1", "g2mb1ic4ih6oc6kh3sh2ph1", "g9mb1ic9ih4oc9kh3ph1"],
        ["nhwc", "nchw", "nChw8c", "nChw16c"],
        DIRECTIONS,
    ),
)
def test_convolutions_on_this_machine(problem: str, tag: str, direction: str) -> None:
    check(tw.convolution(problem, direction=direction, src=tag, dst=tag), NATIVE)


@pytest.mark.parametrize(
    ("target", "tag", "direction"),
    in_turns(4, ["spirv:cpu", "spirv:gpu", "nvidia:sm_80"], ["nhwc", "nchw", "nChw8c"], DIRECTIONS),
)
def test_convolutions_of_f32(target: str, tag: str, direction: str) -> None:
    op = tw.convolution("mb1ic3ih5oc4kh3sh2ph1", direction=direction, src=tag, dst=tag)
    check(op, target)


@pytest.mark.parametrize(("target", "direction"), in_turns(2, SCHEDULED, DIRECTIONS))
def test_convolutions_of_bf16(target: str, direction: str) -> None:
    """By instructions on matrices, whose steps are longer than what is summed up."""
    problem = "mb1ic8ih5oc8kh3ph1" if direction == "bwd_weights" else "g2mb1ic6ih4oc16kh3ph1"
    op = tw.convolution(problem, direction=direction, dtype="bf16", src="nhwc", dst="nhwc")
    check(op, target)


@pytest.mark.parametrize("target", [NATIVE, *SCHEDULED])
@pytest.mark.parametrize("types", ["f32", "bf16"])
def test_matmuls(target: str, types: str) -> None:
    check(tw.matmul("9x21:21x18", dtype=types), target)


@pytest.mark.parametrize("target", SCHEDULED)
def test_first_layers(target: str) -> None:
    """Few channels: taps and channels are summed up as one dim."""
    check(tw.convolution("mb1ic3ih4oc8kh3ph1", dtype="bf16", src="nhwc", dst="nhwc"), target)


def test_the_surplus_of_a_sum_is_zero_in_both_factors() -> None:
    text = """kernel sums(in s: {0}[6], in w: {0}[5], out c: {1}[1]):
  alloc acc: {1}[1] private
  acc[0] = {1}(0)
  compute sum(k in 5):
    a = s[k]
    b = w[k]
    acc[0] add= {1}(a) * {1}(b)
  c[0] = acc[0]
"""
    kernel = pad(parse_kernel(text.format("f32", "f64")), "sum", {"k": 6})
    assert "a = s[k | k < 5]\n    b = w[k | k < 5]" in to_text(kernel)
    result = np.zeros(1)
    source = np.array([1, 2, 3, 4, 5, np.inf], np.float32)
    run(kernel, {"s": source, "w": np.ones(5, np.float32), "c": result})
    assert result[0] == 15
    # Of integers one zero will do.
    kernel = pad(parse_kernel(text.format("s8", "s32")), "sum", {"k": 6})
    assert "a = s[k]\n    b = w[k | k < 5]" in to_text(kernel)


def test_the_oracle_tells() -> None:
    """A wrong number, an infinity where none comes from, a NaN that no padded tap explains."""
    op = tw.convolution("mb1ic1iw3oc1kw3pw1").resolved()
    terms = terms_of(op)
    arrays = {"src": np.array([[[1.0, 2, 3]]]), "weights": np.array([[[np.inf, 1, 1]]])}
    sums, may_be_nan = allowed(terms, arrays, (1, 1, 3))
    assert sums.tolist() == [[[3.0, np.inf, np.inf]]]
    assert may_be_nan.tolist() == [[[True, False, False]]]
    assert not wrong(np.array([[[np.nan, np.inf, np.inf]]]), sums, may_be_nan)
    assert wrong(np.array([[[4.0, np.nan, -np.inf]]]), sums, may_be_nan) == [
        (0, 0, 0), (0, 0, 1), (0, 0, 2),
    ]  # fmt: skip
