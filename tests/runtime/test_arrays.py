"""Arrays of other libraries as memory, and the check of kernel parameters."""

from __future__ import annotations

import array as stdlib_array
import ctypes
import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright import dtypes
from tilewright.dtypes import DType, bf16, f32, u8
from tilewright.errors import ArgumentError
from tilewright.runtime.array_info import ArrayInfo
from tilewright.runtime.arrays import ArraySpec, describe

NUMPY_TYPES = [t for t in dtypes.ALL if t is not dtypes.tf32]


class DLPackOnly:
    """Has what `__dlpack__` needs, and nothing else."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


class OldDLPack(DLPackOnly):
    """From before version 1 of the protocol."""

    def __dlpack__(self, stream: Any = None) -> Any:  # type: ignore[override]
        return self._array.__dlpack__()


class Elsewhere(DLPackOnly):
    def __dlpack_device__(self) -> Any:
        return (2, 0)


class InterfaceOnly:
    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array
        self.__array_interface__ = array.__array_interface__


def same(info: ArrayInfo, array: np.ndarray[Any, Any]) -> bool:
    return (
        info.pointer == array.ctypes.data
        and info.shape == array.shape
        and tuple(s * array.itemsize for s in info.strides) == array.strides
        and info.writable in (array.flags.writeable, None)
    )


@pytest.mark.parametrize("element", NUMPY_TYPES, ids=str)
def test_numpy(element: DType) -> None:
    whole = np.zeros((4, 6, 5), element.numpy)
    fixed = whole.copy()
    fixed.flags.writeable = False
    for array in (whole, whole[::2, 1:, ::-1], whole.T, whole[0, 0, 0:0], whole[:, :1], fixed):
        info = describe(array)
        assert info.dtype is element
        assert same(info, array)
    scalar = describe(np.zeros((), element.numpy))
    assert (scalar.shape, scalar.strides) == ((), ())


def test_numpy_scalars_are_read_where_they_are() -> None:
    """The array that a scalar's interface describes is a new one, gone when it was looked at."""
    for number in (np.float32(1.5), np.int64(-3), np.bool_(True), np.float16(0.25)):
        info = describe(number)
        assert (info.shape, info.writable) == ((), False)
        others = [np.full((), 7, number.dtype) for _ in range(8)]
        string = ctypes.string_at(info.pointer, number.itemsize)
        assert string == number.tobytes() and len(others) == 8


@pytest.mark.parametrize("wrap", [DLPackOnly, OldDLPack, InterfaceOnly, memoryview])
def test_protocols(wrap: Callable[[Any], Any]) -> None:
    whole = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    for array in (whole, whole[:, ::2], whole.transpose(2, 0, 1), whole[1, 1, 1:2]):
        info = describe(wrap(array))
        assert info.dtype is f32
        assert same(info, array)


@pytest.mark.parametrize("wrap", [DLPackOnly, InterfaceOnly, memoryview])
def test_protocols_say_what_is_read_only(wrap: Callable[[Any], Any]) -> None:
    array = np.zeros(4, np.int8)
    assert describe(wrap(array)).writable is True
    array.flags.writeable = False
    assert describe(wrap(array)).writable is False


def test_old_capsules_say_nothing_of_writing() -> None:
    array = np.zeros((2, 3, 4), np.float32)
    assert describe(OldDLPack(array)).writable is None
    assert spec().pointer(OldDLPack(array)) == array.ctypes.data
    with pytest.raises(ArgumentError, match=r"may be read-only[^$]*has no flag[^$]*allocated"):
        spec(writable=True).pointer(OldDLPack(array))


def test_buffers() -> None:
    info = describe(stdlib_array.array("d", [1.0, 2.0]))
    assert (info.dtype, info.shape, info.writable) == (dtypes.f64, (2,), True)
    info = describe(bytearray(5))
    assert (info.dtype, info.shape, info.writable) == (u8, (5,), True)
    assert not describe(b"abc").writable


