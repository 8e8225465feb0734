"""What is data goes to other processes and is copied; code says why it does not."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import ArgumentError, ParseError, Span, UnsupportedError
from tilewright.ir.printer import to_text
from tilewright.ir.verify import verify

ROWS = """
kernel rows(n: s64 in 1..64, a: f32, in x: f32[n, 8], out y: f32[n]):
  compute zero(i in n):
    y[i] = 0.0
  compute sum(i in n, j in 8):
    v = x[i, j]
    y[i] add= a * select(j < 5, v, -v)
"""
OPS = {
    "conv": tw.convolution("mb1ic3ih5oc4kh3ph1", epilogue=[tw.bias(), tw.relu()]),
    "matmul": tw.matmul("4x5:5x6", dtype="bf16"),
    "softmax": tw.softmax("4x9"),
    "gather": tw.gather("10x4:5"),
}


def pickled(what: Any) -> Any:
    return pickle.loads(pickle.dumps(what))


def compiled(what: Any, **arrays: Any) -> Any:
    return tw.compile(what, "x86", threads=1)(**arrays)


def test_kernels() -> None:
    kernel = tw.parse_kernel(ROWS)
    x = np.ones((2, 8), np.float32)
    assert compiled(kernel, x=x, a=3.0).tolist() == [6, 6]
    for other in (pickled(kernel), copy.deepcopy(kernel), copy.copy(kernel)):
        verify(other)
        assert to_text(other) == to_text(kernel)
        assert compiled(other, x=x, a=3.0).tolist() == [6, 6]


def test_stages_and_schedules() -> None:
    result = tw.compile(OPS["conv"], "x86:avx2", threads=1)
    for stage in result.stages.values():
        again = pickled(stage)
        verify(again)
        assert to_text(again) == to_text(stage)
    assert pickled(result.config) == result.config


@pytest.mark.parametrize("name", OPS)
def test_ops(name: str) -> None:
    op = OPS[name]
    for other in (pickled(op), copy.deepcopy(op)):
        assert repr(other) == repr(op)
        assert to_text(other.resolved().kernel()) == to_text(op.resolved().kernel())


def test_another_process_compiles_what_it_is_sent() -> None:
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        result = pool.submit(compiled, tw.parse_kernel(ROWS), x=x, a=2.0).result()
        refused = pool.submit(compiled, tw.parse_kernel(ROWS), x=x[:, 1:], a=2.0).exception()
    assert result.tolist() == [2 * (10 - 18), 2 * (50 - 42)]
    assert isinstance(refused, ArgumentError)
    assert str(refused).startswith("x has shape (2, 7), expected (2, 8)\n  where: parameter x")


def test_errors_keep_what_they_say() -> None:
    text = "kernel k(:"
    error = ParseError("no", where=Span(text, 9, 10), why="because", cure="do")
    again = pickled(error)
    assert type(again) is ParseError and str(again) == str(error)


def test_a_compiled_kernel_is_shared_by_copies_and_not_pickled() -> None:
    kernel = tw.compile(OPS["softmax"], "x86", threads=1)
    assert copy.deepcopy([kernel])[0] is kernel and copy.copy(kernel) is kernel
    with pytest.raises(UnsupportedError, match="compiled kernel cannot be pickled"):
        pickle.dumps(kernel)
