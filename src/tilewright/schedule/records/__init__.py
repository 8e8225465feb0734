"""What makes a function a transform, and what is remembered of its use.

In reading order: `provenance` and `transform` (a listed function, whose result knows where it came
from), `asks` (checks of arguments), `handles` (names of what a step gave), `record` (steps as data,
printed as Python), `arguments`, `reading` and `replaying` (a record read back and carried out).
"""
