"""Compiled kernels in memory, on disk, and as files for programs without Python."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from compiled import check, inputs, packed, small
from tilewright.engine import compile
from tilewright.engine.disk_cache import decode, encode
from tilewright.errors import ArgumentError


def entries(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_memory_and_disk(own_cache: Path) -> None:
    first = tw.compile(small(), threads=1)
    assert not first.from_cache
    again = tw.compile(small(), threads=2)
    assert again.from_cache and again.code is first.code and again.threads == 2
    assert len(entries(own_cache)) == 1
    compile.forget()
    from_disk = tw.compile(small(), threads=1)
    assert from_disk.from_cache and from_disk.code is not first.code
    assert from_disk.config == first.config
    assert from_disk.code.binary == first.code.binary
    assert from_disk.source("llvm") == first.source("llvm")
    check(from_disk)
    arrays = packed(first, inputs(first))
    np.testing.assert_array_equal(from_disk(**arrays), first(**arrays))


def test_what_makes_another_kernel(own_cache: Path) -> None:
    first = tw.compile(small(), threads=1)
    for other in (
        tw.compile(small(dtype="bf16"), threads=1),
        tw.compile(small(), target="x86:sse42", threads=1),
        tw.compile(small(), threads=1, config="ElementwiseConfig(vector=4)"),
        tw.compile(tw.convolution("mb1ic8ih6oc32kh3ph1", src="nhwc", dst="nhwc"), threads=1),
    ):
        assert not other.from_cache and other.code is not first.code
    assert len(entries(own_cache)) == 5


def test_without_a_disk_cache(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "0")
    check(tw.compile(small(), threads=1))
    assert tw.compile(small(), threads=1).from_cache
    compile.forget()
    assert not tw.compile(small(), threads=1).from_cache
    assert not entries(own_cache)


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "text"])
def test_a_damaged_entry_is_compiled_again(own_cache: Path, damage: str) -> None:
    tw.compile(small(), threads=1)
    (path,) = entries(own_cache)
    whole = path.read_bytes()
    middle = len(whole) // 2
    path.write_bytes(
        {
            "cut": whole[:-9],
            "changed": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
            "empty": b"",
            "text": b"no kernel",
        }[damage]
    )
    compile.forget()
    kernel = tw.compile(small(), threads=1)
    assert not kernel.from_cache
    check(kernel)
    assert path.read_bytes() == whole
    compile.forget()
    assert tw.compile(small(), threads=1).from_cache


def _foreign(meta: dict[str, Any], payload: bytes, what: str) -> tuple[dict[str, Any], bytes]:
    parts = meta["parts"]
    match what:
        case "other metadata":
            return {"hello": "world"}, payload
        case "no parts":
            return meta | {"parts": {}}, payload
        case "a list of parts":
            return meta | {"parts": [1, 2]}, payload
        case "no config":
            return meta | {"config": "exit()"}, payload
        case "another entry":
            return meta | {
                "parts": {name: p | {"entry": "f"} for name, p in parts.items()}
            }, payload
        case "places beyond the end":
            beyond = {name: p | {"start": 10**9} for name, p in parts.items()}
            return meta | {"parts": beyond}, payload
        case "numbers as texts":
            return meta | {
                "parts": {name: p | {"start": "0"} for name, p in parts.items()}
            }, payload
        case _:
            return meta, bytes(len(payload))


@pytest.mark.parametrize(
    "what",
    [
        "other metadata",
        "no parts",
        "a list of parts",
        "no config",
        "another entry",
        "places beyond the end",
        "numbers as texts",
        "no code",
    ],
)
def test_a_foreign_entry_is_compiled_again(own_cache: Path, what: str) -> None:
    """The checksum is right, but the content is not ours."""
    tw.compile(small(), threads=1)
    (path,) = entries(own_cache)
    entry = decode(path.name, path.read_bytes())
    assert entry is not None
    meta, payload = _foreign(entry.meta, entry.payload, what)
    path.write_bytes(b"".join(encode(path.name, payload, meta)))
    compile.forget()
    kernel = tw.compile(small(), threads=1)
    assert not kernel.from_cache
    check(kernel)


def test_an_entry_whose_metadata_is_no_dictionary(own_cache: Path) -> None:
    tw.compile(small(), threads=1)
    (path,) = entries(own_cache)
    for meta in ([1, 2], "text", 3, None):
        path.write_bytes(b"".join(encode(path.name, b"code", meta)))  # type: ignore[arg-type] # on purpose
        compile.forget()
        assert not tw.compile(small(), threads=1).from_cache


_PROCESS = """
import numpy as np
import tilewright as tw
for size in (8, 16, 24):
    kernel = tw.compile(tw.matmul(f"{size}x8:8x32"), threads=2)
    a, b = np.full((size, 8), 2.0, np.float32), np.full((8, 32), 3.0, np.float32)
    assert (kernel(src=a, weights=kernel.pack("weights", b)) == 48).all()
