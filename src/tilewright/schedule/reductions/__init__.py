"""Transforms of reductions and scans.

Partial results: `widen_reduction` (in vector lanes), `slice_reduction` and `divide_reduction` (in
parts), `divide_scan`, `stream_k` (in even shares of workgroups), with `partial_results`. Others:
`carry` (a scan's state in registers), `finish` (results completed in registers before they are
stored), `factor_out` (a factor applied to sums), `compare_bits` (minimum and maximum of floats by
their bits).
"""
