"""What a schedule may choose. A config prints as Python that makes it again."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from tilewright.errors import ScheduleError


@dataclass(frozen=True)
class ContractionConfig:
    """How a contraction (convolution, matmul) runs on a CPU.

    - ``instruction``: the multiply-add that does the work, and ``lanes``: the dim across its lanes
    - ``k``: the reduced dim that a dot-product instruction adds up ("" for FMA)
    - ``fuse``: dims made one before tiling, as (outer, inner, new name)
    - ``split``: dims made two (``DIM_q``, ``DIM_r``) by a factor, as (dim, factor)
    - ``tile``: the register tile, per dim of the result; dims left out are 1
    - ``order``: loops over tiles, outermost first
    - ``step``: how far each reduced dim is unrolled; dims left out are 1
    - ``reduce_order``: loops over reduced dims, outermost first
    - ``pack_a``: whether A is copied first, with padding resolved and types converted
    - ``pack_b``: whether B is packed in the order it is read
    """

    instruction: str
    lanes: str
    tile: Mapping[str, int]
    order: tuple[str, ...]
    step: Mapping[str, int] = field(default_factory=dict)
    reduce_order: tuple[str, ...] = ()
    k: str = ""
    fuse: tuple[tuple[str, str, str], ...] = ()
    split: tuple[tuple[str, int], ...] = ()
    pack_a: bool = False
    pack_b: bool = True

    def __hash__(self) -> int:
        return hash(repr(self))


@dataclass(frozen=True)
class StreamingConfig:
    """How an op without a contraction runs on a CPU: ``vector`` elements per vector, ``unroll``
    vectors per step."""

    vector: int
    unroll: int = 1


Config = ContractionConfig | StreamingConfig
CONFIGS: dict[str, type[ContractionConfig] | type[StreamingConfig]] = {
    "ContractionConfig": ContractionConfig,
    "StreamingConfig": StreamingConfig,
}


def parse_config(text: str) -> Config:
    """The config that ``text`` (a Python call, as a config prints) makes.

    Only literals may stand in it: nothing is executed. Raises `ScheduleError`.
    """
    cure = "write it as it prints: " + "; ".join(
        f"{name}({', '.join(f.name + '=...' for f in fields(kind))})"
        for name, kind in CONFIGS.items()
    )
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.args):
            raise ValueError("not a call with keywords")
        kind = CONFIGS[tree.func.id]
        values = {str(k.arg): ast.literal_eval(k.value) for k in tree.keywords}
        return kind(**values)
    except (SyntaxError, ValueError, KeyError, TypeError) as error:
        raise ScheduleError(f"{text!r} is not a config", why=str(error), cure=cure) from error
