"""What is asked for: a kernel, how it is called, and what tells its code from other code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

from tilewright.engine.operations import operations_of
from tilewright.engine.signature import Signature
from tilewright.errors import ArgumentError, short
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.ir.verify import verify
from tilewright.recipes.start import Start


class Source(Protocol):
    """What gives a kernel: an op.

    ``resolved`` decides what was left open; the rest is asked of what it returns, whose
    ``identity`` says all that its kernel depends on. ``kind`` and ``title`` are its names in
    reports, ``flops`` the work that counts. `recipes.start.Source` has the others.
    """

    @property
    def identity(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def flops(self) -> int: ...
    @property
    def structured(self) -> bool: ...
    @property
    def prepacked(self) -> str | None: ...
    def resolved(self) -> Source: ...
    def kernel(self) -> Kernel: ...
    def exact_kernel(self) -> Kernel: ...


@dataclass(frozen=True)
class Request:
    """``what`` is compiled: a kernel, or the resolved source of one, which is called ``name``.
    ``identity`` says all that the code depends on but the target and the config, ``start`` gives
    what schedules start from.

    What only reports and compilers ask for is computed then: a request is made of every kernel that
    comes from a cache."""

    what: Any
    name: str
    kind: str
    title: Callable[[], str]
    flops: Callable[[], int | None]
    identity: str
    signature: Callable[[], Signature]
    start: Callable[[], Start]

    def called(self, target: str) -> str:
        """The compiled kernel in a line."""
        return f"{self.kind} kernel for {target}: {self.title()}"


def request_of(what: object, constant: Sequence[str] = ()) -> Request:
    """The request for a kernel or for what gives one; ``constant`` names arrays that may be packed
    before it runs.

    Raises `ArgumentError` for anything else, and `VerificationError` for an ill-formed kernel.
    """
    names = (constant,) if isinstance(constant, str) else constant
    if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
        raise ArgumentError(
            f"{short(constant)} names no arguments",
            where="constant",
            cure='give a tuple of names, such as ("weights",)',
        )
    names = tuple(names)
    if hasattr(what, "as_kernel"):
        what = what.as_kernel()  # of another front end
    if isinstance(what, Kernel):
        request = _of_kernel(what, names)
    elif hasattr(what, "resolved"):
        request = _of_source(cast(Source, what).resolved(), names)
    else:
        raise ArgumentError(
            f"{short(what)} cannot be compiled",
            cure="pass an op, as tw.matmul gives, or a kernel, as tw.parse_kernel does",
        )
    if names:
        _check_constant(request.signature(), names)
    return request


def _of_source(source: Source, constant: tuple[str, ...]) -> Request:
    kernel = source.kernel()
    return Request(
        what=source,
        name=kernel.name,
        kind=source.kind,
        title=lambda: source.title,
        flops=lambda: source.flops,
        identity=f"{source.identity} {constant}" if constant else source.identity,
        signature=lambda: Signature(source.kernel().params),
        start=partial(_source_start, source, constant),
    )


def _source_start(source: Source, constant: tuple[str, ...]) -> Start:
    prepacked = source.prepacked or next(iter(constant), None)
    kernel, exact = source.kernel(), source.exact_kernel()
    if not source.structured:
        return Start(kernel, exact, constant=constant)
    return Start(kernel, exact, prepacked, structured=True)


def _of_kernel(kernel: Kernel, constant: tuple[str, ...]) -> Request:
    verify(kernel)
    return Request(
        what=kernel,
        name=kernel.name,
        kind=kernel.name,
        title=lambda: ", ".join(repr(array.buffer) for array in kernel.arrays),
        flops=lambda: operations_of(kernel)[0],
        identity=f"{constant} {to_text(kernel)}",
        signature=lambda: Signature(kernel.params),
        start=partial(Start, kernel, kernel, constant=constant),
    )


def _check_constant(signature: Signature, constant: tuple[str, ...]) -> None:
    inputs = [argument.name for argument in signature.arguments if argument.access == "in"]
    for name in constant:
        if name not in inputs:
            raise ArgumentError(
                f"{name!r} cannot be constant",
                where="constant",
                why="it is a result" if name in signature.names else "there is no such argument",
                cure="choose some of " + ", ".join(inputs),
            )
