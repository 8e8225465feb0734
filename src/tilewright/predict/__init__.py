"""How long a scheduled kernel takes on a machine, from its IR alone.

In reading order: `nest` (loops and steps with numbers for their extents), `kinds` (what operators
and instructions take), `steps` (the operations and accesses of one step), `lines` (all steps with
the loops around them, and the private buffers that registers hold), `bodies` (what straight-line
code takes an iteration), `footprints` (memory that loops reach), `traffic` (lines that move between
the levels of memory), `work` (all of a kernel as numbers), `time` (seconds, by the costs of a
machine), `fitting` (costs from measurements), `kept` (those that were fitted on this processor),
`passing` (what it costs roughly that kernels are apart).
"""
