"""Random arguments for each op of core ATen: what `torch_ops` compares with PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

Sample = tuple[tuple[Any, ...], dict[str, Any]]
FLOATS = (torch.float32, torch.bfloat16)
ALL = (torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.uint8)
WHOLE = (torch.int64, torch.int32, torch.uint8, torch.bool)


def drawn(*shape: int, dtype: torch.dtype = torch.float32, low: float = -3, high: float = 3) -> Any:
    """A tensor of random numbers."""
    if dtype is torch.bool:
        return torch.rand(shape) < 0.5
    if dtype is torch.uint8:
        low = max(low, 0)
    values = torch.rand(shape, dtype=torch.float64) * (high - low) + low
    return values.round().to(dtype) if not dtype.is_floating_point else values.to(dtype)


def places(size: int, *shape: int) -> Any:
    """Random places along a dim of ``size``."""
    return torch.randint(0, size, shape)


def call(*args: Any, **kwargs: Any) -> Sample:
    """The arguments of a call."""
    return args, kwargs


def _unary(low: float = -3, high: float = 3, dtypes: Any = ALL) -> Iterator[Sample]:
    for dtype in dtypes:
        yield call(drawn(5, 7, dtype=dtype, low=low, high=high))
    yield call(drawn(7, 5, low=low, high=high).t())
    yield call(drawn(low=low, high=high))


def _binary(dtypes: Any = ALL, low: float = -3, high: float = 3) -> Iterator[Sample]:
    for dtype in dtypes:
        yield call(
            drawn(5, 7, dtype=dtype, low=low, high=high), drawn(7, dtype=dtype, low=low, high=high)
        )
    yield call(drawn(4, 1, 3, low=low, high=high), drawn(5, 1, low=low, high=high))
    if dtypes is ALL:
        yield call(drawn(6, dtype=torch.int32), drawn(6))
        yield call(drawn(6, dtype=torch.bfloat16), drawn(dtype=torch.float32))
        yield call(drawn(6, dtype=torch.uint8), drawn(6, dtype=torch.int64))


def _number(values: Any = (2, 2.5, -1), dtypes: Any = ALL) -> Iterator[Sample]:
    for dtype in dtypes:
        for value in values:
            yield call(drawn(5, 3, dtype=dtype), value)


def _divided() -> Iterator[Sample]:
    for a, b in ((drawn(5, 7), drawn(7)), (drawn(6, dtype=torch.int32), drawn(6, low=1))):
        yield call(a, b)
    yield call(drawn(9, dtype=torch.int64), drawn(9, dtype=torch.int64, low=1, high=4))
    yield call(drawn(9, dtype=torch.bfloat16), drawn(9, dtype=torch.bfloat16, low=1, high=4))


def _whole_division() -> Iterator[Sample]:
    for args, _ in _divided():
        if args[0].dtype == args[1].dtype:
            yield args, {}


def _rounded_division() -> Iterator[Sample]:
    for args, _ in _whole_division():
        for mode in ("trunc", "floor", None):
            yield args, {"rounding_mode": mode}


def _reduced(dtypes: Any = FLOATS, **more: Any) -> Iterator[Sample]:
    for dtype in dtypes:
        x = drawn(3, 4, 5, dtype=dtype)
        for dim, keep in (([1], False), ([0, 2], True), ([-1], True)):
            yield call(x, dim, keep, **more)


def _one_dim(dtypes: Any = FLOATS) -> Iterator[Sample]:
    for dtype in dtypes:
        x = drawn(3, 4, 5, dtype=dtype)
        yield call(x, 1)
        yield call(x, -1, True)


def _arg() -> Iterator[Sample]:
    yield call(torch.randperm(60).reshape(3, 4, 5).float())
    yield call(torch.randperm(60).reshape(3, 4, 5).float(), 1)
    yield call(torch.randperm(60).reshape(3, 4, 5), -1, True)
    yield call(torch.tensor([[1.0, float("nan"), 3.0], [2.0, 2.0, 1.0]]), 1)


def _arg_dim() -> Iterator[Sample]:
    return (sample for sample in _arg() if len(sample[0]) > 1)


def _convolutions(backward: bool = False) -> Iterator[Sample]:
    for x, w, stride, padding, dilation, transposed, more, groups in (
        ((2, 3, 9, 8), (4, 3, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
        ((2, 4, 9, 8), (6, 2, 3, 2), [2, 1], [1, 0], [1, 2], False, [0, 0], 2),
        ((1, 4, 7, 7), (4, 1, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 4),
        ((2, 3, 11), (4, 3, 4), [3], [2], [1], False, [0], 1),
        ((2, 4, 5, 6), (4, 3, 3, 3), [2, 2], [1, 1], [1, 1], True, [1, 0], 1),
        ((2, 4, 5), (4, 3, 3), [2], [0], [1], True, [1], 2),
        ((1, 2, 4, 5, 4), (3, 2, 2, 3, 2), [1, 2, 1], [0, 1, 0], [1, 1, 1], False, [0] * 3, 1),
    ):
        image, weight = drawn(*x), drawn(*w)
        values = (stride, padding, dilation, transposed, more, groups)
        channels = w[1] * groups if transposed else w[0]
        if not backward:
            yield call(image, weight, drawn(channels), *values)
            continue
        result = torch.ops.aten.convolution(image, weight, None, *values)
        yield call(drawn(*result.shape), image, weight, [channels], *values, [True] * 3)
    if not backward:
        yield call(drawn(1, 3, 6, 6).bfloat16(), drawn(2, 3, 3, 3).bfloat16(), None,
                   [1, 1], [0, 0], [1, 1], False, [0, 0], 1)  # fmt: skip


def _pooled(rank: int, average: bool = False) -> Iterator[Sample]:
    sizes = (9, 8, 7)[:rank]
    for dtype in FLOATS:
        x = torch.randperm(2 * 3 * 504)[: 6 * torch.Size(sizes).numel()]
        x = (x.reshape(2, 3, *sizes).float() / 64).to(dtype)
        yield call(x, [2] * rank, [2] * rank)
        yield call(x, [3] * rank, [2] * rank, [1] * rank)
        if average:
            yield call(x, [3] * rank, [2] * rank, [1] * rank, True, False)
        else:
            yield call(x, [3] * rank, [2] * rank, [1] * rank, [1] * rank, True)
            yield call(x, [2] * rank, [1] * rank, [0] * rank, [2] * rank)


def _max_pool_backward() -> Iterator[Sample]:
    x = torch.randperm(2 * 3 * 72).reshape(2, 3, 9, 8).float()
    for value in (([2, 2], [2, 2], [0, 0], [1, 1], False), ([3, 3], [2, 2], [1, 1], [1, 1], True)):
        values, where = torch.ops.aten.max_pool2d_with_indices(x, *value)
        yield call(drawn(*values.shape), x, *value, where)


def _avg_pool_backward() -> Iterator[Sample]:
    x = drawn(2, 3, 9, 8)
    for values in (
        ([2, 2], [2, 2], [0, 0], False, True, None),
        ([3, 3], [2, 2], [1, 1], True, False, None),
        ([3, 2], [1, 2], [1, 0], False, True, 5),
    ):
        result = torch.ops.aten.avg_pool2d(x, *values)
        yield call(drawn(*result.shape), x, *values)


def _norms() -> Iterator[Sample]:
    for dtype in FLOATS:
        x = drawn(3, 4, 6, dtype=dtype)
        yield call(x, [6], drawn(6, dtype=dtype), drawn(6, dtype=dtype), 1e-5)
    yield call(drawn(3, 4, 6), [4, 6], None, None, 1e-5)


def _batch_norm() -> Iterator[Sample]:
    for weight in (drawn(3), None):
        yield call(drawn(2, 3, 4, 5), weight, weight, drawn(3), drawn(3, low=1), 0.1, 1e-5)


def _grown(pad: Any, rank: int) -> Callable[[], Iterator[Sample]]:
    def samples() -> Iterator[Sample]:
        yield call(drawn(2, 3, *(5, 6, 7)[:rank]), pad)

    return samples


def _scattered(*more: Any, number: bool = False) -> Iterator[Sample]:
    index = torch.stack([torch.randperm(5)[:3] for _ in range(4)], 1)
    yield call(drawn(5, 6), 0, index, *((2.5,) if number else (drawn(3, 4),)), *more)
    yield call(
        drawn(4, 5), -1, index.t().contiguous(), *((1,) if number else (drawn(4, 3),)), *more
    )


def _several(*functions: Callable[[], Sample]) -> Callable[[], Iterator[Sample]]:
    return lambda: (function() for function in functions)


def _index() -> Iterator[Sample]:
    x = drawn(5, 6, 7)
    yield call(x, [places(5, 4)])
    yield call(x, [None, places(6, 3, 2) - 6, places(7, 2)])
    yield call(x, [places(5, 3), None, places(7, 3)])


def _index_put() -> Iterator[Sample]:
    x = drawn(5, 6, 7)
    yield call(x, [torch.randperm(5)[:3]], drawn(3, 6, 7))
    yield call(x, [None, places(6, 4)], drawn(5, 4, 7), True)
    yield call(x, [x > 0], torch.tensor(0.5))


def _group_norm_backward() -> Iterator[Sample]:
    x, weight = drawn(2, 6, 4, 5), drawn(6)
    y, mean, scale = torch.ops.aten.native_group_norm(x, weight, None, 2, 6, 20, 3, 1e-5)
    yield call(drawn(*y.shape), x, mean, scale, weight, 2, 6, 20, 3, [True] * 3)


def _layer_norm_backward() -> Iterator[Sample]:
    x, weight = drawn(4, 6), drawn(6)
    y, mean, scale = torch.ops.aten.native_layer_norm(x, [6], weight, weight, 1e-5)
    yield call(drawn(*y.shape), x, [6], mean, scale, weight, weight, [True] * 3)


_FLOAT_UNARY = (
    *("abs", "asinh", "atan", "ceil", "cos", "cosh", "erf", "exp", "expm1", "floor", "isinf"),
    *("isnan", "neg", "reciprocal", "relu", "round", "sigmoid", "sign", "sin", "sinh", "tan"),
    *("tanh", "trunc", "gelu", "elu", "leaky_relu", "hardtanh", "logical_not"),
)
_KEEPS_FLOATS = ("gelu", "elu", "leaky_relu", "neg", "reciprocal", "hardtanh")
_POSITIVE = ("log", "log10", "log1p", "log2", "rsqrt", "sqrt", "acosh")
_SMALL = ("acos", "asin", "atanh")
_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")

SAMPLES: dict[str, Callable[[], Iterator[Sample]]] = {
    **{
        f"{n}.default": lambda n=n: _unary(dtypes=FLOATS if n in _KEEPS_FLOATS else ALL)  # type: ignore[misc]
        for n in _FLOAT_UNARY
    },
    **{f"{n}.default": lambda: _unary(1.1, 4) for n in _POSITIVE},
    **{f"{n}.default": lambda: _unary(-0.95, 0.95, FLOATS) for n in _SMALL},
    "bitwise_not.default": lambda: _unary(dtypes=WHOLE),
    "add.Tensor": _binary, "sub.Tensor": _binary, "mul.Tensor": _binary,
    "add.Scalar": _number, "sub.Scalar": _number, "mul.Scalar": _number,
    "maximum.default": _binary, "minimum.default": _binary,
    "div.Tensor": _divided, "div.Scalar": lambda: _number((2, 2.5)),
    "div.Tensor_mode": _rounded_division,
    "div.Scalar_mode": lambda: (
        (a, {"rounding_mode": m}) for a, _ in _number((2, 3)) for m in ("trunc", "floor")
    ),
    "fmod.Tensor": _whole_division, "fmod.Scalar": lambda: _number((2, 3)),
    "remainder.Tensor": _whole_division, "remainder.Scalar": lambda: _number((2, 3)),
    "atan2.default": lambda: _binary(FLOATS),
    "pow.Tensor_Scalar": lambda: (
        *_number((2, 3), ALL), *_number((0.5, -1, 2.5), (torch.float32,))
    ),
    "pow.Tensor_Tensor": lambda: _binary(FLOATS, 0.5, 3),
    "pow.Scalar": _several(lambda: call(2.5, drawn(4, 5)), lambda: call(2, drawn(4))),
    **{f"{n}.Tensor": _binary for n in _COMPARED},
    **{f"{n}.Scalar": lambda: _number((1, 0.5)) for n in _COMPARED},
    **{f"logical_{n}.default": lambda: _binary(ALL, -1, 1) for n in ("and", "or", "xor")},
    **{f"bitwise_{n}.Tensor": lambda: _binary(WHOLE) for n in ("and", "or", "xor")},
    **{f"bitwise_{n}.Scalar": lambda: _number((5, 3), WHOLE[:3]) for n in ("and", "or", "xor")},
    "clamp.default": _several(
        lambda: call(drawn(4, 5), -1, 1), lambda: call(drawn(4, 5), None, 0.5),
        lambda: call(drawn(4, 5, dtype=torch.int32), -1, 2),
    ),
    "clamp.Tensor": _several(
        lambda: call(drawn(4, 5), drawn(5), drawn(5, low=2)),
        lambda: call(drawn(4, 5), None, drawn(5)),
    ),
    "where.self": _several(
        lambda: call(drawn(4, 1, dtype=torch.bool), drawn(4, 5), drawn(5)),
        lambda: call(drawn(4, dtype=torch.bool), drawn(4, dtype=torch.int32), drawn(4)),
    ),
    "_to_copy.default": _several(
        lambda: call(drawn(4, 5), dtype=torch.bfloat16),
        lambda: call(drawn(4, 5), dtype=torch.int64),
        lambda: call(drawn(4, 5, dtype=torch.int64), dtype=torch.bool),
    ),
    "copy.default": _several(lambda: call(drawn(4, 5), drawn(5, dtype=torch.int64))),
    "clone.default": _unary, "alias.default": _unary,
    "view.default": _several(
        lambda: call(drawn(4, 6), [3, 8]), lambda: call(drawn(2, 3, 4), [6, 4])
    ),
    "unsqueeze.default": _several(lambda: call(drawn(4, 5), 1)),
    "squeeze.dim": _several(lambda: call(drawn(4, 1, 5), 1)),
    "squeeze.dims": _several(lambda: call(drawn(1, 4, 1), [0, 2])),
    "expand.default": _several(lambda: call(drawn(4, 1), [2, 4, 3])),
    "permute.default": _several(lambda: call(drawn(2, 3, 4), [2, 0, -2])),
    "slice.Tensor": _several(
        lambda: call(drawn(9, 5), 0, 1, -1, 3), lambda: call(drawn(9, 5), 1, -3, 99)
    ),
    "select.int": _several(lambda: call(drawn(4, 5), 1, -2)),
    "split_with_sizes.default": _several(lambda: call(drawn(4, 6), [1, 2, 3], 1)),
    "cat.default": _several(
        lambda: call([drawn(2, 3), drawn(4, 3)]),
        lambda: call([drawn(2, 3), drawn(2, 1, dtype=torch.int64)], -1),
    ),
    "flip.default": _several(lambda: call(drawn(2, 3, 4), [0, -1])),
    "constant_pad_nd.default": _several(
        lambda: call(drawn(3, 4), [1, 2, -1, 1], 2.5), lambda: call(drawn(3, 4), [0, 1])
    ),
    "repeat.default": _several(lambda: call(drawn(3, 4), [2, 3, 2])),
    "diagonal.default": _several(
        lambda: call(drawn(3, 4)), lambda: call(drawn(2, 4, 5), 1, 1, 2),
        lambda: call(drawn(4, 2, 5), -2, 0, -1),
    ),
    "as_strided.default": _several(lambda: call(drawn(5, 4), [3, 2], [4, 2], 1)),
    "reflection_pad1d.default": _grown([2, 1], 1),
    "reflection_pad2d.default": _grown([2, 1, 3, 0], 2),
    "reflection_pad3d.default": _grown([2, 1, 3, 0, 1, 1], 3),
    "replication_pad2d.default": _grown([2, 1, 3, 0], 2),
    "replication_pad3d.default": _grown([2, 1, 3, 0, 1, 1], 3),
    "select_scatter.default": _several(lambda: call(drawn(4, 5), drawn(4), 1, 2)),
    "slice_scatter.default": _several(
        lambda: call(drawn(9, 5), drawn(3, 5), 0, 1, 9, 3),
        lambda: call(drawn(9, 5), drawn(9, 2), 1, 2, 4),
    ),
    "full.default": _several(lambda: call([3, 4], 2.5), lambda: call([2], 7)),
    "full_like.default": _several(lambda: call(drawn(3, 4), 2)),
    "fill.Scalar": _several(lambda: call(drawn(3, 4), 2)),
    "scalar_tensor.default": _several(lambda: call(2.5), lambda: call(3, dtype=torch.int64)),
    "arange.start_step": _several(
        lambda: call(1, 9, 2), lambda: call(0.5, 3.0, 0.25), lambda: call(5, -3, -2)
    ),
    "sum.dim_IntList": lambda: _reduced((*FLOATS, torch.int32, torch.bool)),
    "mean.dim": _reduced, "amax.default": _reduced, "amin.default": _reduced,
    "mean.default": lambda: _unary(dtypes=FLOATS),
    "var.correction": lambda: (
        (a[:2], {"correction": 1, "keepdim": a[2]}) for a, _ in _reduced()
    ),
    "var.dim": lambda: ((a[:2], {}) for a, _ in _reduced()),
    "prod.default": lambda: _unary(0.8, 1.2, FLOATS),
    "prod.dim_int": _one_dim,
    "any.default": lambda: _unary(0, 0.6), "any.dim": lambda: _one_dim((torch.bool, torch.int32)),
    "any.dims": lambda: _reduced((torch.bool,)),
    "max.dim": _arg_dim, "min.dim": _arg_dim,
    "argmax.default": _arg, "argmin.default": _arg,
    "cumsum.default": lambda: (
        call(drawn(3, 4, 5, dtype=d), n) for d in (*FLOATS, torch.int32) for n in (0, -1)
    ),
    "_softmax.default": lambda: (
        call(drawn(3, 4, 5, dtype=d), n, False) for d in FLOATS for n in (1, -1)
    ),
    "_log_softmax.default": lambda: (
        call(drawn(3, 4, 5, dtype=d), n, False) for d in FLOATS for n in (1, -1)
    ),
    "mm.default": lambda: (call(drawn(4, 5, dtype=d), drawn(5, 6, dtype=d)) for d in FLOATS),
    "bmm.default": lambda: (
        call(drawn(2, 4, 5, dtype=d), drawn(2, 6, 5, dtype=d).mT) for d in FLOATS
    ),
    "addmm.default": lambda: (
        *(call(drawn(6, dtype=d), drawn(4, 5, dtype=d), drawn(5, 6, dtype=d)) for d in FLOATS),
        call(drawn(4, 6), drawn(4, 5), drawn(5, 6), beta=0.5, alpha=2),
    ),
    "convolution.default": _convolutions,
    "convolution_backward.default": lambda: _convolutions(True),
    "native_layer_norm.default": _norms,
    "native_layer_norm_backward.default": _layer_norm_backward,
    "_native_batch_norm_legit_no_training.default": _batch_norm,
    "_native_batch_norm_legit.no_stats": _several(
        lambda: call(drawn(2, 3, 4, 5), drawn(3), drawn(3), True, 0.1, 1e-5)
    ),
    "native_group_norm.default": _several(
        lambda: call(drawn(2, 6, 4, 5), drawn(6), drawn(6), 2, 6, 20, 3, 1e-5)
    ),
    "native_group_norm_backward.default": _group_norm_backward,
    "max_pool2d_with_indices.default": lambda: _pooled(2),
    "max_pool3d_with_indices.default": lambda: _pooled(3),
    "avg_pool2d.default": lambda: _pooled(2, True),
    "avg_pool3d.default": lambda: _pooled(3, True),
    "max_pool2d_with_indices_backward.default": _max_pool_backward,
    "avg_pool2d_backward.default": _avg_pool_backward,
    "_adaptive_avg_pool2d.default": _several(
        lambda: call(drawn(2, 3, 8, 6), [1, 1]), lambda: call(drawn(2, 3, 8, 6), [4, 3]),
        lambda: call(drawn(2, 3, 7, 5), [3, 4]),
    ),
    "_adaptive_avg_pool3d.default": _several(lambda: call(drawn(2, 3, 4, 7, 5), [2, 3, 4])),
    "_adaptive_avg_pool2d_backward.default": _several(
        lambda: call(drawn(2, 3, 3, 4), drawn(2, 3, 7, 5))
    ),
    "embedding.default": _several(lambda: call(drawn(9, 4), places(9, 2, 3))),
    "embedding_dense_backward.default": _several(
        lambda: call(drawn(2, 3, 4), places(9, 2, 3), 9, -1, False)
    ),
    "index_select.default": _several(lambda: call(drawn(4, 5), 1, places(5, 7))),
    "gather.default": _several(lambda: call(drawn(4, 5), 1, places(5, 3, 4))),
    "index.Tensor": _index, "index_put.default": _index_put,
    "scatter.src": _scattered, "scatter.value": lambda: _scattered(number=True),
    "scatter_add.default": _scattered,
    "scatter_reduce.two": lambda: (s for r in ("sum", "amax", "prod") for s in _scattered(r)),
    "masked_scatter.default": _several(
        lambda: call(drawn(4, 5), drawn(4, 5, dtype=torch.bool), drawn(20))
    ),
    "nonzero.default": _several(lambda: call(drawn(4, 5, dtype=torch.int32))),
    "sort.default": _several(
        lambda: call(torch.randperm(40).reshape(4, 10).float(), 1, True),
        lambda: call(torch.randperm(40).reshape(4, 10).float(), 0),
        lambda: call(torch.randint(-(2**62), 2**62, (2, 90))),
        lambda: call(torch.tensor([[True, False], [False, True]]), 1, True),  # equals go anywhere
    ),
    "topk.default": _several(
        lambda: call(torch.randperm(40).reshape(4, 10).float(), 3),
        lambda: call(torch.randperm(40).reshape(4, 10).float(), 2, 0, False),
        lambda: call(torch.randperm(600).reshape(3, 200).float(), 5),
        lambda: call(torch.randperm(600).reshape(200, 3).double(), 50, 0, False),
    ),
    "upsample_nearest2d.vec": _several(
        lambda: call(drawn(1, 2, 4, 5), [8, 15], None),
        lambda: call(drawn(1, 2, 4, 5), None, [1.5, 2.0]),
    ),
    "upsample_bilinear2d.vec": _several(
        lambda: call(drawn(1, 2, 4, 5), [8, 15], False, None),
        lambda: call(drawn(1, 2, 4, 5), [7, 3], True, None),
    ),
    "grid_sampler_2d.default": _several(
        lambda: call(drawn(1, 2, 4, 5), drawn(1, 3, 3, 2, low=-1, high=1), 0, 0, False)
    ),
    "col2im.default": _several(
        lambda: call(drawn(1, 12, 9), [4, 4], [2, 2], [1, 1], [0, 0], [1, 1])
    ),
    "_cdist_forward.default": _several(lambda: call(drawn(4, 3), drawn(5, 3), 2.0, None)),
    "_pdist_forward.default": _several(lambda: call(drawn(4, 3))),
    "_embedding_bag.default": _several(
        lambda: call(drawn(9, 4), places(9, 6), torch.tensor([0, 2]))
    ),
    "_fft_r2c.default": _several(lambda: call(drawn(4, 8), [1], 0, True)),
    "_fft_c2r.default": _several(lambda: call(torch.fft.rfft(drawn(4, 8)), [1], 0, 8)),
    "_local_scalar_dense.default": _several(lambda: call(drawn())),
    "_native_batch_norm_legit.default": _several(
        lambda: call(drawn(2, 3, 4), drawn(3), drawn(3), drawn(3), drawn(3, low=1), True, 0.1, 1e-5)
    ),
}  # fmt: skip
