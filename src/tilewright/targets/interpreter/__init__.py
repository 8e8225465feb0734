"""The reference interpreter as a target: kernels run as they are, slowly, and their faults are
errors.

In reading order: `target` (kernels are not scheduled, their text is the binary), `program` (runs
it on memory).
"""
