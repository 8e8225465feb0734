"""The targets, by name: the only place that lists them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.errors import UnsupportedError, one_of, short
from tilewright.targets.interpreter.target import interpreter_target, interpreter_variants
from tilewright.targets.nvidia.target import nvidia_target, nvidia_variants
from tilewright.targets.spirv.target import spirv_target, spirv_variants
from tilewright.targets.target import Target
from tilewright.targets.x86.target import x86_target, x86_variants


@dataclass(frozen=True)
class Family:
    """Targets of one kind: ``find`` gives the target of a variant, ``variants`` lists the named
    ones ("" first: the target for this machine)."""

    find: Callable[[str], Target]
    variants: Callable[[], Sequence[str]]


TARGETS: dict[str, Family] = {
    "x86": Family(x86_target, x86_variants),
    "nvidia": Family(nvidia_target, nvidia_variants),
    "spirv": Family(spirv_target, spirv_variants),
    "interpreter": Family(interpreter_target, interpreter_variants),
}


def find_target(name: str) -> Target:
    """The target called ``name``: a family, or ``family:variant`` (``x86``, ``x86:avx2``).

    Raises `UnsupportedError` for an unknown target, `DeviceError` for a missing device.
    """
    family, _, variant = name.partition(":") if isinstance(name, str) else ("", "", "")
    if family not in TARGETS:
        suggestion = _with_family(family)
        guess = f"did you mean {suggestion}? " if suggestion else ""
        raise UnsupportedError(
            f"there is no target {short(name)}", cure=guess + one_of(family, sorted(TARGETS))
        )
    return TARGETS[family].find(variant)


def _with_family(variant: str) -> str:
    """The target with this variant, "" if there is none."""
    for name, family in TARGETS.items():
        if variant and variant.lower() in family.variants():
            return f"{name}:{variant.lower()}"
    return ""
