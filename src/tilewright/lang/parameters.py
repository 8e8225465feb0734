"""The parameters of kernels and of their functions: annotations, and defaults that are tunables."""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any, TypeVar

from tilewright.dtypes import DType
from tilewright.errors import KernelError
from tilewright.lang.annotations import ArrayType, Constant, ScalarType, scalar
from tilewright.lang.source import Source
from tilewright.lang.tunables import Tunable


def defaults_of(function: FunctionType) -> dict[str, Tunable]:
    """The defaults that are tunables, by the names of the parameters."""
    parameters = inspect.signature(function).parameters.values()
    return {
        parameter.name: parameter.default
        for parameter in parameters
        if isinstance(parameter.default, Tunable)
    }


def check_plain(source: Source) -> None:
    """Refuses parameters that are not plain positional ones, by `KernelError`."""
    args = source.tree.args
    unsupported = [*args.posonlyargs, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg))]
    if unsupported:
        raise KernelError(
            f"the parameter {unsupported[0].arg} is not a plain positional one",
            where=source.span(unsupported[0]),
            why="arguments of kernels have an order, and are all there",
            cure="declare plain parameters",
        )


def annotations_of(function: FunctionType, source: Source) -> dict[str, Any]:
    """The annotations of a kernel's parameters by name. `KernelError` for what kernels don't
    take."""
    check_plain(source)
    args, tunables = source.tree.args, defaults_of(function)
    by_name: dict[str, Any] = {}
    annotations = inspect.get_annotations(function, eval_str=True)
    for arg in args.args:
        annotation = annotations.get(arg.arg)
        if isinstance(annotation, TypeVar):
            annotation = scalar(annotation)
        if not isinstance(annotation, ArrayType | ScalarType | Constant | DType):
            raise KernelError(
                f"the parameter {arg.arg} has no type"
                if arg.arg not in annotations
                else f"the parameter {arg.arg} is annotated with {annotation!r}",
                where=source.span(arg),
                why="work-items run typed code",
                cure='annotate it: tw.f32, tw.array("f32", 1), tw.scalar("T") or tw.constant',
            )
        if arg.arg in tunables and not isinstance(annotation, Constant):
            raise KernelError(
                f"the parameter {arg.arg} is a tunable, and no constant",
                where=source.span(arg),
                why="its value is known when the kernel is compiled",
                cure=f"annotate it: {arg.arg}: tw.constant = tw.tunable(...)",
            )
        by_name[arg.arg] = annotation
    with_defaults = args.args[len(args.args) - len(args.defaults) :]
    for arg, default in zip(with_defaults, args.defaults, strict=True):
        if arg.arg not in tunables:
            raise KernelError(
                "a parameter has a default",
                where=source.span(default),
                why="a launch passes all arguments but tunables",
                cure="leave the default out",
            )
    return by_name
