"""Measurements, invented: the peaks of a machine, and a row of a benchmark."""

from tilewright.bench.benchmark import Row
from tilewright.measure.peaks import Peaks

PEAKS = Peaks(
    1,
    {"f32": 100.0, "bf16": 200.0, "int8": 400.0},
    {"L1": 200.0, "L2": 100.0, "L3": 50.0, "DRAM": 20.0},
    {"L1": 2**15, "L2": 2**20, "L3": 2**25},
)

ROW = Row(
    case="conv --dt=f32 ic3",
    name="first",
    ms=2.0,
    best_ms=1.9,
    gflops=50.0,
    gbytes_per_second=1.0,
    peak_percent=50.0,
    level="",
    peer="oneDNN",
    peer_ms=4.0,
    ratio=2.0,
    other_peers={"torch.mm": 5.0},
    flops=100_000_000,
    bytes=2_000_000,
)