@pytest.mark.parametrize("type_", [t for t in dtypes.COMPUTED if t.is_integer], ids=str)
def test_integers_of_every_width(type_: DType) -> None:
    for wrap in (DLPackOnly, InterfaceOnly, memoryview):
        assert describe(wrap(np.zeros(2, type_.numpy))).dtype is type_


def test_the_owner_keeps_the_memory() -> None:
    # Nothing else holds the array.
    info = describe(DLPackOnly(np.arange(1000, dtype=np.float32)))
    assert (ctypes.c_float * 1000).from_address(info.pointer)[999] == 999.0
    assert info.owner is not None


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (3.5, "not an array but float"),
        (None, "not an array but NoneType"),
        ([1, 2], "not an array but list"),
        (np.zeros(3, np.complex64), "unknown type: numpy type 'complex64'"),
        (np.array([object()]), "unknown type"),
        (np.zeros(3, ">f4"), "the other byte order"),
        (np.zeros(3, "i1,f4")["f1"], "not multiples of its 4-byte elements"),
        (np.ma.masked_array(np.zeros(2), [True, False]), "masked array"),
        (Elsewhere(np.zeros(3)), "not in the CPU's memory"),
        (DLPackOnly(np.zeros(3, np.complex64)), "unknown type: DLPack type code 5"),
        (memoryview(b"abcd").cast("c"), "unknown type"),
    ],
)
def test_what_is_refused(given: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(text)) as caught:
        describe(given, "weights")
    assert caught.value.what.startswith("weights ")
    assert caught.value.where == "weights"


def spec(**changes: Any) -> ArraySpec:
    values: dict[str, Any] = {
        "name": "src",
        "dtype": f32,
        "shape": (2, 3, 4),
        "strides": (12, 4, 1),
    }
    return ArraySpec(**(values | changes))


def test_spec_accepts() -> None:
    array = np.zeros((2, 3, 4), np.float32)
    for values in (array, DLPackOnly(array), memoryview(array), array.view(np.recarray)):
        assert spec().pointer(values) == array.ctypes.data
    assert spec(dtype=dtypes.tf32).pointer(array) == array.ctypes.data
    half = np.zeros((2, 3, 4), ml_dtypes.bfloat16)
    assert spec(dtype=bf16, writable=True).pointer(half) == half.ctypes.data


def test_strides_of_single_elements_do_not_matter() -> None:
    array = np.zeros((4, 3, 1), np.float32)[::2][:, :, :1]
    strange = np.lib.stride_tricks.as_strided(array, strides=(24, 4, 4444))
    wanted = spec(shape=(2, 3, 1), strides=(6, 1, 1))
    assert wanted.pointer(strange) == strange.ctypes.data
    empty = np.zeros((0, 3, 4), np.float32)
    assert spec(shape=(0, 3, 4), strides=(9, 9, 9)).pointer(empty) == empty.ctypes.data


def read_only() -> np.ndarray[Any, Any]:
    array = np.zeros((2, 3, 4), np.float32)
    array.flags.writeable = False
    return array


def misaligned() -> np.ndarray[Any, Any]:
    return np.frombuffer(bytearray(97), np.uint8)[1:].view(np.float32).reshape(2, 3, 4)


