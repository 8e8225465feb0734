"""PyTorch's own samples of its operators (`op_db`) against PyTorch, which `graph_coverage` counts:
right, with an op that stays with PyTorch (refused), or wrong."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import islice
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx import Graph, GraphModule
from torch.testing._internal import common_methods_invocations
from torch.utils import _pytree as pytree

from tilewright.frontends.torch import backend, report
from tilewright.frontends.torch.replacing import Parts

KINDS = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "int64": torch.int64,
    "bool": torch.bool,
    "gradients": torch.float32,
}
# Of samples of an op of a kind, as many are judged, from as many of the first.
_JUDGED, _FIRST = 4, 200
# What is there may be anything.
_UNWRITTEN = ("empty", "new_empty", "empty_like", "empty_strided", "empty_permuted")
# By type: what an element may be off, by itself, and by the greatest of all.
_TOLERANCES = {torch.bfloat16: (1.6e-2, 4e-3), torch.float16: (2e-3, 5e-4)}
_USUAL = (1e-5, 2e-6)
# Where equals go is open, unless it is asked for.
_STABLE = ("argsort", "sort")
_DIM_OF_PLACES = {"topk": 1, "kthvalue": 1, "median": 0, "nanmedian": 0, "mode": 0}
# What tracing says of results whose shapes depend on data: such a graph is never captured whole.
_OPEN = (DynamicOutputShapeException, DataDependentOutputException)
Leaves = list[Any]
# Random numbers are to follow from the seed here: a compiled program does not call what seeds.
common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)


class Differs(Exception):  # noqa: N818  # it is an outcome
    """What a sample's results are not."""


@cache
def _ops() -> dict[str, Any]:
    return {
        ".".join(filter(None, (op.name, op.variant_test_name))): op
        for op in common_methods_invocations.op_db
    }


def cases() -> list[str]:
    """Each op in each kind that it has on processors."""
    return [
        f"{name}, {kind}"
        for name, op in sorted(_ops().items())
        for kind, dtype in KINDS.items()
        if op.name not in _UNWRITTEN
        and op.supports_dtype(dtype, "cpu")
        and (kind != "gradients" or op.supports_autograd)
    ]


def judged(case: str, seed: int = 0, target: str = "x86") -> tuple[str, str]:
    """What the samples of a case come to: the worst of them."""
    op, gradients, samples = _samples(case, seed)
    refused = ""
    for number, sample in samples:
        if op.name in _STABLE:
            sample.kwargs["stable"] = True
        try:
            dim = _DIM_OF_PLACES.get(op.name)
            function = op.op if dim is None else _with_what_lies_there(op.op, dim)
            why = _outcome(function, sample, gradients, target)
        except Differs as difference:
            return "wrong", f"sample {number}: {difference}"
        refused = refused or why
    return ("refused", refused) if refused else ("right", "")


def planned(case: str, seed: int = 0, target: str = "x86") -> tuple[str, str]:
    """Which ops of the samples of a case would stay with PyTorch. Nothing is compiled."""
    op, gradients, samples = _samples(case, seed)
    islands: dict[str, str] = {}
    for _, sample in samples:
        tensors, eager = _eager(op.op, sample.input, sample.args, sample.kwargs)
        try:
            _results(eager, tensors, gradients)
        except Exception:  # PyTorch has no such op of these types
            continue
        report(clear=True)
        torch._dynamo.reset()
        try:
            with patch.object(Parts, "replace", lambda *_: None):
                _compiled(eager, tensors, gradients, target)
        except _OPEN:
            islands["a shape that depends on data"] = ""
        except Differs as difference:
            islands[str(difference)] = ""
        islands |= {island.op: island.why for island in report().islands}
    why = "; ".join(f"{name}: {why}" if why else name for name, why in islands.items())
    return ("refused", why) if islands else ("right", "")


