"""The command line, ``tilewright COMMAND``: benchdnn's descriptors and knob names.

In reading order: `knobs` (options that several commands share), `completing` (completion of words
in a shell), `verbs` (the options of verify, check, show, build, run and profile), `cases` (those of
a command), `batch` (files of cases), `benchdnn` and `benchdnn_layers` (words of
benchdnn's), `kernels` (files of kernels), `arrays` (of arrays), `checking` (verify), `check`,
`benchmarking` (bench), `inspecting` (show, build, run), `graph_files`, `graphs`,
`building`, `graph_timing` and `profiling` (the same for graphs), `databases` (db), `tuning`,
`tuned_files` and `replaying` (tune), `information` (rules, targets, sets, doctor, cache), `files`
(those that they read and write), `app` (all commands), `loading` (imports that can be interrupted),
`start` (`main`). A command loads the compiler only when it runs: help and completion do not wait
for it.

Exit codes: 0 fine, 1 a case failed, 2 bad input, 130 interrupted.
"""

from tilewright.cli.start import main

__all__ = ["main"]
