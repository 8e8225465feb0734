"""Results of every type: allocated by a call, checked by the verifier, run and timed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from commands import Command
from interpreted import Interpreted
from tilewright import dtypes
from tilewright.bench.benchmark import make_arrays
from tilewright.conversions import convert
from tilewright.dtypes import DType, f32
from tilewright.engine.signature import ArrayForm
from tilewright.errors import UnsupportedError
from tilewright.testing.verify import Status, verify

# tf32 is how f32 is computed with, not another way to keep it.
KEPT = [type_ for type_ in dtypes.ALL if type_ is not dtypes.tf32]

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.mark.parametrize("element", dtypes.ALL, ids=str)
def test_forms_are_views_of_flat_memory(element: DType) -> None:
    form = ArrayForm(element, (3, 4), (2, 7), 26)
    array = form.empty()
    assert (array.shape, array.dtype) == ((3, 4), element.numpy)
    assert array.strides == (2 * element.bytes, 7 * element.bytes)
    flat = form.flat(array)
    assert (flat.shape, flat.dtype, flat.ctypes.data) == ((26,), element.numpy, array.ctypes.data)
    array[2, 3] = 1
    assert np.flatnonzero(flat.view(np.uint8).reshape(26, -1).any(axis=1)).tolist() == [25]
    assert ArrayForm(element, (0, 3), (3, 1), 0).empty().shape == (0, 3)


@pytest.mark.parametrize("layout", ["abc", "cab", "aBc4b"])
@pytest.mark.parametrize("element", KEPT, ids=str)
def test_results_are_allocated_and_computed(element: DType, layout: str) -> None:
    types = ("f32", element.name)
    if element.is_nibble or element.kind == "bool":
        with pytest.raises(UnsupportedError, match=r"takes no .4 here|does not compute on bool"):
            tw.reorder("3x8x5", dtype=types, dst=layout)
        return
    op = tw.reorder("3x8x5", dtype=types, dst=layout)
    kernel = tw.compile(op, threads=1)
    values = np.random.default_rng(5).integers(-9, 10, (3, 8, 5)).astype(np.float32)
    value = kernel(src=values)
    wanted = convert(values, f32, element)
    if layout == "aBc4b":
        wanted = wanted.reshape(3, 2, 4, 5).transpose(0, 1, 3, 2)
    assert value.dtype == element.numpy
    np.testing.assert_array_equal(value.astype(np.float64), wanted.astype(np.float64))
    # The verifier and the benchmark make arrays of their own.
    for run in (lambda op: tw.compile(op, threads=1), Interpreted):
        assert verify(op, run).status is Status.PASSED
    assert make_arrays(kernel)["dst"].dtype == element.numpy


@pytest.mark.parametrize("element", ["f8_e5m2", "f8_e4m3", "bf16", "f16"])
def test_the_command_runs_kernels_of_small_floats(
    tilewright: Command, tmp_path: Path, element: str
) -> None:
    """Files have the names of numpy's own types, and raw bytes for all others."""
    small = dtypes.dtype(element).numpy
    values = np.arange(-6, 6).reshape(3, 4).astype(small)
    raw = values if element == "f16" else values.view(f"V{small.itemsize}")
    np.save(tmp_path / "src.npy", raw)
    ended = tilewright(
        "run", "eltwise", "--alg=relu", f"--dt={element}", "3x4",
        "-a", f"src={tmp_path / 'src.npy'}", "-o", str(tmp_path / "out"),
    )  # fmt: skip
    assert ended.code == 0, ended.err
    value = np.load(tmp_path / "out" / "dst.npy").view(small)
    np.testing.assert_array_equal(value.astype(float), np.maximum(values.astype(float), 0))
