"""A case that is a kernel: with the numbers of a call, and the arguments that ask for it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tilewright.engine.numbers import aligned
from tilewright.engine.signature import Signature, form_of
from tilewright.interpret import pack
from tilewright.ir.arguments import Scalar
from tilewright.ir.stmt import Kernel, Param
from tilewright.ops.op import Argument
from tilewright.testing.definition import check_length, meaning, memory_of
from tilewright.testing.kernel_data import make_contents, padded
from tilewright.testing.trial import Trial
from tilewright.testing.verify import Verifiable


@dataclass(frozen=True)
class KernelCase:
    """``source`` is the kernel's place on the command line, ``FILE`` or ``FILE:NAME``; ``numbers``
    are those of its scalar parameters that are set, ``constant`` the arrays that may be packed
    beforehand, ``seed`` says which contents arrays have."""

    kernel: Kernel
    source: str
    numbers: Mapping[str, Scalar] = field(default_factory=dict)
    constant: tuple[str, ...] = ()
    seed: int = 0

    @property
    def driver(self) -> str:
        """The word in front of ``source``."""
        return "kernel"

    def arrays(self) -> tuple[Param, ...]:
        """The arguments, of known shapes. All numbers have to be set."""
        return Signature(self.kernel.params).at(self.numbers)

    def contents(self, *, exact: bool) -> dict[str, Any]:
        """What the arguments hold that the kernel reads, padding included; ``exact``: integers."""
        return make_contents(self.kernel, self.arrays(), self.numbers, exact=exact, seed=self.seed)

    def trials(self, wide: Kernel | None = None) -> Iterator[Trial]:
        """On integers, then on reals, against the interpreter, which runs ``wide`` where that is
        given: the kernel in wider types. Raises `UnsupportedError` for what would take too
        long."""
        check_length(self.kernel, self.numbers)
        arrays = self.arrays()
        # Padding is memory like any other: what a kernel does not write stays.
        arguments = tuple(
            Argument(p.name, padded(p), p.dtype, p.buffer.layout, p.access, "src") for p in arrays
        )
        for exact in (True, False):
            accepted = partial(meaning, self.kernel, arrays, self.numbers, exact=exact, wide=wide)
            name = "integers" if exact else "reals"
            yield Trial(name, arguments, self.contents(exact=exact), accepted, self.numbers)

    def call(self, kernel: Verifiable) -> dict[str, Any]:
        """What a call of ``kernel``, compiled of this one, takes: numbers and arrays of reals, of
        the forms that it takes, packed where it asks for that, results included."""
        contents = self.contents(exact=False)
        found: dict[str, Any] = dict(self.numbers)
        for param in self.arrays():
            form = form_of(param.buffer.shape, param.dtype, param.buffer.layout)
            if param.name not in contents:
                found[param.name] = form.empty()
                continue
            array = form.view(aligned(pack(memory_of(param), contents[param.name])))
            packed = param.name in kernel.packed
            found[param.name] = kernel.pack(param.name, array) if packed else array
        return found

    def arguments(self) -> str:
        """The arguments of ``tilewright verify`` and the like that ask for this, shell-quoted."""
        words = ["kernel"]
        words += [f"--set={name}={_text(value)}" for name, value in self.numbers.items()]
        words += [f"--constant={name}" for name in self.constant]
        if self.seed:
            words.append(f"--seed={self.seed}")
        return shlex.join([*words, self.source])


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
