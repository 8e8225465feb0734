"""A case that is a kernel: with the scalars of a call, and command-line arguments."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tilewright.engine.numbers import aligned
from tilewright.engine.signature import Signature, form_of
from tilewright.errors import InterpreterFault, TilewrightError, UnsupportedError
from tilewright.interpret import pack
from tilewright.ir.arguments import Scalar
from tilewright.ir.stmt import Kernel, Param
from tilewright.ops.op import Argument
from tilewright.testing.approximate import Accepted
from tilewright.testing.definition import check_length, meaning, memory_of
from tilewright.testing.kernel_data import Contents, make_contents, padded
from tilewright.testing.trial import NOTHING_STORED, Trial, UntriedError
from tilewright.testing.verify import Verifiable

# The accepted values of each result, given the contents of arrays.
Judge = Callable[[Mapping[str, Any]], dict[str, Accepted]]


@dataclass(frozen=True)
class KernelCase:
    """``source`` is the kernel on the command line, ``FILE`` or ``FILE:NAME``; ``numbers`` are the
    scalar parameters that are set, ``constant`` the arrays that may be packed beforehand, ``seed``
    determines the contents of arrays; ``python``: it is a function in Python."""

    kernel: Kernel
    source: str
    numbers: Mapping[str, Scalar] = field(default_factory=dict)
    constant: tuple[str, ...] = ()
    seed: int = 0
    python: bool = False

    @property
    def driver(self) -> str:
        """The word before ``source``."""
        return "kernel"

    def arrays(self) -> tuple[Param, ...]:
        """The array arguments, of known shapes. All scalars have to be set."""
        return Signature(self.kernel.params).at(self.numbers)

    def contents(self, kind: Contents, careful: bool | None = None) -> dict[str, Any]:
        """The contents of the arguments that the kernel reads, padding included; see
        `make_contents`. By default they are ``careful`` for kernels in Python, which promise
        nothing."""
        arrays = self.arrays()
        careful = self.python if careful is None else careful
        return make_contents(self.kernel, arrays, self.numbers, kind, self.seed, careful=careful)

    def trials(
        self, wide: Kernel | None = None, kinds: Sequence[Contents] = tuple(Contents)
    ) -> Iterator[Trial]:
        """Trials on contents of ``kinds``, against the interpreter, which runs ``wide`` if given:
        the kernel in wider types. Raises `UnsupportedError` for kernels that would take too long,
        and if none of the trials stored anything."""
        check_length(self.kernel, self.numbers)
        arrays = self.arrays()
        # Padding is memory like any other: a kernel has to leave it unchanged.
        arguments = tuple(
            Argument(p.name, padded(p), p.dtype, p.buffer.layout, p.access, "src") for p in arrays
        )
        stored: list[bool] = []

        def accepted(kind: Contents, inputs: Mapping[str, Any]) -> dict[str, Accepted]:
            exact = kind is Contents.INTEGERS
            results, stored_any = meaning(
                self.kernel, arrays, self.numbers, inputs, exact=exact, wide=wide
            )
            stored.append(stored_any)
            return results

        for kind in kinds:
            judge: Judge = partial(accepted, kind)
            if kind is Contents.LIMITS:
                contents, judge = self._at_limits(judge)
            else:
                contents = self.contents(kind)
            yield Trial(kind.value, arguments, contents, judge, self.numbers)
        if not any(stored):
            raise UnsupportedError(
                NOTHING_STORED,
                where=f"kernel {self.source}",
                cure="set numbers with which it stores something, such as --set n=64",
            )

    def _at_limits(self, judge: Judge) -> tuple[dict[str, Any], Judge]:
        """Contents at the limits of types, careful ones if the kernel has faults on others, and
        ``judge`` for them, which raises `UntriedError` if it has faults on all."""
        why: TilewrightError | None = None
        for careful in (False, True):
            contents = self.contents(Contents.LIMITS, careful)
            try:
                judge(contents)
            except (InterpreterFault, UnsupportedError) as error:
                why = error
            else:
                return contents, judge

        def refuse(inputs: Mapping[str, Any]) -> dict[str, Accepted]:
            raise UntriedError(why.what if why else "") from why

        return contents, refuse

    def call(self, kernel: Verifiable) -> dict[str, Any]:
        """The arguments of a call of ``kernel``, compiled from this one: scalars, and arrays of
        reals, in the forms that it takes, packed where needed, results included."""
        contents = self.contents(Contents.REALS)
        arguments: dict[str, Any] = dict(self.numbers)
        for param in self.arrays():
            form = form_of(param.buffer.shape, param.dtype, param.buffer.layout)
            if param.name not in contents:
                arguments[param.name] = form.empty()
                continue
            array = form.view(aligned(pack(memory_of(param), contents[param.name])))
            packed = param.name in kernel.packed
            arguments[param.name] = kernel.pack(param.name, array) if packed else array
        return arguments

    def arguments(self) -> str:
        """The arguments of ``tilewright verify`` and so on for this case, shell-quoted."""
        words = ["kernel"]
        words += [f"--set={name}={_text(value)}" for name, value in self.numbers.items()]
        words += [f"--constant={name}" for name in self.constant]
        if self.seed:
            words.append(f"--seed={self.seed}")
        return shlex.join([*words, self.source])


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
