"""PTX that the compiler made, for the assembler, where there is one."""

from __future__ import annotations

from tilewright.targets.nvidia.ptxas import Assembled, find_ptxas, run_ptxas


def assembled(ptx: str, level: str) -> Assembled | None:
    """What ptxas makes of ``ptx``; checks that it keeps the code as it is, and spills nothing.

    None where no ptxas here knows ``level``.
    """
    ptxas = find_ptxas(level)
    if ptxas is None:
        return None
    made = run_ptxas(ptxas, ptx, level)
    assert made.remarks == ()
    assert made.usage
    assert [each for each in made.usage if each.spilled] == []
    return made