"""


def test_two_processes_at_once(own_cache: Path) -> None:
    running = [subprocess.Popen([sys.executable, "-c", _PROCESS]) for _ in range(2)]
    assert [process.wait() for process in running] == [0, 0]
    assert len(entries(own_cache)) == 3
    assert tw.compile(tw.matmul("8x8:8x32"), threads=1).from_cache


# Files.

_PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include "conv_fwd_b.h"
#include "conv_fwd_b_pack_weights.h"

static void *take(const char *name, size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    FILE *file = fopen(name, "rb");
    for (size_t i = 0; i < bytes; i++) ((char *)memory)[i] = 0;
    if (file) { if (fread(memory, 1, bytes, file) != bytes) exit(2); fclose(file); }
    return memory;
}

/* A stand-in for threads: the parts one after the other. */
static void parallel(void *pool, tw_phase phase, void **args, long long threads) {
    ++*(int *)pool;
    for (long long thread = threads - 1; thread >= 0; thread--) phase(args, thread, threads);
}

int main(int count, char **values) {
    void *packed = take("", atoi(values[1]));
    void *weights[] = {take("weights", 4 * 32 * 8 * 9), packed};
    conv_fwd_b_pack_weights(weights, 0, 0, 1);
    void *args[] = {take("src", 4 * 8 * 36), packed, take("bias", 4 * 32), take("", 4 * 32 * 36)};
    int calls = 0;
    conv_fwd_b(args, atoi(values[2]) > 1 ? parallel : 0, &calls, atoi(values[2]));
    FILE *file = fopen("dst", "wb");
    fwrite(args[3], 4, 32 * 36, file);
    fclose(file);
    return calls == (atoi(values[2]) > 1) ? 0 : 3;
}
"""


def test_export_writes_files(own_cache: Path, tmp_path: Path) -> None:
    folder = tw.compile(small(), threads=1).export(tmp_path / "a" / "b", "conv_fwd_b")
    assert folder == tmp_path / "a" / "b"
    assert sorted(path.name for path in folder.iterdir()) == [
        "conv_fwd_b.h",
        "conv_fwd_b.ll",
        "conv_fwd_b.md",
        "conv_fwd_b.o",
        "conv_fwd_b_example.c",
        "conv_fwd_b_pack_weights.h",
        "conv_fwd_b_pack_weights.o",
    ]
    words = (folder / "conv_fwd_b.md").read_text()
    assert "| 0 | src | in | f32 | (1, 8, 6, 6) | (288, 1, 48, 8) |" in words
    assert "| 1 | weights_packed | in | f32 | (2304,) | (1,) |" in words
    with pytest.raises(ArgumentError, match=r"cannot write to [^$]*choose another directory"):
        tw.compile(small(), threads=1).export(folder / "conv_fwd_b.md")


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("threads", [1, 3])
def test_an_exported_kernel_in_a_program(own_cache: Path, tmp_path: Path, threads: int) -> None:
    # Rows of the image one by one: enough of them for a loop on threads.
    kernel = tw.compile(small(), threads=1, config={"tile": {"oh": 1}})
    folder = kernel.export(tmp_path, "conv_fwd_b")
    arrays = inputs(kernel)
    for name, array in arrays.items():
        (folder / name).write_bytes(
            np.lib.stride_tricks.as_strided(array, (array.size,), (array.itemsize,)).tobytes()
        )
    (folder / "main.c").write_text(_PROGRAM)
    objects = ["conv_fwd_b.o", "conv_fwd_b_pack_weights.o"]
    flags = ["-std=c11", "-Wall", "-Werror", "-O1"]
    subprocess.run(["gcc", *flags, "main.c", *objects, "-lm", "-o", "main"], cwd=folder, check=True)
    weights = kernel.pack("weights", arrays["weights"])
    call = [str(folder / "main"), str(weights.data[0].nbytes), str(threads)]
    subprocess.run(call, cwd=folder, check=True)
    values = np.fromfile(folder / "dst", np.float32).reshape(1, 6, 6, 32).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(values, kernel(**arrays | {"weights": weights}))


def test_ops_whose_arrays_a_schedule_reshapes_come_from_disk(own_cache: Path) -> None:
    op = tw.elementwise("16x8", "relu")
    first = tw.compile(op, threads=1)
    assert next(len(array.buffer.sizes) for array in first.schedule.kernel.arrays) == 1
    compile.forget()
    assert tw.compile(op, threads=1).from_cache
