"""Tuning: what was tried, and how long it took.

In reading order: `database` (rows in a file, written by many processes), `exchange` (rows as JSON,
in two forms), `nearest` (what rows of other sizes are compared by), `transfer` (configs of these to
begin with), `subject` (what is tuned, as a search sees it), `kernels` (ops and kernels as such),
`launches` and `launch_subject` (launches of kernels in Python as such), `strategies` (what is tried
next), `evolution` and `learning` (of these), `processes` and `worker` (where that may crash or
hang) with `marks` (what they say before an answer), `trial` (one point, built, checked, timed),
`search` (what is tried of a subject, and kept), `budget`, `campaign` (many searches), `workers`
(those of a scheduler, which try points on other machines), `subjects` (those of what somebody
names), `session` (one run).

And of what is kept: `trials` (rows by kernel and place), `charts` and `report` (a page of these),
`replay` (winners, measured again).
"""
