"""Completion of words in a shell."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.cli.loading import loading

# The names of `problems.DRIVERS`, which would take long to load for one word.
DRIVERS = (
    *("conv", "matmul", "pool", "reduce", "eltwise", "binary", "reorder"),
    *("softmax", "lnorm", "bnorm", "gnorm", "arg", "moments"),
    *("logsumexp", "scan", "concat", "slice", "tile", "transpose"),
    *("pixels", "shuffle", "pad", "zeropad", "gather", "scatter"),
    *("onehot", "sort", "topk", "resampling", "prelu", "deconv"),
    *("maxpool", "sdpa", "rnn"),
)
# The drivers whose descriptors are files of kernels, of graphs, and of kernels to fuse.
KERNEL, GRAPH, FUSION = "kernel", "graph", "fusion"
_front = ""


def drivers(incomplete: str) -> list[str]:
    """The first argument of commands."""
    return _beginning(incomplete, (*DRIVERS, KERNEL, GRAPH, FUSION))


def directions(incomplete: str) -> list[str]:
    """The values of ``--dir``."""
    return _beginning(incomplete, ("FWD_D", "FWD_B", "BWD_D", "BWD_W", "BWD_WB"))


def cut_from_completions(front: str) -> None:
    """Cuts ``front`` from all completions, as the shell has cut it from the words to complete."""
    global _front
    _front = front


def targets(incomplete: str) -> list[str]:
    """Families; after the colon of one, its variants."""
    with loading():
        from tilewright.targets.registry import TARGETS
    family, colon, _ = (_front + incomplete).partition(":")
    if not colon or family not in TARGETS:
        return _beginning(incomplete, TARGETS)
    named = (f"{family}:{variant}" for variant in TARGETS[family].variants() if variant)
    return [name.removeprefix(_front) for name in _beginning(_front + incomplete, named)]


def sets(incomplete: str) -> list[str]:
    """The shipped sets of problems."""
    with loading():
        from tilewright.bench import catalog
    return _beginning(incomplete, catalog.names())


def stages(incomplete: str) -> list[str]:
    """The values of ``show --stage`` that every kernel has."""
    return _beginning(incomplete, ("all", "naive", "llvm", "asm", "schedule", "config", "cost"))


def _beginning(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]
