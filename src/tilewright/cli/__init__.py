"""The command line, ``tilewright COMMAND``: benchdnn's descriptors and knob names.

In reading order: `knobs` (options that several commands share), `completing` (what a shell offers
for them), `verbs` (the options of verify, check, show, build and run), `cases` (what they ask for),
`batch` (files of cases), `kernels` (files of kernels), `steps` (of schedules), `arrays` (of
arrays), `checking` (verify), `check`, `benchmarking` (bench), `inspecting` (show, build, run),
`information` (rules, targets, sets, doctor, cache), `output` (files that they write), `app` (all
commands), `loading` (imports that can be interrupted), `start` (`main`). What compiles is loaded
when a command runs that needs it: help and completion do not wait for it.

Exit codes: 0 fine, 1 a case failed, 2 bad input, 130 interrupted.
"""

from tilewright.cli.start import main

__all__ = ["main"]
