"""The reference interpreter as a target: kernels run unscheduled, slowly, and their faults are
errors.

In reading order: `target` (the binary is the kernel's text), `program` (runs it on memory).
"""
