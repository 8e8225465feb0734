"""Costs that are kept: read back, and left where they do not count."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.config import cache_in
from tilewright.engine.compile import _key
from tilewright.engine.request import request_of
from tilewright.machines import x86
from tilewright.ops.arguments import matmul
from tilewright.predict.kept import CostsWarning, costs_file, keep_costs, with_kept_costs
from tilewright.targets.x86.target import x86_target

MACHINE = x86.machine("avx2")
assert MACHINE.costs is not None
FITTED = replace(
    MACHINE.costs,
    cycles={kind: 2 * cycles for kind, cycles in MACHINE.costs.cycles.items()},
    overlap=2.5,
)


def test_kept(tmp_path: Path) -> None:
    with cache_in(tmp_path):
        assert with_kept_costs(MACHINE, "any") is MACHINE
        path = keep_costs(FITTED, "any", MACHINE, {"kernels": 7})
        assert path == costs_file("any", MACHINE) == tmp_path / "costs" / "any-x86-avx2.json"
        assert with_kept_costs(MACHINE, "any").costs == FITTED
        assert with_kept_costs(MACHINE, "another") is MACHINE
        assert with_kept_costs(x86.machine("avx512"), "any").costs == x86.machine("avx512").costs
        assert json.loads(path.read_text())["kernels"] == 7
        assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert with_kept_costs(replace(MACHINE, costs=None), "any").costs is None


def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: str, target: Path) -> None:
        raise OSError(28, "No space left on device")

    with cache_in(tmp_path):
        path = keep_costs(FITTED, "any", MACHINE, {})
        monkeypatch.setattr("os.replace", full)
        with pytest.raises(OSError, match="No space left"):
            keep_costs(MACHINE.costs, "any", MACHINE, {})
        assert [entry.name for entry in path.parent.iterdir()] == [path.name]
        assert with_kept_costs(MACHINE, "any").costs == FITTED


def test_without_a_cache_none_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with cache_in(tmp_path):
        keep_costs(FITTED, "any", MACHINE, {})
        monkeypatch.setenv("TILEWRIGHT_CACHE", "0")
        assert with_kept_costs(MACHINE, "any") is MACHINE


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "Expecting property name"),
        ("{}", "another version wrote it"),
        ("[]", "another version wrote it"),
        ('{"schema": 1, "costs": {"cycles": {"load": 1.0}}}', "another version wrote it"),
        ("negative", "-1.0 is no cost"),
        ("NaN", "nan is no cost"),
        ("writable", "others may write to it"),
    ],
)
def test_what_does_not_count(tmp_path: Path, text: str, why: str) -> None:
    with cache_in(tmp_path):
        path = keep_costs(FITTED, "any", MACHINE, {})
        data = json.loads(path.read_text())
        if text == "writable":
            path.chmod(0o666)
        elif text in ("negative", "NaN"):
            data["costs"]["cycles"]["load"] = -1.0 if text == "negative" else float("nan")
            path.write_text(json.dumps(data))
        else:
            path.write_text(text)
        with pytest.warns(CostsWarning, match="those that ship do; remove it") as said:
            assert with_kept_costs(MACHINE, "any") is MACHINE
        assert why in str(said[0].message)
        with_kept_costs(MACHINE, "any")  # which is said once


def test_code_that_other_costs_chose_is_other_code() -> None:
    target = x86_target("avx2")
    other = replace(target, machine=replace(target.machine, costs=FITTED))
    request = request_of(matmul("4x8:8x16"))
    assert _key(request, target, None) != _key(request, other, None)
    config = "given"
    assert _key(request, target, config) == _key(request, other, config)
