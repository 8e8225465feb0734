"""A kernel for programs without Python: its stages, a header for C, an object file."""

import tempfile
from pathlib import Path

import tilewright as tw

kernel = tw.compile(tw.matmul("16x32:32x24"), target="x86", threads=1)
for name, stage in kernel.stages.items():
    print(f"{name}: {len(str(stage).splitlines())} lines")
print(kernel.cost())

with tempfile.TemporaryDirectory() as folder:
    kernel.export(Path(folder), "product")
    files = sorted(path.name for path in Path(folder).iterdir())
    print(files)
    print((Path(folder) / "product.h").read_text())
assert "product.h" in files
