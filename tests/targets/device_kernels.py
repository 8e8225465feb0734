"""Kernels in IR text that several devices are tried on."""

from __future__ import annotations

# A transpose by tiles in workgroup memory.
TURN = """kernel turn(
    in src: f32[64, 48],
    out dst: f32[48, 64],
):
  grid for by in 4:
    grid for bx in 3:
      alloc tile: f32[16, 16] workgroup
      workgroup for y in 16:
        lane for x in 16:
          tile[y, x] = src[by * 16 + y, bx * 16 + x]
          barrier()
          dst[bx * 16 + y, by * 16 + x] = tile[x, y]
"""
