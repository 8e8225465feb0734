"""The reference interpreter: runs any stage of a kernel on numpy, and reports its faults.

In reading order: `run` (statements), `computes` (structured ops; `combining`: reductions), `values`
(expressions), `lanes` (iterations in lockstep, and the text of faults), `lockstep` (which loops may
run so), `memory` (buffers, and the checks of accesses; `storage`: one buffer's; `registers`: those
of lanes; `packing`: arrays as flat memory), `races` (accesses without an order), `groups`
(workgroups, their work-items and barriers), `calls` (functions, by their effects), `copies`
(asynchronous ones of work-items), `fragments` (operands of matrix instructions), `findings`
(faults, raised or collected), `profile` (bank conflicts and coalescing).

Subgroups that run different code: `specialized`, with `coroutines` (they take turns), `clocks`
(vector clocks, which order their accesses), `mbarriers`, `barriers` (barriers) and `transfers`
(asynchronous ops under way).
"""

from tilewright.interpret.findings import FaultKind, Finding, Findings
from tilewright.interpret.packing import pack, unpack
from tilewright.interpret.profile import Line, Profile
from tilewright.interpret.run import run

__all__ = ["FaultKind", "Finding", "Findings", "Line", "Profile", "pack", "run", "unpack"]
