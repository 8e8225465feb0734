"""Arrays without memory, or with memory that must not be written, and faulty protocols: each is an
`ArgumentError` in calls (the first and later ones), in `bind` and in `pack`."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.dtypes import f32
from tilewright.engine import CompiledKernel
from tilewright.errors import ArgumentError
from tilewright.runtime import dlpack
from tilewright.runtime.arrays import ArraySpec, describe
from tilewright.runtime.device_arrays import describe_resident, is_resident

pytestmark = pytest.mark.usefixtures("own_cache")
SHAPE = (16, 32)


@pytest.fixture
def kernel(own_cache: object) -> CompiledKernel:
    result = tw.compile(tw.matmul("16x32:32x16"), threads=1)
    assert result.packed == ("weights",)
    return result


def refused_everywhere(kernel: CompiledKernel, make: Callable[[], Any], like: Any = None) -> str:
    """What is said of an array; ``like`` is one of its kind that fits. It is the same each time."""
    weights = kernel.pack("weights", np.ones((32, 16), np.float32))
    out = np.zeros((16, 16), np.float32)
    said = []

    def attempt(call: Callable[[], Any]) -> None:
        with pytest.raises(ArgumentError) as caught:
            call()
        said.append(caught.value.what.partition(" ")[2])

    attempt(lambda: kernel(src=make(), weights=weights))
    if like is not None:
        for _ in range(2):
            kernel(src=like, weights=weights)
        attempt(lambda: kernel(src=make(), weights=weights, out=out))
    attempt(lambda: kernel.bind(src=make(), weights=weights))
    attempt(lambda: kernel.pack("weights", make()))
    attempt(lambda: kernel(src=np.ones(SHAPE, np.float32), weights=weights, out=make()))
    assert len(set(said)) == 1, said
    return said[0]


# torch.


def fake(torch: Any) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.zeros(SHAPE)


def emptied(torch: Any) -> Any:
    tensor = torch.zeros(SHAPE)
    tensor.untyped_storage().resize_(0)
    return tensor


def wrapper(torch: Any) -> Any:
    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls: Any) -> Any:
            return torch.Tensor._make_wrapper_subclass(cls, SHAPE, dtype=torch.float32)

        @classmethod
        def __torch_dispatch__(
            cls, function: Any, types: Any, args: Any = (), kw: Any = None
        ) -> Any:
            raise KeyError("nobody is here")

    return Wrapper()


def refusing(torch: Any) -> Any:
    class Refusing(torch.Tensor):
        @classmethod
        def __torch_function__(
            cls, function: Any, types: Any, args: Any = (), kw: Any = None
        ) -> Any:
            raise KeyError("no function is welcome")

    return torch.zeros(SHAPE).as_subclass(Refusing)


def nested(torch: Any, layout: str) -> Any:
    parts = [torch.zeros(32) for _ in range(16)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch: nested tensors are a prototype
        return torch.nested.nested_tensor(parts, layout=getattr(torch, layout))


TENSORS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "fake": (fake, "has no memory"),
    "meta": (lambda torch: torch.zeros(SHAPE, device="meta"), "has no memory"),
    "emptied": (emptied, "has no memory"),
    "all zeros": (lambda torch: torch._efficientzerotensor(SHAPE), "has no memory"),
    "wrapper": (wrapper, "has no memory"),
    "refusing": (refusing, "has no memory"),
    "unset": (lambda torch: torch.nn.parameter.UninitializedParameter(), "has no memory"),
    "nested": (lambda torch: nested(torch, "strided"), "is a torch tensor, a nested one"),
    "jagged": (lambda torch: nested(torch, "jagged"), "is a torch tensor, a nested one"),
    "sparse": (lambda torch: torch.zeros(SHAPE).to_sparse(), "is a torch tensor, torch.sparse_coo"),
    "rows": (
        lambda torch: torch.zeros(SHAPE).to_sparse_csr(),
        "is a torch tensor, torch.sparse_csr",
    ),
    "negated": (
        lambda torch: torch.conj(torch.zeros(SHAPE, dtype=torch.complex64)).imag,
        "is a torch tensor, a lazily negated view",
    ),
    "conjugated": (
        lambda torch: torch.conj(torch.zeros(SHAPE, dtype=torch.complex64)),
        "has elements of an unknown type: torch.complex64",
    ),
}


@pytest.mark.filterwarnings("ignore:Sparse .* support:UserWarning")  # torch's
@pytest.mark.filterwarnings("ignore:.*prototype stage:UserWarning")  # torch's
@pytest.mark.parametrize("which", TENSORS)
def test_tensors_without_memory(kernel: CompiledKernel, which: str) -> None:
    torch = pytest.importorskip("torch")
    make, what = TENSORS[which]
    array = make(torch)
    assert refused_everywhere(kernel, lambda: array, torch.ones(SHAPE)) == what


@pytest.mark.parametrize("wrap", ["vmap", "grad", "functionalize", "export"])
def test_inside_of_transforms(kernel: CompiledKernel, wrap: str) -> None:
    torch = pytest.importorskip("torch")
    seen: list[str] = []

    def function(x: Any) -> Any:
        seen.append(refused_everywhere(kernel, lambda: x, None))
        return x.sum()

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return function(x)

    kernel(src=torch.ones(SHAPE), weights=kernel.pack("weights", np.ones((32, 16), np.float32)))
    if wrap == "vmap":
        torch.vmap(function)(torch.zeros(3, *SHAPE))
    elif wrap == "export":
        torch.export.export(Model(), (torch.zeros(SHAPE),), strict=False)
    else:
        getattr(torch.func, wrap)(function)(torch.zeros(SHAPE))
    assert seen == ["is a torch tensor, one that requires grad" if wrap == "grad" else
                    "has no memory"]  # fmt: skip


def test_tensors_that_lose_their_memory(kernel: CompiledKernel) -> None:
    """What was taken once is looked at again."""
    torch = pytest.importorskip("torch")
    tensor = torch.ones(SHAPE)
    weights = kernel.pack("weights", torch.ones(32, 16))
    for _ in range(3):
        assert (kernel(src=tensor, weights=weights) == 32).all()
    tensor.untyped_storage().resize_(0)
    with pytest.raises(ArgumentError, match="src has no memory"):
        kernel(src=tensor, weights=weights)
    tensor.untyped_storage().resize_(4 * 16 * 32)
    tensor.fill_(2.0)
    assert (kernel(src=tensor, weights=weights) == 64).all()


def test_tensors_without_elements_need_no_memory() -> None:
    torch = pytest.importorskip("torch")
    spec = ArraySpec("src", f32, (0, 3), (3, 1))
    for _ in range(2):
        assert spec.pointer(torch.zeros(0, 3)) == 0


def test_tensors_of_a_gpu_without_memory() -> None:
    torch = pytest.importorskip("torch")
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        tensor = torch.zeros(SHAPE, device="cuda")
    with pytest.raises(ArgumentError, match=r"src has no memory[^$]*torch\.export"):
        describe_resident(tensor, "src")
    with pytest.raises(ArgumentError, match="faulty is_cuda"):
        is_resident(refusing(torch), "src")


# JAX.


def test_jax(kernel: CompiledKernel) -> None:
    jax = pytest.importorskip("jax")
    x = jax.numpy.ones(SHAPE, "float32")
    weights = kernel.pack("weights", jax.numpy.ones((32, 16), "float32"))
    assert (kernel(src=x, weights=weights) == 32).all()
    for _ in range(2):
        out = jax.numpy.zeros((16, 16), "float32")
        with pytest.raises(ArgumentError, match=r"dst has memory that may be read-only[^$]*JAX"):
            kernel(src=x, weights=weights, out=out)
        with pytest.raises(ArgumentError, match=r"may be read-only[^$]*be allocated"):
            kernel.bind(src=x, weights=weights, dst=out)
        assert (np.asarray(out) == 0).all()
    x.delete()
    with pytest.raises(ArgumentError, match="src has a faulty __dlpack_device__"):
        kernel(src=x, weights=weights)


@pytest.mark.parametrize("transform", ["jit", "vmap", "grad"])
def test_inside_of_jax_transforms(kernel: CompiledKernel, transform: str) -> None:
    jax = pytest.importorskip("jax")
    seen: list[str] = []

    def function(x: Any) -> Any:
        seen.append(refused_everywhere(kernel, lambda: x))
        return x.sum()

    shape = (3, *SHAPE) if transform == "vmap" else SHAPE
    getattr(jax, transform)(function)(jax.numpy.ones(shape, "float32"))
    assert len(seen) == 1 and "Tracer" in seen[0]


# Capsules made by hand.

_new = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", ctypes.pythonapi))  # fmt: skip


class Made:
    """A capsule as its fields say; ``versioned`` ones say that they may be written."""

    def __init__(self, versioned: bool = True, said: Any = (1, 0), **changes: Any) -> None:
        self.data = np.ones(SHAPE, np.float32)
        self.shape, self.steps = (ctypes.c_int64 * 2)(*SHAPE), (ctypes.c_int64 * 2)(32, 1)
        kind = dlpack._Versioned if versioned else dlpack._Tensor
        self.memory = kind()
        tensor = self.memory.tensor if versioned else self.memory
        if versioned:
            self.memory.major = 1
        values = {
            "data": self.data.ctypes.data, "device_type": 1, "ndim": 2, "code": 2, "bits": 32,
            "lanes": 1, "shape": self.shape, "strides": self.steps,
        }  # fmt: skip
        for field, value in (values | changes).items():
            setattr(tensor, field, value)
        self.name = b"dltensor_versioned" if versioned else b"dltensor"
        self.said = said

    def __dlpack_device__(self) -> Any:
        return self.said

    def __dlpack__(self, **options: Any) -> Any:
        return _new(ctypes.addressof(self.memory), self.name, None)


def negative() -> Any:
    return (ctypes.c_int64 * 2)(16, -1)


CAPSULES: dict[str, tuple[dict[str, Any], str]] = {
    "null": ({"data": 0}, "has no memory"),
    "null with an offset": ({"data": 0, "byte_offset": 64}, "has no memory"),
    "no shape": ({"shape": None}, "does not give its memory away"),
    "negative dims": ({"ndim": -1}, "does not give its memory away"),
    "many dims": ({"ndim": 2**31 - 1}, "does not give its memory away"),
    "negative size": ({"shape": negative()}, "has the shape (16, -1)"),
    "beyond the end": ({"byte_offset": 2**64 - 64}, "has elements from address "),
    "odd elements": ({"code": 200}, "has elements of an unknown type: DLPack type code 200, "),
    "on a GPU after all": ({"device_type": 2}, "has a capsule of device type 2"),
}  # fmt: skip


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("which", CAPSULES)
def test_capsules(kernel: CompiledKernel, which: str, versioned: bool) -> None:
    changes, what = CAPSULES[which]
    array = Made(versioned, **changes)
    assert refused_everywhere(kernel, lambda: array).startswith(what)


def test_capsules_that_are_right(kernel: CompiledKernel) -> None:
    weights = kernel.pack("weights", np.ones((32, 16), np.float32))
    for versioned in (True, False):
        assert (kernel(src=Made(versioned), weights=weights) == 32).all()
    assert describe(Made(data=0, shape=(ctypes.c_int64 * 2)(0, 32))).pointer == 0
    spec = ArraySpec("dst", f32, SHAPE, (32, 1), writable=True)
    assert spec.pointer(Made())
    with pytest.raises(ArgumentError, match="may be read-only"):
        spec.pointer(Made(versioned=False))
    for flag in (1, 2):  # read-only; copied, although it was asked for what is there
        flagged = Made()
        flagged.memory.flags = flag
        assert describe(flagged).writable is False
        with pytest.raises(ArgumentError, match="dst has read-only memory"):
            spec.pointer(flagged)


# Faulty protocols.


class AnError(Exception):
    """None that numpy or torch would raise."""


def _raise(*arguments: Any, **options: Any) -> Any:
    raise AnError("no")


def _having(**attributes: Any) -> Any:
    return type("Foreign", (), attributes)()


INTERFACE = {"data": (64, False), "shape": SHAPE, "typestr": "<f4", "version": 3}

FAULTY: dict[str, Callable[[], Any]] = {
    "a class": lambda: np.ndarray,
    "no device": lambda: _having(__dlpack__=lambda self, **_: 1, __dlpack_device__=_raise),
    "odd device": lambda: _having(
        __dlpack__=lambda self, **_: 1, __dlpack_device__=lambda self: "cpu"
    ),
    "no capsule": lambda: _having(__dlpack__=_raise, __dlpack_device__=lambda self: (1, 0)),
    "odd capsule": lambda: _having(
        __dlpack__=lambda self, **_: 3, __dlpack_device__=lambda self: (1, 0)
    ),
    "no attributes": lambda: _having(__getattr__=_raise),
    "no interface": lambda: _having(__array_interface__=property(_raise)),
    "an odd interface": lambda: _having(__array_interface__=7),
    "an empty interface": lambda: _having(__array_interface__={}),
    "an interface to nothing": lambda: _having(
        __array_interface__=INTERFACE | {"data": (0, False)}
    ),
    "an interface with odd strides": lambda: _having(
        __array_interface__=INTERFACE | {"strides": (4,)}
    ),
    "an interface of texts": lambda: _having(
        __array_interface__=INTERFACE | {"data": ("here", False)}
    ),
    "a huge interface": lambda: _having(
        __array_interface__=INTERFACE | {"shape": (2**62, 2**62)}
    ),
    "a stand-in": lambda: _having(__class__=property(lambda self: np.ndarray)),
}  # fmt: skip


@pytest.mark.parametrize("which", FAULTY)
def test_faulty_protocols(kernel: CompiledKernel, which: str) -> None:
    array = FAULTY[which]()
    assert refused_everywhere(kernel, lambda: array)


RESIDENT: dict[str, dict[str, Any]] = {
    "null": {"data": (0, False)},
    "no data": {"data": None},
    "texts": {"data": ("here", False)},
    "negative": {"data": (-64, False)},
    "one stride": {"strides": (4,)},
    "strides of texts": {"strides": "ab"},
    "odd strides": {"strides": 7},
    "a negative size": {"shape": (16, -32)},
    "no shape": {"shape": None},
    "far strides": {"strides": (2**62, 4)},
    "nothing": {"typestr": "|V0"},
    "objects": {"typestr": "|O"},
    "pairs": {"typestr": "(2,)<f4"},
    "a version": {"version": "three"},
    "a stream": {"stream": "first"},
}


@pytest.mark.parametrize("which", RESIDENT)
def test_faulty_interfaces_of_gpus(which: str) -> None:
    array = _having(__cuda_array_interface__=INTERFACE | RESIDENT[which])
    with pytest.raises(ArgumentError) as caught:
        describe_resident(array, "src")
    assert caught.value.what.startswith("src ")


def test_faulty_arrays_of_gpus() -> None:
    for made in (
        _having(__cuda_array_interface__=INTERFACE, __dlpack_device__=_raise),
        _having(__cuda_array_interface__=INTERFACE, device=_having(id="first")),
        _having(__dlpack__=_raise, __dlpack_device__=lambda self: (2, 0)),
        Made(said=(2, 0), data=0, device_type=2),
        Made(said=(2, 0)),
    ):
        with pytest.raises(ArgumentError):
            describe_resident(made, "src")
    assert not is_resident(_having(__cuda_array_interface__=property(_raise)), "src")


def test_what_says_itself_that_it_is_written() -> None:
    """cupy's capsules have no flags, but its interface says it; so does numpy's own flag."""
    capsule = Made(versioned=False, said=(2, 0), device_type=2)
    result = describe_resident(capsule, "dst")
    assert result is not None and result.info.writable is None
    for read_only in (False, True):
        interface = INTERFACE | {"typestr": "|V2", "data": (64, read_only)}
        capsule.__cuda_array_interface__ = interface  # type: ignore[attr-defined]
        result = describe_resident(capsule, "dst")
        assert result is not None and result.info.writable is not read_only
    array = np.zeros(3)
    assert describe(array).writable
    array.flags.writeable = False
    assert not describe(array).writable
