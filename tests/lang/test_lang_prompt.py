"""Kernels that are typed at Python's own prompt."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pty = pytest.importorskip("pty", reason="there are no terminals of one's own here")

TYPED = """\
import numpy as np, tilewright as tw
@tw.function
def twice(x):
    return x + x

@tw.kernel
def k(x: tw.array("f32", 1)):
    i = tw.global_id(0)
    x[i] = twice(x[i])

x = np.ones(3, np.float32)
k.launch(3, x)
@tw.kernel
def k(x: tw.array("f32", 1)):
    x[tw.global_id(0)] += 5.0

k.launch(3, x, target="interpreter")
print("leaves", x.tolist())
@tw.kernel
def wrong(x: tw.array("f32", 1)):
    x[0] = x.nothing

wrong.over()
exit()
"""


def test_what_is_typed_at_the_prompt(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    variables = {**os.environ, "HOME": str(tmp_path), "TERM": "dumb"}
    variables.pop("PYTHONSTARTUP", None)
    command = [sys.executable, "-q", "-i"]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=variables, close_fds=True
    ) as process:
        os.close(theirs)
        os.write(ours, TYPED.encode())
        shown = b""
        while True:
            try:
                some = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not some:
                break
            shown += some
        process.wait(timeout=60)
    os.close(ours)
    text = shown.decode().replace("\r\n", "\n")
    assert "leaves [7.0, 7.0, 7.0]" in text, text
    assert "the array x has no attribute nothing\n  at <stdin>:3:12:\n" in text, text
