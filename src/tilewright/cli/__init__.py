"""The command line, ``tilewright COMMAND``: benchdnn's descriptors and knob names.

In reading order: `knobs` (options that several commands share, and the cases that they ask for),
`batch` (files of them), `kernels` (files of kernels), `steps` (of schedules), `arrays` (of arrays),
`checking` (verify), `check`, `benchmarking` (bench), `inspecting` (show, build, run), `information`
(rules, targets, sets, doctor, cache), `output` (files that they write), `app` (all commands),
`start` (`main`, which loads them).

Exit codes: 0 fine, 1 a case failed, 2 bad input, 130 interrupted.
"""

from tilewright.cli.start import main

__all__ = ["main"]
