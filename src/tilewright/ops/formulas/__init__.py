"""How the ops of the library are said by `tensor`: front ends say the same formulas.

In reading order: `call` (what a formula is given, and the kernel that comes of it), `rows`
(softmax, logarithms of sums, places of extremes, scans), `norms`, `moves`, `images`, `recurrent`,
and the `table` of all.
"""
