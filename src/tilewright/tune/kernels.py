"""Ops and kernels as subjects of a search."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from tilewright.bench.benchmark import make_arrays
from tilewright.config import database_in
from tilewright.engine import CompiledKernel, compile_kernel
from tilewright.engine.request import Request, request_of
from tilewright.engine.winners import Asked
from tilewright.errors import UnsupportedError
from tilewright.ir.arguments import Scalar
from tilewright.ir.printer import to_text
from tilewright.ir.stmt import Kernel
from tilewright.ops.op import Op
from tilewright.recipes import choose
from tilewright.recipes.config import Config
from tilewright.recipes.space import Space
from tilewright.targets.registry import find_target
from tilewright.targets.target import Target
from tilewright.testing.approximate import Accepted
from tilewright.testing.kernel_case import KernelCase
from tilewright.testing.kernel_data import Contents
from tilewright.testing.trial import Trial
from tilewright.testing.verify import Status, op_trials, verify_on
from tilewright.tune.database import Database
from tilewright.tune.nearest import form_of
from tilewright.tune.subject import Built, Call, Subject
from tilewright.tune.transfer import first_configs


@dataclass(frozen=True, eq=False)
class KernelSubject(Subject):
    """An op or a kernel, for ``target`` with so many ``threads``. ``numbers`` are the scalars of
    the calls that are timed, ``constant`` names arrays that may be packed beforehand, ``words`` are
    what the command line takes for it."""

    what: Op | Kernel
    target: str = "x86"
    threads: int = 1
    constant: tuple[str, ...] = ()
    numbers: Mapping[str, Scalar] = field(default_factory=dict)
    words: str = ""

    @property
    def title(self) -> str:
        return self.words or f"{self._request.name}: {self._request.title()}"

    @property
    def problem(self) -> str:
        if self.words or not isinstance(self.what, Kernel):
            return self.words
        return kernel_text(self.what, self.numbers, self.constant)

    @property
    def asked(self) -> Asked:
        return Asked.of(self._request, self._target, self.threads)

    @property
    def key(self) -> str:
        return f"{self.asked} {sorted(self.numbers.items())}"

    def form(self) -> tuple[str, tuple[int, ...]]:
        return form_of(self._request.start().kernel, self._request.kind)

    def first(self, database: Database) -> Iterator[Config]:
        return first_configs(database, self._request, self._target, self.asked.threads)

    def points(self) -> Space:
        return choose.space_of(self._request.start(), self._target.machine)

    def default(self) -> Config:
        config, _ = choose.choose(self._request.start(), self._target.machine)
        return config

    def build(self, point: Config) -> KernelBuilt:
        with database_in(""):
            compiled = compile_kernel(
                self.what, self.target, self.threads, config=point, constant=self.constant
            )
        return KernelBuilt(self, compiled)

    @cached_property
    def _request(self) -> Request:
        return request_of(self.what, self.constant)

    @cached_property
    def _target(self) -> Target:
        return find_target(self.target)

    def __getstate__(self) -> dict[str, Any]:
        # What is worked out of it holds functions, which are not data.
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def case(self, seed: int) -> KernelCase:
        """A kernel with data of a call."""
        assert isinstance(self.what, Kernel)
        return KernelCase(self.what, self.title, self.numbers, self.constant, seed)


class KernelBuilt(Built):
    """A point of a kernel that was compiled."""

    def __init__(self, subject: KernelSubject, compiled: CompiledKernel) -> None:
        self._subject, self._compiled = subject, compiled

    @property
    def schedule(self) -> str:
        return self._compiled.source("schedule")

    def fault(self, seed: int) -> str | None:
        trials = _trials(self._subject, seed)
        verdict = verify_on(lambda: self._compiled, trials)
        if verdict.status is Status.SKIPPED:
            raise UnsupportedError(
                f"what {self._subject.title} gives cannot be checked", why=verdict.reason
            )
        return None if verdict.status is Status.PASSED else verdict.reason

    def call(self, seed: int) -> Call:
        subject, compiled = self._subject, self._compiled
        if isinstance(subject.what, Kernel):
            arguments = subject.case(seed).call(compiled)
        else:
            arguments = make_arrays(compiled, seed)
        # Where arrays lie decides about a few percent: all points get the same, but for those that
        # each packs in its own way.
        shared = _arrays(subject, seed)
        for name in arguments:
            if name not in compiled.packed:
                arguments[name] = shared.setdefault(name, arguments[name])
        return compiled.bind(**arguments)


def kernel_text(kernel: Kernel, numbers: Mapping[str, Scalar], constant: Sequence[str]) -> str:
    """A kernel as rows have it that is in no file: a comment with the options that the command line
    would take, and its text."""
    _, *options, _ = shlex.split(KernelCase(kernel, "-", numbers, tuple(constant)).arguments())
    return f"# {shlex.join(options)}\n{to_text(kernel)}"


@lru_cache(maxsize=2)
def _trials(subject: KernelSubject, seed: int) -> tuple[Trial, ...]:
    """Data with the results that are accepted, worked out once."""
    if not isinstance(subject.what, Kernel):
        return tuple(op_trials(subject.what, seed, ("integers", "reals")))
    kinds = (Contents.INTEGERS, Contents.REALS)
    return tuple(_once(trial) for trial in subject.case(seed).trials(kinds=kinds))


@lru_cache(maxsize=2)
def _arrays(subject: KernelSubject, seed: int) -> dict[str, Any]:
    """The arguments of calls, those that there are so far."""
    return {}


def _once(trial: Trial) -> Trial:
    """``trial`` with its results worked out."""
    results = trial.accepted(trial.inputs)

    def accepted(arrays: Mapping[str, Any]) -> Mapping[str, Accepted]:
        return results if arrays is trial.inputs else trial.accepted(arrays)

    return replace(trial, accepted=accepted)
