"""Random programs of work-items, fused, in the interpreter with its checks beside their members one
by one; and proofs that are told wrong, which it finds."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from fusion_programs import ARRAYS, LENGTH, program
from tilewright.errors import InterpreterFault
from tilewright.interpret import run
from tilewright.recipes.fusing import fuse
from tilewright.schedule.fusion import joined, promotion
from tilewright.schedule.fusion.members import Fusion

SEEDS = range(120)


def initial() -> dict[str, np.ndarray]:
    draws = {name: np.random.default_rng(seed) for seed, name in enumerate(ARRAYS)}
    return {name: draw.uniform(-1, 1, LENGTH).astype(np.float32) for name, draw in draws.items()}


def one_by_one(fusion: Fusion) -> dict[str, np.ndarray] | None:
    """What the members leave; None where one of them alone has a race."""
    arrays = initial()
    try:
        for member in fusion.members:
            run(member.kernel, {param: arrays[str(n)] for param, n in member.arguments.items()})
    except InterpreterFault:
        return None
    return arrays


def outcome(fusion: Fusion, expected: dict[str, np.ndarray]) -> str:
    """What comes of ``fusion``: refused, right, wrong, or a fault."""
    kernel = fuse(fusion, require=False).kernel
    if kernel is None:
        return "refused"
    arrays = {param.name: array for param in kernel.arrays for array in (initial()[param.name],)}
    try:
        run(kernel, dict(arrays))
    except InterpreterFault:
        return "fault"
    kept = arrays.keys() - fusion.promote.keys()
    return "right" if all(np.array_equal(arrays[n], expected[n]) for n in kept) else "wrong"


def outcomes() -> Counter[str]:
    result: Counter[str] = Counter()
    for seed in SEEDS:
        fusion = program(seed)
        expected = one_by_one(fusion)
        if expected is not None:
            result[outcome(fusion, expected)] += 1
    return result


def test_what_is_fused_is_right() -> None:
    result = outcomes()
    assert result.keys() == {"refused", "right"}
    assert result["right"] > 10


def test_a_wrong_proof_of_owners_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (joined, promotion):
        monkeypatch.setattr(module, "apart", lambda a, b, owners: True)
    result = outcomes()
    assert result["fault"] > 0
    assert result["wrong"] + result["fault"] > 2


def test_a_wrong_proof_of_writes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promotion, "written_before", lambda *arguments: True)
    assert outcomes()["fault"] > 1
