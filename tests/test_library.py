"""The library's ops: what every record has to hold, against its own answers and PyTorch's."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.bench import catalog
from tilewright.bench.torch_tensors import load_torch
from tilewright.cli.cases import cases_of
from tilewright.cli.knobs import Knobs
from tilewright.dtypes import boolean, f32, f64
from tilewright.errors import ProblemError, UnsupportedError
from tilewright.problems import LIBRARY, Direction, Record
from tilewright.testing.case import Case
from tilewright.testing.expected import expected
from tilewright.testing.inputs import make_inputs
from tilewright.testing.random_problems import random_cases
from tilewright.testing.verify import Status, verify

RECORDS = sorted(LIBRARY)


def _asked(case: Case) -> list[Any]:
    """What the command line makes of the arguments that a case gives."""
    driver, *words = shlex.split(case.arguments())
    texts = dict(w.removeprefix("--").split("=", 1) for w in words if w.startswith("--"))
    descriptors = tuple(w for w in words if not w.startswith("--"))
    return list(cases_of(Knobs(driver, descriptors, texts)))


@pytest.mark.parametrize("driver", RECORDS)
def test_arguments_ask_for_the_case_again(driver: str) -> None:
    for case in random_cases(driver, 20, seed=1):
        assert _asked(case) == [case], case.arguments()
    example = LIBRARY[driver].parse(LIBRARY[driver].example)
    assert LIBRARY[driver].parse(example.descriptor()) == example


def test_the_documents_have_each_driver() -> None:
    page = (Path(__file__).parent.parent / "docs" / "command-line.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    found = {row[0].strip("| `"): row[2].strip("`") for row in rows}
    assert found == {driver: record.example for driver, record in LIBRARY.items()}


@pytest.mark.parametrize("driver", RECORDS)
def test_a_set_ships(driver: str) -> None:
    chosen = catalog.load(driver)
    assert chosen.driver == driver and len(chosen.problems) >= 3
    for problem in chosen.problems:
        assert problem.smallest().shapes.keys() == problem.shapes.keys()


@pytest.mark.parametrize("driver", RECORDS)
def test_compiled_kernels_are_right(driver: str) -> None:
    for case in random_cases(driver, 3, seed=11):
        verdict = verify(case.op(), lambda op: tw.compile(op, threads=1))
        assert verdict.status is Status.PASSED, verdict.line(case.arguments())


@pytest.mark.parametrize("driver", RECORDS)
def test_records_refuse_what_they_do_not_take(driver: str) -> None:
    problem = LIBRARY[driver].parse(LIBRARY[driver].example)
    other = next(each for each in Direction if each not in problem.directions)
    with pytest.raises(UnsupportedError, match="has no direction"):
        Case(problem, direction=other).op()
    with pytest.raises(UnsupportedError, match="takes no bias"):
        Case(problem, bias=f32).op()
    with pytest.raises(UnsupportedError, match="takes no bool"):
        Case(problem, (boolean,) * len(problem.roles)).op()
    with pytest.raises(ProblemError):
        LIBRARY[driver].parse("")


def _plain(driver: str) -> Iterator[tuple[Any, Case]]:
    """Random cases in f64, each with its direction and algorithm."""
    for case in random_cases(driver, 60, seed=3):
        problem = case.problem
        assert isinstance(problem, Record)
        key = case.direction, getattr(problem, "algorithm", "")
        yield key, Case(problem, problem.expanded((f64,)), direction=case.direction)


@pytest.mark.parametrize("driver", RECORDS)
def test_answers_are_those_of_torch(driver: str) -> None:
    torch = load_torch()
    if torch is None:
        pytest.skip("PyTorch is not installed")
    compared = set()
    for key, case in _plain(driver):
        if key in compared:
            continue
        op = case.op()
        problem = op.problem
        assert isinstance(problem, Record)
        inputs = make_inputs(op, exact=False, seed=5)
        given = {name: torch.from_numpy(np.array(array)) for name, array in inputs.items()}
        wanted = expected(op, inputs, exact=False)
        for name in wanted:
            argument = op.argument(name)
            given[name] = torch.zeros(
                argument.shape, dtype=getattr(torch, argument.dtype.numpy_name)
            )
        try:
            made = problem.peer(torch, given, case.direction)()
        except UnsupportedError:
            continue
        for each, tensor in zip(
            wanted.values(), made if isinstance(made, tuple | list) else (made,), strict=False
        ):
            np.testing.assert_allclose(
                tensor.numpy().reshape(np.shape(each.want)), each.want, rtol=1e-9, atol=1e-9
            )
        compared.add(key)
    assert compared or driver in NO_PEER, "PyTorch has none of these"


NO_PEER = ("zeropad", "scatter")


def test_sets_between_groups_have_layouts_with_blocks_of_one_element() -> None:
    """Such a block may have any stride, another block's too."""
    problem = LIBRARY["bnorm"].parse("mb2ic5iw4")
    case = Case(problem, tags=("aBc8b", "any"))
    verdict = verify(case.op(), lambda op: tw.compile(op, threads=1))
    assert verdict.status is Status.PASSED, verdict.reason
