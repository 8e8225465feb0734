"""Transforms of reductions and scans.

Partial results: `rfactor` (in parts of neighbours, in lanes), with `private_parts` and
`partial_results`; `divide_scan`, `stream_k` (in even shares of workgroups). Others: `carry` (a
scan's state in registers), `factor_out` (a factor applied to sums), `in_parts` (several
computes a part of a dim at a time) and `online` (the same with exponentials relative to a running
maximum, which `running` keeps), with `parts`; `divide_late` (quotients of sums), `compare_bits`
(minimum and maximum of floats by their bits), `flush_powers` (exponentials that are no normal
numbers).
"""
