"""The table of what is right of other frameworks' programs."""

from __future__ import annotations

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import graph_coverage as coverage
from test_stablehlo_files import BAD, FOREIGN, GOOD


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of StableHLO: of two rows of the table, each with what is right and what is not."""
    for name, text in (
        *((f"{n}.mlir", GOOD) for n in range(3)),
        ("dynamic/foreign.mlir", FOREIGN),
        ("dynamic/good.mlir", GOOD + "// -----\n" + GOOD.replace("main", "other")),
    ):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "data"


def run(folder: Path, *words: str) -> int:
    asked = ["stablehlo", "--stablehlo", str(folder), "--target", "interpreter", *words]
    return coverage.main(asked)


def test_a_table_and_its_figures(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the dynamic files too few are right: half of them."""
    figures = folder.parent / "figures.json"
    assert run(folder, "--json", str(figures)) == 1
    said, *table = capsys.readouterr().out.splitlines()
    assert said.startswith("refused ") and "foreign.mlir: stablehlo.replica_id" in said
    assert table[0].split(" | ")[1:5] == ["cases", "right", "wrong", "refused"]
    assert table[2:] == [
        "| StableHLO, static | 3 | 3 | 0 | 0 | 100.0% | 97% |",
        "| StableHLO, dynamic, quantized, its interpreter's | 2 | 1 | 0 | 1 | 50.0% | 85% |",
    ]
    data = json.loads(figures.read_text(encoding="utf-8"))
    assert data["rows"]["StableHLO, dynamic, quantized, its interpreter's"] == {
        "right": 1,
        "refused": 1,
    }
    assert [case["status"] for case in data["not right"]] == ["refused"]


def test_nothing_may_be_wrong(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "--match", "0.mlir") == 0
    for number in range(3, 99):
        (folder / f"{number}.mlir").write_text(GOOD, encoding="utf-8")
    for text in (BAD, "func.func @main("):  # wrong; not read
        (folder / "99.mlir").write_text(text, encoding="utf-8")
        capsys.readouterr()
        assert run(folder, "--match", f"{folder.name}/") == 1
        assert "| StableHLO, static | 100 | 99 | 1 | 0 | 99.0% | 97% |" in capsys.readouterr().out


def test_a_defect_does_not_end_the_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(path: Path, target: str) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(coverage, "worst_of", broken)
    assert run(folder, "--part", "0/2") == 1
    assert capsys.readouterr().out.count("broken   ") == 3


def test_a_process_that_ends_is_one_case(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = coverage.worst_of

    def ends(path: Path, target: str) -> object:
        return os._exit(3) if path.name == "1.mlir" else right(path, target)

    monkeypatch.setattr(coverage, "worst_of", ends)
    monkeypatch.setattr(coverage, "_START", "fork")
    assert run(folder, "--jobs", "2", "--match", f"{folder.name}/") == 1
    said = capsys.readouterr().out
    assert f"died     {folder / '1.mlir'}: its process ended" in said
    assert "| StableHLO, static | 3 | 2 | 1 | 0 |" in said


def test_a_tenth_is_drawn(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3, 40):
        (folder / f"{number}.mlir").write_text(GOOD, encoding="utf-8")
    assert run(folder, "--match", f"{folder.name}/", "--tenth", "--seed", "1") == 0
    assert "| StableHLO, static | 4 | 4 |" in capsys.readouterr().out


def test_samples_of_operators_find_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("expecttest")
    samples = import_module("torch_op_db")
    table = import_module("tilewright.frontends.torch.table").TABLE
    assert len(samples.cases()) > 2000
    assert samples.judged("sin, bfloat16") == samples.judged("sin, gradients") == ("right", "")
    assert samples.judged("nn.functional.dropout, float32")[0] == "refused"
    none = "aten.special_airy_ai.default: there is no such op in the table"
    assert samples.judged("special.airy_ai, float32") == ("refused", none)
    assert samples.planned("special.airy_ai, float32") == ("refused", none)
    assert samples.planned("sin, gradients") == ("right", "")
    monkeypatch.setitem(table, "sin.default", table["cos.default"])
    for kind in ("float32", "bfloat16", "int64"):
        status, why = samples.judged(f"sin, {kind}")
        assert status == "wrong" and "not" in why

    right = table["tanh.default"]

    def rounded(at: Any, x: Any) -> Any:
        narrow = import_module("tilewright.dtypes").f16
        convert = import_module("tilewright.tensor.elementwise").convert
        return right(at, convert(convert(x, narrow), x.dtype))

    monkeypatch.setitem(table, "tanh.default", rounded)
    assert samples.judged("tanh, float32")[0] == "wrong"


@pytest.mark.sweep
def test_processes_judge_alike(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = []
    for jobs in ("1", "2"):
        run(folder, "--jobs", jobs)
        tables.append(capsys.readouterr().out)
    assert tables[0] == tables[1]


def test_what_cannot_run_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert coverage.main(["stablehlo"]) == 1
    assert "stablehlo is left out: its folder (--stablehlo) is not here" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        coverage.main(["tensorflow"])
    assert "there is no suite 'tensorflow'" in capsys.readouterr().err
