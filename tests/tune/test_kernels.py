"""Ops and kernels as subjects of a search."""

from __future__ import annotations

import pickle
from dataclasses import asdict, replace
from random import Random

import pytest

import tilewright as tw
from tilewright.engine.winners import Asked
from tilewright.errors import ScheduleError, UnsupportedError
from tilewright.recipes.config import ContractionConfig
from tilewright.tune.kernels import KernelSubject

SCALE = tw.parse_kernel("""
kernel scale(n: s64 in 1..64, in x: f32[n, 8], out y: f32[n, 8]):
  compute scale(i in n, j in 8):
    y[i, j] = 2.0 * x[i, j]
""")
SUBJECTS = {
    "conv": KernelSubject(tw.convolution("mb1ic8ih6oc8kh3ph1"), words="conv mb1ic8ih6oc8kh3ph1"),
    "gather": KernelSubject(tw.gather("10x4:5")),
    "kernel": KernelSubject(SCALE, numbers={"n": 13}),
}


@pytest.mark.parametrize("name", SUBJECTS)
def test_points_are_built_checked_and_called(name: str) -> None:
    subject = pickle.loads(pickle.dumps(SUBJECTS[name]))
    assert subject == SUBJECTS[name]
    assert hash(subject) == hash(SUBJECTS[name])
    points = subject.points()
    for point in (subject.default(), points.drawn(Random(1))):
        built = subject.build(point)
        assert built.fault(1) is None
        assert built.schedule.startswith("# ")
        call = built.call(1)
        call()
        call()


def test_rows_of_it_are_those_that_the_engine_asks_for() -> None:
    subject = SUBJECTS["conv"]
    kernel = tw.compile(subject.what, threads=1, database="")
    assert asdict(subject.asked) == asdict(Asked.of(kernel.request, kernel.target, 1))
    assert subject.default() == kernel.config
    assert subject.title == subject.problem == "conv mb1ic8ih6oc8kh3ph1"
    assert len(subject.form()[1]) > 0


def test_what_is_wrong_is_said() -> None:
    subject = KernelSubject(tw.matmul("4x8:8x16"))
    other = KernelSubject(tw.matmul("4x8:8x16", epilogue=[tw.relu()]))
    built = subject.build(subject.default())
    built._subject = other  # type: ignore[attr-defined]
    fault = built.fault(1)
    assert fault is not None
    assert "expected 0 within 0" in fault


def test_what_cannot_be_checked_is_refused() -> None:
    subject = KernelSubject(SCALE, numbers={"n": 13})
    built = subject.build(subject.default())
    huge = tw.parse_kernel("""
kernel huge(in x: f32[100000, 100000], out y: f32[100000, 100000]):
  compute copy(i in 100000, j in 100000):
    y[i, j] = x[i, j]
""")
    built._subject = KernelSubject(huge)  # type: ignore[attr-defined]
    with pytest.raises(UnsupportedError, match="too many to verify"):
        built.fault(1)


def test_what_is_not_legal_is_refused() -> None:
    subject = SUBJECTS["conv"]
    default = subject.default()
    assert isinstance(default, ContractionConfig)
    with pytest.raises(ScheduleError, match="is no dim that this may name"):
        subject.build(replace(default, lanes="ic"))
