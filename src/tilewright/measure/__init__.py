"""Timing that holds up on a machine that others use, too.

In reading order: `host` (the clock, and what else the machine does), `rounds` (the sides of a
comparison in turn, until their times are stable or the time is over), `verdict` (what speaks
against the times: such a comparison is noisy), `peaks` (what the machine can do at most),
`stamp` (what figures in a file begin with).
"""
