"""A launch of a kernel in Python as the subject of a search: which values its tunables have.

What the points need lies in a file, which processes of this machine read once: the kernel of each
point in the IR, or why there is none, and a copy of the arguments. So the function itself, which
other processes may not import, stays here.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

from tilewright.config import database_in
from tilewright.engine import CompiledKernel, compile_kernel
from tilewright.engine.compile import checked_threads
from tilewright.engine.signature import Signature
from tilewright.engine.winners import Asked
from tilewright.errors import (
    ArgumentError,
    ScheduleError,
    TilewrightError,
    TuningError,
    UnsupportedError,
    short,
)
from tilewright.ir.arguments import Scalar
from tilewright.ir.stmt import Kernel
from tilewright.lang.annotations import ArrayType
from tilewright.lang.kernel import KernelFunction
from tilewright.lang.launch import Launch
from tilewright.lang.messages import Message
from tilewright.lang.ranges import Grid
from tilewright.lang.records import new_records, report
from tilewright.lang.tuned import LaunchConfig
from tilewright.recipes.config import Config
from tilewright.runtime.arrays import describe
from tilewright.runtime.results import in_memory
from tilewright.targets.registry import find_target
from tilewright.testing.approximate import Accepted
from tilewright.testing.definition import around, check_length, meaning
from tilewright.testing.verify import compare, one_line
from tilewright.tune.launches import LaunchPoints
from tilewright.tune.subject import Built, Call, Subject
from tilewright.tune.subjects import check_target

# Of a larger space, so many points are drawn.
MOST_POINTS = 512
# The interpreter runs the first guess for a few seconds; where it would take longer, the first
# guess is what others are compared with.
_MOST_INTERPRETED = 2 * 10**7
_PAGE = 4096


class Point(NamedTuple):
    """A launch with values of tunables: its kernel, the numbers that it passes, the name of the
    array for messages, if there is one, these, and the dims of its range."""

    kernel: Kernel
    numbers: Mapping[str, Scalar]
    records: str | None
    messages: tuple[Message, ...]
    dims: int


class Launched(NamedTuple):
    """What is tuned: a launch of a function."""

    function: KernelFunction
    launch: Launch


class Stored(NamedTuple):
    """What lies in the file: points by their text, or why they are none; the arrays, and where in
    its page of memory each begins."""

    points: Mapping[str, Point | str]
    arrays: Mapping[str, Any]
    places: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class LaunchSubject(Subject):
    """A launch for ``target`` by so many ``threads``: called ``called``, with rows ``of``, which
    chooses ``declared`` values, and what ``path`` stores."""

    called: str
    of: Asked
    declared: Mapping[str, tuple[Any, ...]]
    target: str
    threads: int
    path: Path

    @property
    def title(self) -> str:
        return self.called

    @property
    def asked(self) -> Asked:
        return self.of

    @property
    def key(self) -> str:
        return f"{self.of} {self.path}"

    def points(self) -> LaunchPoints:
        return LaunchPoints(self.declared)

    def default(self) -> Config:
        return next(self.points().points())

    def build(self, point: Config) -> LaunchBuilt:
        launch = _stored(self.path).points.get(repr(point), "it is not among the points drawn")
        if isinstance(launch, str):
            raise ScheduleError(launch)
        with database_in(""):
            compiled = compile_kernel(launch.kernel, self.target, self.threads)
        return LaunchBuilt(self, launch, compiled)


class LaunchBuilt(Built):
    """A point that was compiled."""

    def __init__(self, subject: LaunchSubject, launch: Point, compiled: CompiledKernel) -> None:
        self._subject, self._launch, self._compiled = subject, launch, compiled

    @property
    def schedule(self) -> str:
        return self._compiled.source("schedule")

    def fault(self, seed: int) -> str | None:
        """Runs it on copies of the arguments. Raises `KernelError` for an assertion that fails."""
        results = self.results()
        for name, accepted in _reference(self._subject).items():
            mismatch, _ = compare(name, results[name], accepted)
            if mismatch is not None:
                return str(mismatch)
        return None

    def results(self) -> dict[str, Any]:
        """The arrays after a launch."""
        passed = self._passed()
        self._compiled(**passed)
        if self._launch.records is not None:
            with redirect_stdout(StringIO()):
                report(passed[self._launch.records], self._launch.messages, self._launch.dims)
        return passed

    def call(self, seed: int) -> Call:
        return self._compiled.bind(**self._passed())

    def _passed(self) -> dict[str, Any]:
        stored = _stored(self._subject.path)
        arrays = {name: _copied(a, stored.places[name]) for name, a in stored.arrays.items()}
        if self._launch.records is not None:
            arrays[self._launch.records] = new_records()
        return {**self._launch.numbers, **arrays}


def launch_of(
    function: object,
    range: Any,
    arguments: object,
    local: Any,
    offset: Any,
    target: str,
    threads: int | None,
) -> Launched:
    """The launch that is tuned. Raises `ArgumentError` for what is none, `UnsupportedError` for a
    target whose kernels cannot be timed here."""
    if not isinstance(function, KernelFunction):
        raise ArgumentError(
            f"a range and arguments are given for {short(function)}",
            where="tw.autotune",
            why="functions with @tw.kernel are launched by ranges",
            cure="leave range= and arguments= out; numbers= has the scalars of a kernel",
        )
    if range is None or not isinstance(arguments, tuple | list):
        what = "no range is" if range is None else f"arguments={short(arguments)} is"
        raise ArgumentError(
            f"{what} given for {function.name}",
            where="tw.autotune",
            cure=f"pass range=, and arguments=({', '.join(function.parameters)},)",
        )
    check_target(find_target(target))
    launch = Launch(Grid(range, local, offset), tuple(arguments), target, threads)
    return Launched(function, launch)


def taken(launched: Launched, database: Path) -> CompiledKernel:
    """The kernel with the fastest values that ``database`` has, which launches like this one take
    from now on in this process."""
    function, launch = launched
    function.launches.forget()
    with database_in(database):
        ready = function.launches.ready(launch)
    chosen = dict(ready.decided.choice.tunables)
    function.launches.remember(launch, chosen, f"a search in this process: {ready.origin}")
    return ready.code


def launch_subject(launched: Launched, folder: Path) -> LaunchSubject:
    """What is tuned of a launch; its file is in ``folder``, which has to stay.

    Raises `ArgumentError` for a function without tunables and for arguments that do not fit,
    `KernelError` where the first guess is no kernel.
    """
    function = launched.function
    launches, launch = function.launches, launched.launch._replace(tunables={})
    declared = {name: tunable.values for name, tunable in launches.declared(launch.grid).items()}
    if not declared:
        raise ArgumentError(
            f"{function.name} has nothing to tune",
            where=f"launch of {function.name}",
            why="it declares no tunables",
            cure='declare some: TILE = tw.tunable("TILE", (8, 16, 32)), or pass such a local size',
        )
    first = launches.decided(launch)
    path = folder / f"launch-{len(list(folder.iterdir()))}"
    path.write_bytes(pickle.dumps(_stored_of(function, launch, LaunchPoints(declared))))
    return LaunchSubject(
        f"{function.name} by {' x '.join(map(str, first.sizes))} work-items",
        launches.asked(first, launch),
        declared,
        launch.target,
        checked_threads(launch.threads),
        path,
    )


def _stored_of(function: KernelFunction, launch: Launch, points: LaunchPoints) -> Stored:
    arguments = zip(function.parameters.items(), launch.arguments, strict=True)
    infos = {
        name: describe(value, name)
        for (name, annotation), value in arguments
        if isinstance(annotation, ArrayType)
    }
    first = next(points.points())
    stored: dict[str, Point | str] = {repr(first): _point(function, launch, first)}
    for config in points.by_prediction(Random(0), MOST_POINTS):
        if config == first:
            continue
        try:
            stored[repr(config)] = _point(function, launch, config)
        except TilewrightError as error:
            stored[repr(config)] = one_line(error)
    arrays = {name: np.array(in_memory(info)) for name, info in infos.items()}
    return Stored(stored, arrays, {name: info.pointer % _PAGE for name, info in infos.items()})


def _point(function: KernelFunction, launch: Launch, config: Config) -> Point:
    assert isinstance(config, LaunchConfig)
    launches = function.launches
    decided = launches.decided(launch._replace(tunables=config.tunables))
    specialized = function.specialize(decided.choice)
    passed = launches.passed(specialized, decided, launch)
    arrays = Signature(specialized.kernel.params).arguments
    names = {array.name for array in arrays}
    numbers = {name: _plain(value) for name, value in passed.items() if name not in names}
    return Point(
        specialized.kernel, numbers, specialized.records, specialized.messages, len(decided.sizes)
    )


@lru_cache(maxsize=2)
def _stored(path: Path) -> Stored:
    try:
        stored: Stored = pickle.loads(path.read_bytes())
    except OSError as error:
        raise TuningError(
            "the arguments of the launch are not there",
            where="executor",
            why=f"they lie in a file of the machine that searches: {error.strerror}, {path}",
            cure="search for tunables by workers of this machine",
        ) from error
    return stored


@lru_cache(maxsize=2)
def _reference(subject: LaunchSubject) -> Mapping[str, Accepted]:
    """What is accepted of each array that the launch stores to: by the interpreter, or by the
    first guess as compiled code."""
    stored = _stored(subject.path)
    first = stored.points[repr(subject.default())]
    assert isinstance(first, Point)
    kernel, contents = first.kernel, dict(stored.arrays)
    if first.records is not None:
        contents[first.records] = new_records()
    signature = Signature(kernel.params)
    numbers = dict(first.numbers)
    for name, places in signature.sizes.items():
        array, dim = places[0]
        numbers.setdefault(name, contents[array].shape[dim])
    try:
        check_length(kernel, numbers, _MOST_INTERPRETED)
        accepted, _ = meaning(kernel, signature.at(numbers), numbers, contents, exact=False)
    except UnsupportedError:
        results = subject.build(subject.default()).results()
        accepted = around(kernel, numbers, results)
    return {name: value for name, value in accepted.items() if name != first.records}


def _plain(value: Any) -> Scalar:
    number: Scalar = value.item() if isinstance(value, np.generic) else value
    return number


def _copied(array: Any, place: int) -> Any:
    """A copy that begins at this place of a page, as its original does: how addresses lie to each
    other decides how fast some kernels are."""
    memory = np.empty(array.nbytes + 2 * _PAGE, np.uint8)
    start = (place - memory.ctypes.data) % _PAGE
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
