"""Fusions of the command line: files with kernels in order, and the kernel that they become."""

from __future__ import annotations

from pathlib import Path

from tilewright.cli.files import read_text
from tilewright.cli.knobs import Knobs, Showing, nothing_to_do, refuse_options
from tilewright.errors import ProblemError, one_of
from tilewright.recipes.fusing import Fused, fuse
from tilewright.schedule.fusion.members import Fusion
from tilewright.schedule.fusion.text import fusion_text, parse_fusion
from tilewright.targets.registry import find_target

_STAGES = ("fusion", "report", "kernel")


def show_fusions(knobs: Knobs, showing: Showing) -> None:
    """Carries out ``tilewright show fusion``. Raises `ProblemError` for options that fusions have
    not, `ParseError` for a file that is no fusion, and `FusionError` for one that means nothing."""
    stage = showing.stage
    refused = [*knobs.texts, *showing.named("page", "legal", "measure", "json")]
    refused += knobs.given("batch", "config", "set", "constant", "contents")
    refuse_options("fusion", refused, why="it is for one kernel", cure="show the fused kernel")
    if stage not in ("", "all", *_STAGES):
        raise ProblemError(
            f"there is no stage {stage!r}", where="--stage", cure=one_of(stage, ("all", *_STAGES))
        )
    if not knobs.descriptors:
        raise nothing_to_do("give a file with a fusion: fusion FILE")
    machine = find_target(knobs.target).machine
    for name in knobs.descriptors:
        text = read_text(Path(name), f"fusion {name}", "give a file with a fusion", "fusion file")
        fusion = parse_fusion(text, file=name)
        fused = fuse(fusion, machine, require=False)
        print(f"# fusion {name}")
        for label in _STAGES if stage in ("", "all") else (stage,):
            head = "" if stage == label else f"# stage {label}\n"
            print(f"{head}{_shown(label, fusion, fused)}")


def _shown(stage: str, fusion: Fusion, fused: Fused) -> str:
    if stage == "fusion":
        return fusion_text(fusion)
    if stage == "kernel" and fused.kernel is not None:
        return str(fused.kernel)
    return "\n".join(f"# {line}" for line in str(fused.report).split("\n"))
