"""The choice of a config for a kernel without one: made once, for a prediction or a compilation.

A choice schedules all candidates, which is most of the time of a compilation and of a prediction.
So a prediction keeps its choice for the compilation of the same kernel, and the time on disk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.engine.disk_cache import content_key, open_disk_cache
from tilewright.engine.generator import generator_identity
from tilewright.engine.kept import KeptSteps
from tilewright.engine.request import Request, request_of
from tilewright.errors import TilewrightError
from tilewright.facts import Facts, starting_from
from tilewright.ir.stmt import Kernel
from tilewright.machines.machine import Machine
from tilewright.newest import Newest
from tilewright.predict.time import predicted
from tilewright.recipes.choose import choose
from tilewright.recipes.config import Config
from tilewright.recipes.users import registered_identity
from tilewright.schedule.schedule import KernelSchedule


@dataclass(frozen=True)
class Chosen:
    """A config, the kernels that its schedule gives (what packs an argument by that, and the main
    one as ``""``), and the steps."""

    config: Config
    kernels: Mapping[str, Kernel]
    steps: KeptSteps

    @classmethod
    def of(cls, config: Config, scheduled: KernelSchedule) -> Chosen:
        """What a schedule that is complete gives."""
        kernels = {"": scheduled.kernel, **scheduled.packed}
        return cls(config, kernels, KeptSteps.of(scheduled))


# What predictions have chosen, and the seconds that they say; None: none is predicted.
_waiting: Newest[str, Chosen] = Newest(64)
_seconds: Newest[str, float | None] = Newest(1024)


def predicted_seconds(
    kernel: Kernel, machine: Machine, constant: Sequence[str] = ()
) -> float | None:
    """The seconds that ``kernel`` is predicted to take on ``machine`` by the schedule that is
    chosen for it, where ``constant`` may be packed before; None where none are predicted, or
    nothing can be chosen."""
    request = request_of(kernel, constant)
    key = _key(request, machine)
    # (Another thread may forget what is kept, at any time.)
    seconds = _seconds.get(key)
    if seconds is None and key not in _seconds:
        kept = _from_disk(key)
        seconds = _seconds[key] = _predicted(request, machine, key) if kept is None else kept
    return seconds


def take_chosen(request: Request, machine: Machine) -> Chosen | None:
    """What a prediction has chosen, for the one who compiles it: it is not kept any longer."""
    return _waiting.pop(_key(request, machine), None) if _waiting else None


def is_chosen(kernel: Kernel, machine: Machine, constant: Sequence[str] = ()) -> bool:
    """Whether `take_chosen` has something for ``kernel``."""
    return bool(_waiting) and _key(request_of(kernel, constant), machine) in _waiting


def forget_choices() -> None:
    """Drops what is kept in memory."""
    _waiting.clear()
    _seconds.clear()


def _predicted(request: Request, machine: Machine, key: str) -> float | None:
    try:
        with starting_from(Facts.empty()):
            config, scheduled = choose(request.start(), machine)
            time = predicted(scheduled.kernel, machine)
    except TilewrightError:
        return None
    _waiting[key] = Chosen.of(config, scheduled)
    if time is None:
        return None
    open_disk_cache().put(key, b"", {"seconds": time.seconds})
    return time.seconds


def _from_disk(key: str) -> float | None:
    """The seconds that are kept; None where there are none, or what is no time."""
    entry = open_disk_cache().get(key)
    seconds = None if entry is None else entry.meta.get("seconds")
    return seconds if type(seconds) is float and 0 <= seconds < math.inf else None


def _key(request: Request, machine: Machine) -> str:
    """What tells a choice from all others, as a key of the disk cache. Machines of one name may
    have other cores and caches."""
    sizes = (machine.caches, machine.cores, machine.hierarchy, machine.recipes)
    identity = f"{machine.name} {sorted(machine.features)} {sizes} {machine.costs}"
    depends = (generator_identity(), request.identity, identity, registered_identity())
    return content_key(b"predicted time", *(part.encode() for part in depends))
