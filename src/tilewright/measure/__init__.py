"""Timing that holds up on a machine that others use, too.

In reading order: `host` (the clock, and the load of the machine), `rounds` (the sides of a
comparison in turn, until their times are stable or time is up), `verdict` (reasons why a comparison
is noisy), `loops` and `peaks` (the machine's peak rates), `stamp` (date and machine, at the head of
a file of figures).
"""