WRONG = [
    ({}, np.zeros((2, 3, 4)), "src has f64 elements, expected f32", "src.astype('float32')"),
    ({}, np.zeros((2, 3, 4), ">f4"), "other byte order", "newbyteorder"),
    ({}, np.zeros((2, 4, 3), np.float32), "shape (2, 4, 3), expected (2, 3, 4)", "of shape"),
    ({}, np.zeros((2, 12), np.float32), "shape (2, 12), expected (2, 3, 4)", "of shape"),
    (
        {},
        np.zeros((4, 3, 2), np.float32).T,
        "strides (1, 2, 6) (in elements), expected (12, 4, 1)",
        "np.ascontiguousarray(src)",
    ),
    ({"cure": "pass kernel.pack('src', x)"}, np.zeros((4, 3, 2), np.float32).T, "strides", "pack"),
    ({"cure": "pass kernel.pack('src', x)"}, np.zeros((24,), np.float32), "shape", "pack"),
    ({"writable": True}, read_only(), "read-only memory, expected a writable array", "src.copy()"),
    (
        {"writable": True},
        np.zeros((4, 3, 2), np.float32).T,
        "strides",
        "np.ascontiguousarray(src), and copy that back to src after the call",
    ),
    ({"writable": True}, np.zeros((2, 3, 4)), "has f64", "'float32'), and copy that back"),
    ({}, misaligned(), "expected one aligned to 4 bytes", "np.require"),
    ({}, "text", "not an array but str", "numpy array"),
]


@pytest.mark.parametrize(("changes", "given", "what", "cure"), WRONG)
def test_spec_refuses(changes: dict[str, Any], given: Any, what: str, cure: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        spec(**changes).pointer(given)
    error = caught.value
    assert what in error.what
    assert error.where and "src" in str(error.where)
    assert error.cure and cure in error.cure


def test_the_cure_for_other_orders_works() -> None:
    wanted = spec(shape=(2, 3, 4, 5), strides=(60, 1, 15, 3))  # nhwc
    x = np.zeros((2, 3, 4, 5), np.float32)
    with pytest.raises(ArgumentError) as caught:
        wanted.pointer(x)
    assert caught.value.cure
    cured = eval(caught.value.cure.removeprefix("pass "), {"np": np, "src": x})
    assert wanted.pointer(cured) == cured.ctypes.data


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    for element in NUMPY_TYPES:
        tensor = torch.zeros(3, 4, dtype=getattr(torch, element.numpy_name)).t()
        info = describe(tensor)
        assert info.dtype is element
        assert (info.pointer, info.shape) == (tensor.data_ptr(), (4, 3))
        assert (info.strides, info.writable) == ((1, 4), True)
    tensor = torch.zeros(2, 3, 4)
    assert describe(DLPackOnly(tensor)).pointer == tensor.data_ptr()
    wanted = spec()
    parameter = torch.nn.Parameter(tensor, requires_grad=False)
    for values in (tensor, tensor, parameter, tensor):
        assert wanted.pointer(values) == tensor.data_ptr()


def test_torch_refusals() -> None:
    torch = pytest.importorskip("torch")
    negated = torch.conj(torch.zeros(2, 3, 4, dtype=torch.complex64)).imag
    good = torch.zeros(2, 3, 4)
    wrong = [
        (torch.zeros(2, 3, 4, requires_grad=True), "requires grad", "src.detach()"),
        (torch.zeros(2, 3, 4, device="meta"), "no memory", "tensors that have data"),
        (torch.zeros(2, 3, 4).to_sparse(), "torch.sparse_coo", "src.to_dense()"),
        (negated, "negated", "src.resolve_neg()"),
        (torch.zeros(2, 3, 4, dtype=torch.complex64), "torch.complex64", "f32"),
        (torch.zeros(2, 3, 4, dtype=torch.float64), "f64 elements, expected f32", "convert"),
        (torch.zeros(2, 3, 5), "shape (2, 3, 5)", "of shape"),
        (torch.zeros(4, 3, 2).permute(2, 1, 0), "strides (1, 2, 6)", "src.contiguous()"),
    ]
    wanted = spec()
    for warm in (False, True):
        for tensor, what, cure in wrong:
            with pytest.raises(ArgumentError) as caught:
                wanted.pointer(tensor)
            assert what in caught.value.what
            assert caught.value.cure and cure in caught.value.cure
        if not warm:
            assert wanted.pointer(good) == good.data_ptr()
