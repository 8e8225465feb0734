"""Tensor maps: what the copy unit takes, what a cache keeps, and what the driver is asked for. The
driver is one that stands for NVIDIA's; nothing here runs on a GPU.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from nvidia_driver import Driver, Status, standing_in
from tilewright.dtypes import bf16, f8_e4m3, f16, f32, s4, u8
from tilewright.errors import DeviceError, UnsupportedError
from tilewright.machines.nvidia.tensor_map import Columns, TensorMap, Tile, check_tensor_map
from tilewright.targets.llvm.module import Launch, LaunchMap
from tilewright.targets.nvidia import device as here
from tilewright.targets.nvidia.driver import KernelProgram
from tilewright.targets.program import Abi, Parameter, Placement
from tilewright.targets.registry import find_target

# A of a matmul, 4096 x 1024: boxes of 64 x 128, 128 bytes a row.
MATRIX = TensorMap(0, bf16, (1024, 4096), (2048,), Tile((64, 128)), swizzle=128)
# A 3x3 convolution with padding 1 and stride 2 on 64 channels of 56x56, 8 images.
IMAGES = TensorMap(
    *(1, f16, (64, 56, 56, 8), (128, 128 * 56, 128 * 56 * 56)),
    Columns((-1, -1), (-1, -1), channels=64, pixels=128),
    steps=(1, 2, 2, 1),
    swizzle=128,
)
SLICES = TensorMap(
    0, u8, (32, 14, 14), (32, 448), Tile((32, 8, 8)), swizzle=32, interleave=32, nan=False
)


@pytest.mark.parametrize("map", [MATRIX, IMAGES, SLICES], ids=str)
def test_what_the_unit_takes(map: TensorMap) -> None:
    check_tensor_map(map, map.bytes)
    assert TensorMap.from_json(json.loads(json.dumps(map.as_json()))) == map


def test_bytes() -> None:
    assert MATRIX.bytes == 4096 * 2048
    assert MATRIX.row == IMAGES.row == 128
    assert IMAGES.bytes == 8 * 56 * 56 * 128
    assert replace(MATRIX, shape=(3, 2)).bytes == 2048 + 6


@pytest.mark.parametrize(
    ("map", "changes", "text"),
    [
        (MATRIX, {"dtype": s4}, "elements of s4"),
        (MATRIX, {"swizzle": 256}, "a swizzle of 256 bytes"),
        (MATRIX, {"interleave": 8}, "an interleave of 8 bytes"),
        (MATRIX, {"promotion": 32}, "an L2 promotion of 32 bytes"),
        (MATRIX, {"interleave": 16}, "2 dims"),
        (MATRIX, {"shape": (), "strides": ()}, "0 dims"),
        (MATRIX, {"shape": (8,) * 6, "strides": (16,) * 5, "steps": (1,) * 6}, "6 dims"),
        (IMAGES, {"shape": (64, 56), "strides": (128,), "steps": (1, 1)}, "2 dims"),
        (MATRIX, {"strides": ()}, "0 strides and 2 steps for 2 dims"),
        (MATRIX, {"steps": (1,)}, "1 strides and 1 steps for 2 dims"),
        (MATRIX, {"shape": (1024, 0)}, "0 elements in dim 1"),
        (MATRIX, {"shape": (2**32 + 1, 1)}, "4294967297 elements in dim 0"),
        (MATRIX, {"strides": (2056,)}, "a stride of 2056 bytes in dim 1"),
        (MATRIX, {"strides": (0,)}, "a stride of 0 bytes in dim 1"),
        (MATRIX, {"strides": (2**40,)}, "a stride of 1099511627776 bytes in dim 1"),
        (SLICES, {"strides": (48, 480)}, "a stride of 48 bytes in dim 1"),
        (MATRIX, {"steps": (1, 9)}, "a step of 9 in dim 1"),
        (MATRIX, {"steps": (2, 1)}, "a step of 2 in dim 0"),
        (MATRIX, {"offset": 8}, "an offset of 8 bytes"),
        (SLICES, {"nan": True}, "NaN outside of u8 elements"),
        (MATRIX, {"dtype": f8_e4m3, "nan": True}, "NaN outside of f8_e4m3 elements"),
        (MATRIX, {"box": Tile((64,))}, "a box of 1 sizes for 2 dims"),
        (MATRIX, {"box": Tile((64, 257))}, "a box of 257 elements in dim 1"),
        (MATRIX, {"box": Tile((64, 0))}, "a box of 0 elements in dim 1"),
        (MATRIX, {"box": Tile((63, 8))}, "rows of 126 bytes"),
        (MATRIX, {"box": Tile((128, 8))}, "rows of 256 bytes, but a swizzle of 128"),
        (MATRIX, {"swizzle": 32}, "rows of 128 bytes, but a swizzle of 32"),
        (SLICES, {"swizzle": 0}, "an interleave of 32 bytes without a swizzle of 32"),
        (IMAGES, {"box": Columns((-1,), (-1, -1), 64, 128)}, "corners of 1 and 2 offsets"),
        (IMAGES, {"box": Columns((-129, 0), (0, 0), 64, 128)}, "corners at -129 and 0 in dim 1"),
        (IMAGES, {"box": Columns((0, 0), (0, -56), 64, 128)}, "no pixel between its corners in"),
        (IMAGES, {"box": Columns((0, 0), (0, 0), 257, 128)}, "257 channels per pixel"),
        (IMAGES, {"box": Columns((0, 0), (0, 0), 64, 1025)}, "1025 pixels per column"),
        (IMAGES, {"box": Columns((0, 0), (0, 0), 128, 64)}, "rows of 256 bytes, but a swizzle"),
    ],
)
def test_what_it_does_not_take(map: TensorMap, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(UnsupportedError) as raised:
        check_tensor_map(replace(map, **changes))
    assert raised.value.what.startswith(f"the tensor map has {text}")
    assert raised.value.where and raised.value.cure


def test_a_map_that_reaches_beyond_its_argument() -> None:
    with pytest.raises(UnsupportedError, match="has 8388624 bytes from its argument on"):
        check_tensor_map(replace(MATRIX, offset=16), MATRIX.bytes)


# Launches.

WORK = replace(MATRIX, argument=3, shape=(8, 4), strides=(256,))


def _told(tensor: TensorMap) -> LaunchMap:
    return LaunchMap(tensor.argument, tensor.text)


ABI = Abi(
    "k",
    (
        Parameter("a", bf16, (4096, 1024), "in", MATRIX.bytes),
        Parameter("x", f16, (8, 64, 56, 56), "in", IMAGES.bytes),
        Parameter("y", f32, (64,), "out", 256),
    ),
    (1024,),
    (
        Launch("k_0", 132, 384, 200_000, cluster=2, maps=(_told(MATRIX), _told(IMAGES))),
        Launch("k_1", 3, 32, 0, maps=(_told(WORK),)),
    ),
)
EVERYWHERE = Placement((True,) * 3, 7)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    with standing_in(monkeypatch, Driver()) as result:
        yield result


def program(abi: Abi = ABI) -> KernelProgram:
    return KernelProgram(here.find_device(), b"ptx\0", abi)


def test_a_cache_keeps_them() -> None:
    assert Abi.from_json(json.loads(json.dumps(ABI.as_json()))) == ABI
    for tensor in (MATRIX, IMAGES, WORK):
        assert TensorMap.from_text(tensor.text) == tensor


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"dtype": "bf16", "box": {}}'])
def test_what_is_no_map_is_refused(driver: Driver, text: str) -> None:
    launch = Launch("k_0", 1, 32, 0, maps=(LaunchMap(0, text),))
    with pytest.raises(DeviceError, match="a tensor map of k_0 cannot be read"):
        program(replace(ABI, launches=(launch,)))


def test_what_a_launch_takes(driver: Driver) -> None:
    seen: dict[str, list[int]] = {}

    def see(name: str, count: int) -> Any:
        return lambda value: seen.update({name: [value(i) for i in range(count)]})

    driver.kernels |= {"k_0": see("k_0", 6), "k_1": see("k_1", 5)}
    result = program()
    result.run_placed([0x1000, 0x2000, 0x3000], EVERYWHERE)
    tiled, images, work = driver.maps
    # bf16 and f16; strides of one less; no interleave, 128-byte swizzle and promotion, zeros.
    assert (tiled["type"], tiled["address"]) == (9, 0x1000)
    assert (tiled["shape"], tiled["strides"]) == ([1024, 4096], [2048])
    assert (tiled["box"], tiled["steps"], tiled["modes"]) == ([64, 128], [1, 1], [0, 3, 2, 0])
    assert (images["type"], images["address"], images["steps"]) == (6, 0x2000, [1, 2, 2, 1])
    assert (images["lower"], images["upper"]) == ([-1, -1], [-1, -1])
    assert (images["channels"], images["pixels"]) == (64, 128)
    # Behind the three arrays and the workspace, by value, as aligned as the driver asks.
    assert seen["k_0"][4:] == [tiled["place"], images["place"]]
    assert seen["k_1"][4:] == [work["place"]]
    assert all(map_["place"] % 64 == 0 for map_ in driver.maps)
    # The first in clusters, as its attribute says; the second plainly.
    ((_, config, function, _, _),) = driver.named("cuLaunchKernelEx")
    assert (function, config.gridDimX, config.blockDimX) == ("k_0", 132, 384)
    assert (config.sharedMemBytes, config.hStream, config.numAttrs) == (200_000, 7, 1)
    (attribute,) = config.attrs
    assert attribute.id == "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION"
    cluster = attribute.value.clusterDim
    assert (cluster.x, cluster.y, cluster.z) == (2, 1, 1)
    ((_, function, *size, stream, _, _),) = driver.named("cuLaunchKernel")
    assert (function, size, stream) == ("k_1", [3, 1, 1, 32, 1, 1, 0], 7)


def test_maps_are_made_once_for_a_pointer(driver: Driver) -> None:
    result = program(replace(ABI, workspaces=(), launches=ABI.launches[:1]))
    for first in (0x1000, 0x1000, 0x4000, 0x1000):
        result.run_placed([first, 0x2000, 0x3000], EVERYWHERE)
    assert [map_["address"] for map_ in driver.maps] == [0x1000, 0x2000, 0x4000]
    for number in range(100):
        result.run_placed([0x10000 + 256 * number, 0x2000, 0x3000], EVERYWHERE)
    kept = [len(encoded._encoded) for _, encoded in result._launchers[0]._maps]
    assert kept == [38, 1]


@pytest.mark.parametrize(
    ("version", "shape", "cleared"),
    [
        (13010, (64, 8), True),
        (13020, (64, 8), False),
        (13010, (1024, 4096), False),
        # The limit, 131072 bytes, and an element less.
        (12040, (1024, 64), False),
        (12040, (1023, 64), True),
    ],
)
def test_drivers_that_mark_small_tensors_as_large(
    driver: Driver, version: int, shape: tuple[int, int], cleared: bool
) -> None:
    driver.version = version
    words: list[int] = []

    def see(value: Any) -> None:
        words.extend((ctypes.c_uint64 * 16).from_address(value(1)))

    driver.kernels["k"] = see
    map = replace(MATRIX, shape=shape)
    parameter = Parameter("a", bf16, shape, "in", MATRIX.bytes)
    abi = Abi("k", (parameter,), (), (Launch("k", 1, 32, 0, maps=(map,)),))
    program(abi).run_placed([0x1000], Placement((True,), 7))
    ones = 2**64 - 1
    assert words == [0x1000, ones & ~(1 << 21) if cleared else ones, *[ones] * 14]


def test_a_map_that_the_driver_refuses(driver: Driver) -> None:
    driver.failing["cuTensorMapEncode"] = Status.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(DeviceError) as raised:
        program().run_placed([0x1000, 0x2000, 0x3000], EVERYWHERE)
    assert "why: cuTensorMapEncodeTiled: CUDA_ERROR_INVALID_VALUE" in str(raised.value)


def test_a_driver_without_maps(driver: Driver) -> None:
    driver._functions = {}
    with pytest.raises(DeviceError, match="cuTensorMapEncodeTiled: the driver is older"):
        program().run_placed([0x1000, 0x2000, 0x3000], EVERYWHERE)


@pytest.mark.parametrize(
    ("launch", "text"),
    [
        ({"cluster": 5}, "132 workgroups in clusters of 5"),
        ({"cluster": 11}, "a cluster is whole, and has at most 8"),
        ({"maps": (replace(MATRIX, box=Tile((64, 512))),)}, "a box of 512 elements"),
        ({"maps": (replace(MATRIX, argument=2),)}, "from its argument on, which has 256"),
    ],
)
def test_launches_that_no_device_takes(driver: Driver, launch: dict[str, Any], text: str) -> None:
    first = replace(ABI.launches[0], **launch)
    with pytest.raises((DeviceError, UnsupportedError), match=text):
        program(replace(ABI, launches=(first,)))


def test_a_device_without_clusters(driver: Driver) -> None:
    driver.attributes["COMPUTE_CAPABILITY_MAJOR"] = 8
    with pytest.raises(DeviceError, match=r"they came with compute capability 9\.0"):
        program()


def test_how_another_program_launches_it() -> None:
    words = find_target("nvidia:sm_90a").calling(ABI)
    assert "`k_0` is launched in clusters of 2 (CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)." in words
    assert "`k_0` takes, after the pointers, 2 tensor maps by value" in words
    assert f"- {MATRIX!r}" in words and f"- {IMAGES!r}" in words
