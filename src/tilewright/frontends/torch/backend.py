"""The backend of `torch.compile`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext
from torch.fx import GraphModule
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from tilewright.engine.compile import checked_threads
from tilewright.errors import ArgumentError, one_of, short
from tilewright.frontends.torch import reports
from tilewright.frontends.torch.decompositions import decompositions, resampling_whole
from tilewright.frontends.torch.islands import compiled_by_parts, opened_by_parts
from tilewright.frontends.torch.open_sizes import Symbol, symbols_of
from tilewright.frontends.torch.opened import Opened
from tilewright.frontends.torch.parts import Options
from tilewright.frontends.torch.replacing import said
from tilewright.frontends.torch.reports import GraphReport
from tilewright.frontends.torch.shapes import BySizes, is_symbolic
from tilewright.graph.reporting import long_compilation
from tilewright.ir.expr import Expr
from tilewright.targets.registry import find_target

_numbers = itertools.count()
# Programs plan their memory beforehand, and a model of the machine chooses how kernels are cut, so
# there is nothing more to ask for.
_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def backend(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compiles a graph that `torch.compile(model, backend="tilewright")` captured, forward and,
    where gradients are asked for, backward.

    ``options`` of `torch.compile`: ``target`` and ``threads`` as `tilewright.compile` takes them
    (targets that take arrays of the host), ``strict`` (an op that is not native is an error),
    ``checks`` (by default True: an index out of range and an integer division by 0 raise), and
    ``freeze`` (parameters change only where PyTorch counts it: without gradients, they are packed,
    and what depends on them alone is computed once). All of PyTorch's ``mode`` are taken, and give
    the same program.
    """
    asked = _read(options, mode)
    name = f"graph{next(_numbers)}"
    whole = _Whole(gm, example_inputs)
    compiler = aot_autograd(
        fw_compiler=partial(_compiled, asked, f"{name}_forward", None),
        bw_compiler=partial(_compiled, asked, f"{name}_backward", None),
        inference_compiler=partial(_compiled, asked, name, whole),
        decompositions=decompositions(),
        partition_fn=min_cut_rematerialization_partition,
    )
    # Attention is captured as one op where there is one for it on processors, or else as products
    # and a softmax.
    attention = sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH])
    gradients = torch.is_grad_enabled() and any(map(_is_differentiable, example_inputs))
    captures = nullcontext() if gradients else resampling_whole()
    with long_compilation("capturing the graph"), attention, captures:
        compiled: Callable[..., Any] = compiler(gm, example_inputs)
    return whole.runs or compiled


def _is_differentiable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _read(options: Mapping[str, Any] | None, mode: str | None) -> Options:
    if mode is not None and mode not in _MODES:
        raise ArgumentError(
            f"there is no mode {short(mode)}",
            where="torch.compile(mode=)",
            cure=one_of(mode, _MODES),
        )
    values = dict(options or {})
    for name in values:
        if name not in Options.__dataclass_fields__:
            raise ArgumentError(
                f"there is no option {short(name)}",
                where="torch.compile(options=)",
                cure=one_of(name, Options.__dataclass_fields__),
            )
    read = Options(**values)
    # What is wrong here would otherwise be found where programs are compiled, which then stay
    # with PyTorch.
    find_target(read.target)
    checked_threads(read.threads)
    for name in ("strict", "freeze", "checks"):
        value = getattr(read, name)
        if not isinstance(value, bool):
            raise ArgumentError(
                f"{name} is {short(value)}",
                where="torch.compile(options=)",
                cure="write True or False",
            )
    return read


class _Whole:
    """What runs all of a captured graph natively, where AOT autograd would do nothing in a call but
    to call it: it has no backward graph, changes no input, and returns no view of one. What AOT
    autograd does all the same takes as long as a hundred thousand elements."""

    def __init__(self, captured: GraphModule, inputs: Sequence[Any]) -> None:
        tensors = all(isinstance(value, torch.Tensor) for value in inputs)
        held = any(True for _ in (*captured.parameters(), *captured.buffers()))
        values = (node.meta.get("example_value") for node in captured.graph.nodes)
        # Tensors that stand for others are taken apart by AOT autograd.
        wrapped = any(is_traceable_wrapper_subclass(value) for value in values)
        self._inputs = len(inputs) if tensors and not held and not wrapped else None
        self.runs: Callable[..., Any] | None = None

    def offer(self, gm: GraphModule, runs: Callable[..., Any]) -> None:
        """``runs`` is what the ATen graph ``gm``, which is compiled now, has become."""
        context = TracingContext.try_get()
        metadata = getattr(context, "fw_metadata", None)
        if metadata is None or isinstance(runs, GraphModule | BySizes | Opened):
            return
        if metadata.num_mutated_inp_runtime_indices or metadata.num_outputs_aliased:
            return
        (results,) = gm.graph.find_nodes(op="output")[0].args
        inputs = gm.graph.find_nodes(op="placeholder")
        # There may be more: states of random numbers, an order of effects.
        same = len(inputs) == len(metadata.input_info) == self._inputs
        same = same and len(results) == len(metadata.output_info)
        if same and metadata.grad_enabled_mutation is None:
            self.runs = runs


def _compiled(
    options: Options,
    name: str,
    whole: _Whole | None,
    gm: GraphModule,
    example_inputs: Sequence[Any],
) -> Callable[..., Any]:
    """What runs an ATen graph. Of one without a backward graph, parameters stay where they are, and
    it may be the ``whole`` of what a call does."""
    fixed = () if whole is None else _parameters()
    report = reports.begin(name)

    def native(known: GraphModule) -> Callable[..., Any]:
        with long_compilation("reading the graph"):
            return compiled_by_parts(known, fixed, options, report)

    runs = _by_sizes(gm, native, options, report) if is_symbolic(gm) else native(gm)
    if whole is not None:
        whole.offer(gm, runs)
    return make_boxed_func(runs)  # type: ignore[no-any-return]  # torch does not say


def _by_sizes(
    gm: GraphModule,
    native: Callable[[GraphModule], Callable[..., Any]],
    options: Options,
    report: GraphReport,
) -> Callable[..., Any]:
    """What runs a graph of open sizes."""
    by_sizes = BySizes(gm, native)
    try:
        symbols = [] if options.freeze else symbols_of(gm)
    except Exception as error:  # of what PyTorch says about sizes
        report.closed[said(error)] += 1
        return by_sizes
    if not symbols:
        frozen = "what frozen parameters make is planned for sizes that are known"
        report.closed[frozen if options.freeze else "its sizes depend on data"] += 1
        return by_sizes

    def opened(
        graph: GraphModule, which: Sequence[Symbol]
    ) -> tuple[Callable[..., Any], Mapping[Expr, bool]]:
        return opened_by_parts(graph, which, options, report)

    return Opened(gm, symbols, opened, by_sizes, report)


def _parameters() -> tuple[int, ...]:
    """The inputs of the graph that is compiled now that stay the same from call to call, if it does
    not change them itself."""
    context = TracingContext.try_get()
    metadata = getattr(context, "fw_metadata", None)
    changed = getattr(metadata, "mutated_inp_runtime_indices", None) or ()
    return tuple(
        n for n in getattr(metadata, "static_input_indices", None) or () if n not in changed
    )
