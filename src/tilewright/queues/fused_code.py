"""Fused kernels: made once of a list of kernels, and kept in memory and on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tilewright.engine import CompiledKernel, compile_kernel
from tilewright.engine.disk_cache import Entry, content_key, open_disk_cache
from tilewright.engine.generator import generator_identity
from tilewright.engine.signature import Signature
from tilewright.errors import TilewrightError
from tilewright.ir.parser import parse_kernel
from tilewright.ir.stmt import Kernel
from tilewright.ir.verify import verify
from tilewright.newest import Newest
from tilewright.queues.planning import Where
from tilewright.recipes.fusing import BufferReport, Fused, FusionReport, PredictedTimes, fuse
from tilewright.schedule.fusion.members import Fusion, Member, Number
from tilewright.schedule.fusion.text import fusion_text

# A kernel of a list, and what its parameters are in the fused kernel: names, or numbers.
Part = tuple[Kernel, dict[str, str | Number]]


@dataclass
class FusedParts:
    """What became of ``parts``; and its ``codes``, which are compiled when they are asked for."""

    fused: Fused
    parts: Sequence[Part]
    where: Where

    codes: dict[tuple[str, ...], CompiledKernel] = field(default_factory=dict)

    def code(self, constant: tuple[str, ...]) -> CompiledKernel:
        """The code of the fused kernel, which may take the arrays ``constant`` packed. Raises what
        `compile_kernel` does."""
        kernel, target = self.fused.kernel, self.where.target
        assert kernel is not None
        code = self.codes.get(constant)
        if code is None:
            code = compile_kernel(kernel, target.name, self.where.threads, constant=constant)
            if not target.schedules:
                target.lower(kernel)  # faults are reported at their places in the source
            self.codes[constant] = code
        return code

    def fits(self, numbers: Mapping[str, Number]) -> int:
        """How much memory is promoted; -1 where the parts did not become one kernel, or where
        neither ``numbers`` nor an array tells a number that this takes."""
        if self.fused.kernel is None:
            return -1
        signature = Signature(self.fused.kernel.params)
        if not {scalar.name for scalar in signature.scalars} <= {*numbers, *signature.sizes}:
            return -1
        return sum(buffer.promoted is not None for buffer in self.fused.report.buffers.values())


class FusedCode:
    """Fuses the kernels of a queue's lists: those that come again find what was made of them,
    wherever their memory lies; in another process, too."""

    def __init__(self, where: Where) -> None:
        self._where = where
        # With the kernels, so that each `id` stays that one's.
        self._kept: Newest[tuple[Any, ...], FusedParts] = Newest(128)

    def of(
        self, parts: Sequence[Part], promote: Mapping[str, str], barriers: bool, trust: bool
    ) -> FusedParts:
        """What becomes of ``parts``, with the scopes of memory to ``promote``."""
        key = (
            # As text: -0.0 equals 0.0.
            tuple([(id(kernel), repr(arguments)) for kernel, arguments in parts]),
            (*promote.items(), barriers, trust),
        )
        kept = self._kept.get(key)
        if kept is None:
            names = dict.fromkeys(kernel.name for kernel, _ in parts)
            fusion = Fusion(
                tuple(Member(kernel, arguments) for kernel, arguments in parts),
                promote,
                barriers=barriers,
                trust=trust,
                name="_".join(names)[:60],
            )
            kept = self._kept[key] = FusedParts(self._fused(fusion), parts, self._where)
        return kept

    def _fused(self, fusion: Fusion) -> Fused:
        """The fused kernel: of the disk, if it is there."""
        target = self._where.target
        if not target.schedules:
            # It reports faults at places in the source, which text has not.
            return fuse(fusion, require=False)
        key = content_key(
            b"fused kernels",
            *(generator_identity().encode(), target.identity.encode()),
            *(repr(target.machine.costs).encode(), fusion_text(fusion).encode()),
        )
        disk = open_disk_cache()
        entry = disk.get(key)
        read = None if entry is None else _read(entry, fusion)
        if read is not None:
            return read
        fused = fuse(fusion, target.machine, require=False)
        text = "" if fused.kernel is None else str(fused.kernel)
        disk.put(key, text.encode(), {"report": asdict(fused.report)})
        return fused


def _read(entry: Entry, fusion: Fusion) -> Fused | None:
    """What became of ``fusion``; None for an entry that says something else."""
    contents = {d: c for member in fusion.members for d, c in member.kernel.constants.items()}
    try:
        kernel = None
        if entry.payload:
            kernel = parse_kernel(entry.payload.decode())
            used = {param.digest for param in kernel.arrays}
            constants = {digest: value for digest, value in contents.items() if digest in used}
            kernel = replace(kernel, constants=constants)
            verify(kernel)
        return Fused(kernel, _report(entry.meta["report"]))
    except (TilewrightError, LookupError, TypeError, ValueError):
        return None


def _report(meta: dict[str, Any]) -> FusionReport:
    """The report that `asdict` wrote, after a way through JSON."""
    meta["kernels"], meta["barriers"] = tuple(meta["kernels"]), tuple(meta["barriers"])
    meta["buffers"] = {name: BufferReport(**value) for name, value in meta["buffers"].items()}
    times = meta["predicted"]
    if times is not None:
        meta["predicted"] = PredictedTimes(**{**times, "members": tuple(times["members"])})
    return FusionReport(**meta)
