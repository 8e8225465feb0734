"""Tuning: what was tried, and how long it took.

In reading order: `database` (rows in a file, written by many processes), `exchange` (rows as JSON,
in two forms), `nearest` (what rows of other sizes are compared by), `transfer` (configs of these to
begin with), `subject` (what is tuned, as a search sees it), `kernels` (ops and kernels as such).
"""
