"""The reference interpreter: runs any stage of a kernel on numpy, and finds what it does wrong.

In reading order: `run` (statements), `computes` (structured ops), `values` (expressions), `lanes`
(iterations in lockstep, and the text of faults), `lockstep` (which loops may run so), `memory`
(flat memory and its checks), `races` (parallel loops).
"""

from tilewright.interpret.memory import pack, unpack
from tilewright.interpret.run import run

__all__ = ["pack", "run", "unpack"]
