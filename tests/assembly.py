"""Kernels as PTX, and PTX for the assembler, where there is one."""

from __future__ import annotations

from tilewright.ir.parser import parse_kernel
from tilewright.machines import nvidia
from tilewright.targets.llvm.module import Module
from tilewright.targets.nvidia.assemble import to_ptx
from tilewright.targets.nvidia.lower import lower_launches
from tilewright.targets.nvidia.ptxas import Assembled, find_ptxas, run_ptxas


def lowered(text: str, level: str = "sm_80") -> Module:
    return lower_launches(parse_kernel(text), nvidia.machine(level))


def ptx(text: str, level: str = "sm_80") -> str:
    return to_ptx(lowered(text, level).text, level)


def assembled(ptx: str, level: str, spilled: int = 0) -> Assembled | None:
    """What ptxas makes of ``ptx``; checks that it keeps the code as it is, and that it spills no
    more bytes than that.

    None where no ptxas here knows ``level``.
    """
    ptxas = find_ptxas(level)
    if ptxas is None:
        return None
    result = run_ptxas(ptxas, ptx, level)
    assert result.remarks == ()
    assert result.usage
    assert [usage for usage in result.usage if usage.spilled > spilled] == []
    return result
