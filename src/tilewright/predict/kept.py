"""Costs that were fitted on this processor: a file beside the cache, which takes the place of the
costs that ship.

It is never trusted: what is no file of costs of this version, or another user's, is said in a
warning, once a process, and the costs that ship count.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import warnings
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from tilewright.config import settings
from tilewright.machines.machine import Machine
from tilewright.machines.rates import Costs
from tilewright.writing import write_whole

_SCHEMA = 1
_GREATEST = 1e12


class CostsWarning(UserWarning):
    """Costs that were fitted here do not count."""


def costs_file(processor: str, machine: Machine) -> Path:
    """Where costs of ``machine`` on a ``processor`` (its name) are kept."""
    name = re.sub(r"[^A-Za-z0-9.]+", "-", f"{processor} {machine.name}")
    return settings().cache_dir / "costs" / f"{name}.json"


def keep_costs(costs: Costs, processor: str, machine: Machine, about: Mapping[str, Any]) -> Path:
    """Writes ``costs`` to their file, whole or not at all, with what is to be known ``about`` them;
    returns the file. Raises `OSError`. Processes that begin from now on take them."""
    path = costs_file(processor, machine)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {"schema": _SCHEMA, **about, "costs": asdict(costs)}
    write_whole(path, json.dumps(data, indent=1).encode())
    return path


def with_kept_costs(machine: Machine, processor: str) -> Machine:
    """``machine`` with the costs that are kept of it, or as it is."""
    if machine.costs is None or not settings().cache_enabled:
        return machine
    path = costs_file(processor, machine)
    try:
        return replace(machine, costs=_read(path, machine.costs))
    except FileNotFoundError:
        return machine
    except (OSError, ValueError) as error:
        _warn(f"{path} has no costs that count ({error}): those that ship do; remove it")
        return machine


def _read(path: Path, shipped: Costs) -> Costs:
    """The costs in a file, of the kinds of work that ``shipped`` has. Raises `OSError`, and
    `ValueError` with the reason."""
    status = path.stat()
    if status.st_uid not in (os.geteuid(), 0) or status.st_mode & stat.S_IWOTH:
        raise ValueError("it is another user's, or others may write to it")
    data = json.loads(path.read_text())
    try:
        costs = data["costs"]
        numbers = {kind: _number(costs["cycles"][kind]) for kind in shipped.cycles}
        others = {field.name: _number(costs[field.name]) for field in fields(Costs)[1:]}
        current = data["schema"] == _SCHEMA and set(costs["cycles"]) == set(shipped.cycles)
    except (KeyError, TypeError):
        current = False
    if not current:
        raise ValueError("another version wrote it")
    return Costs(numbers, **others)


def _number(value: object) -> float:
    number = float(value) if isinstance(value, int | float) else math.nan
    if not 0 <= number < _GREATEST:
        raise ValueError(f"{value} is no cost")
    return number


@cache
def _warn(text: str) -> None:
    warnings.warn(text, CostsWarning, stacklevel=3)
