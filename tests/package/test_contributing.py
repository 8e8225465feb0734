"""The diffs in CONTRIBUTING apply to the source, and what they add computes what it should."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from checkout import ROOT

# What is run on the changed source, by a word of the diff that it belongs to.
USES = {
    "FlipProblem": """
import sys
import numpy as np
import tilewright as tw
from tilewright.cli import main
from tilewright.ops.library import op_of
from tilewright.problems import parse
made = tw.compile(op_of(parse("flip", "3x5x7"), "fwd", "f32"), "x86")
x = np.arange(105, dtype=np.float32).reshape(3, 5, 7)
assert np.array_equal(made(x), x[..., ::-1])
sys.argv = ["tilewright", "verify", "flip", "--random", "3"]
try:
    main()
except SystemExit as end:
    assert not end.code
""",
    "isru": """
import numpy as np
import tilewright as tw
x = np.linspace(-9, 9, 132, dtype=np.float32).reshape(4, 33)
for target in ("interpreter", "x86"):
    made = tw.compile(tw.elementwise("4x33", "isru", alpha=2.0), target)
    np.testing.assert_allclose(made(x), x / np.sqrt(1 + 2 * x * x), 1e-6)
""",
    "FillingConfig": """
import numpy as np
import tilewright as tw
kernel = tw.parse_kernel('''
kernel places(out y: s32[37, 128]):
  compute fill(i in 37, j in 128):
    y[i, j] = s32(i * 128 + j)
''')
made = tw.compile(kernel, "x86:avx2")
assert repr(made.config) == "FillingConfig(vector=32)"
assert tw.compile(kernel, "x86:avx2", config="vector=8").config.vector == 8
for each in (tw.compile(kernel, "x86"), tw.compile(made.schedule.kernel, "interpreter")):
    assert (each() == np.arange(37 * 128).reshape(37, 128)).all()
""",
    "vpdpwssd": """
import numpy as np
import tilewright as tw
kernel = tw.parse_kernel('''
kernel product(in a: s16[32, 64], in b: s16[64, 48], out c: s32[32, 48]):
  compute start(m in 32, n in 48):
    c[m, n] = s32(0)
  compute sums(m in 32, n in 48, k in 64):
    c[m, n] add= s32(a[m, k]) * s32(b[k, n])
''')
made = tw.compile(kernel, "x86:avx512_vnni")
assert "vpdpwssd" in made.source("asm"), made.config
rng = np.random.default_rng(0)
a, b = (rng.integers(-99, 99, s).astype(np.int16) for s in ((32, 64), (64, 48)))
found = tw.compile(made.schedule.kernel, "interpreter")(a=a, b=b)
assert (found == a.astype(np.int32) @ b.astype(np.int32)).all()
""",
}


def diffs() -> list[str]:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return re.findall(r"^```diff\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def apply(diff: str, root: Path) -> None:
    """Applies hunks by their lines: what they change has to stand there once."""
    _, *parts = re.split(r"^--- a/.*\n\+\+\+ b/", diff, flags=re.MULTILINE)
    assert parts
    for part in parts:
        name, *hunks = re.split(r"\n@@.*", part)
        assert hunks
        path = root / name
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for hunk in hunks:
            lines = hunk.strip("\n").split("\n")
            old = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
            new = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-"))
            assert not old or text.count(old) == 1, f"{name} has changed: mend CONTRIBUTING.md"
            text = text.replace(old, new) if old else new
        path.write_text(text, encoding="utf-8")


def test_each_diff_has_a_use() -> None:
    assert [sum(word in diff for diff in diffs()) for word in USES] == [1] * len(USES)
    assert len(diffs()) == len(USES)


@pytest.mark.parametrize("word", USES)
def test_what_a_diff_adds_works(word: str, tmp_path: Path) -> None:
    (diff,) = (candidate for candidate in diffs() if word in candidate)
    shutil.copytree(ROOT / "src", tmp_path / "src")
    apply(diff, tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    environment |= {"TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    use = (
        f"import tilewright\nassert tilewright.__file__.startswith({str(tmp_path)!r})\n{USES[word]}"
    )
    ended = subprocess.run(
        [sys.executable, "-c", use], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
