"""What a shell may offer behind a word that was begun, where the command line knows."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.cli.loading import loading

# The names of `problems.DRIVERS`, which take long to load for a word.
DRIVERS = (
    *("conv", "matmul", "pool", "reduce", "eltwise", "binary", "reorder"),
    *("softmax", "lnorm", "bnorm", "gnorm", "arg", "moments"),
    *("logsumexp", "scan", "concat", "slice", "tile", "transpose"),
    *("pixels", "shuffle", "pad", "zeropad", "gather", "scatter"),
    *("onehot", "sort", "topk", "resampling", "prelu", "deconv"),
    *("maxpool",),
)
# The driver whose descriptors are files of kernels, and that whose are files of graphs.
KERNEL, GRAPH = "kernel", "graph"


def drivers(incomplete: str) -> list[str]:
    """What a command can be about."""
    return _beginning(incomplete, (*DRIVERS, KERNEL, GRAPH))


def directions(incomplete: str) -> list[str]:
    """The values of ``--dir``."""
    return _beginning(incomplete, ("FWD_D", "FWD_B", "BWD_D", "BWD_W", "BWD_WB"))


def targets(incomplete: str) -> list[str]:
    """Families only: shells take what stands behind a colon for another word."""
    with loading():
        from tilewright.targets.registry import TARGETS
    return _beginning(incomplete, TARGETS)


def sets(incomplete: str) -> list[str]:
    """The sets of problems that ship."""
    with loading():
        from tilewright.bench import catalog
    return _beginning(incomplete, catalog.names())


def stages(incomplete: str) -> list[str]:
    """The values of ``show --stage`` that every kernel has."""
    return _beginning(incomplete, ("all", "naive", "llvm", "asm", "schedule", "config", "cost"))


def _beginning(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]
