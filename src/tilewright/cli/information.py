"""``tilewright rules``, ``targets``, ``sets``, ``doctor`` and ``cache``."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright import __version__
from tilewright.cli.files import open_output
from tilewright.cli.loading import loading
from tilewright.config import settings
from tilewright.errors import DeviceError, UnsupportedError

if TYPE_CHECKING:
    from tilewright.targets.spirv.device import Device

JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Write what it says to this file, too.")
]

# Each command imports only what it reports on: the targets alone take longer to load than other
# commands take to run.


def rules_command(
    name: Annotated[str, typer.Argument(help="Only rules with this in their name.")] = "",
) -> None:
    """List the simplifier's rules: name, pattern, replacement, condition.

    Examples:

      tilewright rules

      tilewright rules div
    """
    with loading():
        from tilewright.simplify import all_rules
    rules = [rule for rule in all_rules() if name in rule.name]
    if not rules:
        raise UnsupportedError(
            f"no rule has {name!r} in its name",
            where="NAME",
            cure="`tilewright rules` lists all of them",
        )
    for rule in rules:
        print(f"{rule.name}: {rule.text}")
    print(f"{len(rules)} rules")


def targets_command(json_file: JsonFile = None) -> None:
    """List the targets, their feature levels and devices, and which of them run here.

    Examples:

      tilewright targets

      tilewright targets --json targets.json
    """
    with loading():
        from tilewright.targets.registry import TARGETS
    targets: list[dict[str, Any]] = []
    for name, family in TARGETS.items():
        for variant in family.variants():
            try:
                target = family.find(variant)
            except DeviceError as error:
                print(f"{name}: {error.what}; {error.cure}")
                targets.append({"target": name, "runs_here": False, "place": error.what})
                continue
            machine = target.machine
            print(f"{target.name}: {machine.vector_bytes}-byte vectors, {target.place}")
            print("    " + " ".join(machine.multiply_adds))
            targets.append(
                {
                    "target": target.name,
                    "runs_here": target.runs_here,
                    "place": target.place,
                    "vector_bytes": machine.vector_bytes,
                    "instructions": machine.multiply_adds,
                }
            )
    _write(json_file, {"targets": targets})


def sets_command(
    name: Annotated[str, typer.Argument(help="Print the descriptors of this set.")] = "",
) -> None:
    """List the sets of problems that ship, or the problems of one.

    Examples:

      tilewright sets

      tilewright sets resnet_50
    """
    with loading():
        from tilewright.bench import catalog
    if name:
        for problem in catalog.load(name).problems:
            print(problem.descriptor())
        return
    for problem_set in map(catalog.load, catalog.names()):
        print(f"{problem_set.name}: {problem_set.driver}, {len(problem_set.problems)} problems")


def doctor_command(json_file: JsonFile = None) -> None:
    """Say what Tilewright finds here: machine, caches, devices, versions, settings.

    Examples:

      tilewright doctor

      tilewright doctor --json here.json
    """
    with loading():
        from tilewright.engine.disk_cache import open_disk_cache
        from tilewright.predict.kept import costs_file
        from tilewright.targets.nvidia import device as nvidia
        from tilewright.targets.nvidia.ptxas import assemblers
        from tilewright.targets.spirv import device as spirv
        from tilewright.targets.x86.assemble import host_cpu
        from tilewright.targets.x86.device import host
    machine, current, stats = host(), settings(), open_disk_cache().stats()
    costs = costs_file(host_cpu(), machine)
    caches = ", ".join(f"L{i} {size // 1024} KiB" for i, size in enumerate(machine.caches, start=1))
    features = sorted(f for f in machine.features if f.startswith(("avx", "amx", "sse4", "fma")))
    lines = {
        "tilewright": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": platform.platform(),
        "processor": f"{host_cpu()}, {machine.cores} cores",
        "features": " ".join(features),
        "vectors": f"{machine.vector_registers} of {machine.vector_bytes} bytes",
        "caches": caches,
        "instructions": " ".join(machine.multiply_adds),
        "costs": costs if costs.exists() else "those that ship (tilewright tune --fit)",
        "threads": current.threads,
        "database": current.database or "none (TILEWRIGHT_DB)",
        "llvmlite": _version("llvmlite"),
        "numpy": _version("numpy"),
        "ml_dtypes": _version("ml_dtypes"),
        "torch": _version("torch"),
        "matplotlib": _version("matplotlib"),
        "pyopencl": _version("pyopencl"),
        "OpenCL": "; ".join(map(_device, spirv.devices()))
        or f"{spirv.why_none()}; {spirv.INSTALL}",
        "cuda-bindings": _version("cuda-bindings"),
        "ptxas": ", ".join(map(str, assemblers())) or "not installed",
        "NVIDIA": "; ".join(map(str, nvidia.devices())) or "; ".join(nvidia.why_none()),
        "cache": f"{stats.folder} ({_cache_state(stats.usable, current.cache_enabled)})",
    }
    for name, text in lines.items():
        print(f"{name:<15}{text}")
    _write(json_file, {"found": lines})


def _write(path: Path | None, data: Mapping[str, Any]) -> None:
    """Writes ``data`` to a file, if ``path`` is given."""
    with loading():
        from tilewright.measure.stamp import stamped
    with ExitStack() as stack:
        output = open_output(stack, path, "--json")
        if output is not None:
            output.write(stamped(1, data))


def _device(device: Device) -> str:
    memory = "shares memory" if device.shares_memory else "memory of its own"
    return (
        f"{device}, {device.cores} cores, workgroups of {device.workgroup} with "
        f"{device.shared // 1024} KiB, {memory}"
    )


def cache_command(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all entries.")] = False,
) -> None:
    """Say what the disk cache holds (kernels, programs, predicted times), or clear it.

    Examples:

      tilewright cache

      tilewright cache --clear
    """
    with loading():
        from tilewright.engine.disk_cache import open_disk_cache
    cache = open_disk_cache()
    if clear:
        print(f"{cache.clear()} entries removed")
        return
    stats = cache.stats()
    print(f"folder   {stats.folder} ({_cache_state(stats.usable, settings().cache_enabled)})")
    print(f"entries  {stats.entries}")
    print(f"bytes    {stats.size} of at most {stats.limit}")


def _cache_state(usable: bool, enabled: bool) -> str:
    if not enabled:
        return "switched off by TILEWRIGHT_CACHE"
    return "in use" if usable else "cannot be written"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