def _samples(case: str, seed: int) -> tuple[Any, bool, list[tuple[int, Any]]]:
    """The op of a case, whether gradients are asked for, and the samples that are judged."""
    name, kind = case.split(", ")
    op, gradients = _ops()[name], kind == "gradients"
    torch.manual_seed(seed)
    samples = list(islice(op.sample_inputs("cpu", KINDS[kind], requires_grad=gradients), _FIRST))
    step = max(1, -(-len(samples) // _JUDGED))
    return op, gradients, list(enumerate(samples))[seed % step :: step]


def _with_what_lies_there(function: Any, position: int) -> Any:
    """What lies at the places instead of these: which of equal elements comes first is open.
    ``position`` is that of the argument which says the dim."""

    def run(x: Any, *args: Any, **kwargs: Any) -> Any:
        results = function(x, *args, **kwargs)
        if isinstance(results, torch.Tensor) or not x.dim():
            return results if isinstance(results, torch.Tensor) else results[0]
        values, places = results
        dim = kwargs.get("dim", args[position] if len(args) > position else -1)
        kept = places if places.dim() == x.dim() else places.unsqueeze(dim)
        return values, x.detach().gather(dim, kept)

    return run


def _outcome(function: Any, sample: Any, gradients: bool, target: str) -> str:
    """Why PyTorch ran something, of one sample; "" where it did not. Raises `Differs`."""
    tensors, eager = _eager(function, sample.input, sample.args, sample.kwargs)
    try:
        expected = _results(eager, tensors, gradients)
        again = _results(eager, tensors, gradients, seed=1)
    except Exception:  # PyTorch has no such op of these types
        return ""
    if not expected:
        return "it gives no tensors"
    if not all(torch.equal(_bits(a), _bits(b)) for a, b in zip(expected, again, strict=True)):
        return "it draws random numbers"
    report(clear=True)
    torch._dynamo.reset()
    try:
        found = _compiled(eager, tensors, gradients, target)
    except _OPEN:
        return "its shapes depend on data"
    exact = _exact(function, sample, gradients)
    # A gradient may be the small rest of terms as large as others, or as the weights of results,
    # which are about 1: that of a norm of two elements is nothing but their roundings.
    size = max(1.0, *map(_greatest, expected)) if gradients else 0.0
    for number, result in enumerate(expected):
        _compare(found[number], result, None if exact is None else exact[number], size)
    islands = report().islands
    return f"{islands[0].op}: {islands[0].why}" if islands else ""


def _eager(function: Any, *sample: Any) -> tuple[Leaves, Any]:
    """The tensors of a sample, and a function of these: the dense results of its call."""
    leaves, spec = pytree.tree_flatten(sample)

    def eager(*values: Any) -> Leaves:
        left = iter(values)
        filled = [next(left) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        first, args, kwargs = pytree.tree_unflatten(filled, spec)
        results = pytree.tree_leaves(function(first, *args, **kwargs))
        return [result for result in results if _is_dense(result)]

    return [leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor)], eager


def _compiled(eager: Any, tensors: Sequence[torch.Tensor], gradients: bool, target: str) -> Leaves:
    """What the backend's program gives."""
    graph = Graph()
    inputs = [graph.placeholder(f"x{number}") for number in range(len(tensors))]
    graph.output(graph.call_function(eager, tuple(inputs)))

    def run(*given: torch.Tensor) -> Leaves:
        compiled = backend(GraphModule({}, graph), given, options={"target": target})
        return list(compiled(*given))

    try:
        return _results(run, tensors, gradients)
    except _OPEN:
        raise
    except Exception as error:
        raise Differs(f"{type(error).__name__}: {str(error).splitlines()[0][:200]}") from error


def _results(
    function: Any, tensors: Sequence[torch.Tensor], gradients: bool, seed: int = 0
) -> Leaves:
    """The results of a call on copies; or the gradients of what is differentiable."""
    torch.manual_seed(seed)
    values = [_copied(tensor) for tensor in tensors]
    if not gradients:
        with torch.no_grad():
            return [leaf.detach() for leaf in function(*values)]
    floats = [leaf.requires_grad_() for leaf in values if leaf.is_floating_point()]
    results = [leaf for leaf in function(*values) if leaf.requires_grad]
    if not results:
        return []
    generator = torch.Generator().manual_seed(0)
    weights = [
        torch.rand(result.shape, generator=generator, dtype=torch.float64).to(result.dtype) + 0.5
        for result in results
    ]
    found = torch.autograd.grad(results, floats, weights, allow_unused=True)
    return [gradient for gradient in found if gradient is not None]


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that lies alike."""
    if any(n > 1 and s == 0 for n, s in zip(tensor.shape, tensor.stride(), strict=True)):
        return tensor.clone()
    result = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return result.copy_(tensor)


def _exact(function: Any, sample: Any, gradients: bool) -> Leaves | None:
    """The results in f64, where PyTorch has them."""

    def wide(each: Any) -> Any:
        if isinstance(each, torch.Tensor) and each.is_floating_point():
            return each.detach().double()
        return torch.float64 if each in (torch.float32, torch.bfloat16, torch.float16) else each

    def holds(each: Any) -> Any:
        return wide(each) if isinstance(each, torch.Tensor | torch.dtype) else each

    values = pytree.tree_map(holds, (sample.input, sample.args, sample.kwargs))
    tensors, eager = _eager(function, *values)
    try:
        return _results(eager, tensors, gradients)
    except Exception:  # not of this type
        return None


def _is_dense(each: Any) -> bool:
    return isinstance(each, torch.Tensor) and each.layout is torch.strided


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Elements that are equal where those of the tensor are, NaN to NaN."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.to(torch.complex128))
    return torch.nan_to_num(tensor, 12345.0)


def _greatest(tensor: torch.Tensor) -> float:
    finite = tensor[torch.isfinite(tensor)].abs()
    return float(finite.max()) if finite.numel() else 0.0


def _compare(
    found: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor | None, size: float
) -> None:
    """Raises `Differs` where ``found`` is further from ``exact`` than a few roundings, and than
    PyTorch is; of ``size``, or of the greatest element, a small part counts as one."""
    if (found.dtype, found.shape) != (eager.dtype, eager.shape):
        raise Differs(f"{found.dtype}{list(found.shape)}, not {eager.dtype}{list(eager.shape)}")
    if not eager.is_floating_point() and not eager.is_complex():
        off = found != eager
        if bool(off.any()):
            raise Differs(f"{found[off][0]}, not {eager[off][0]} ({int(off.sum())} elements)")
        return
    wide = torch.complex128 if eager.is_complex() else torch.float64
    a, b = found.to(wide), eager.to(wide)
    c = b if exact is None or exact.shape != b.shape else exact.to(wide)
    finite = torch.isfinite(b) & torch.isfinite(c)
    by_itself, by_greatest = _TOLERANCES.get(eager.dtype, _USUAL)
    size = max(size, _greatest(c))
    theirs = (b - c).abs()
    worst = _greatest(theirs)
    allowed = 4 * theirs + 2 * worst + by_itself * c.abs() + by_greatest * size + 1e-38
    near = (a - c).abs() <= allowed
    same = (a == b) | (a == c) | (torch.isnan(a) & (torch.isnan(b) | torch.isnan(c)))
    off = ~torch.where(finite, near, same)
    if bool(off.any()):
        raise Differs(
            f"{a[off][0].item():.8g}, not {b[off][0].item():.8g} or {c[off][0].item():.8g} "
            f"({int(off.sum())} of {off.numel()} elements)"
        )
