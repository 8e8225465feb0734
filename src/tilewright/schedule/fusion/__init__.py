"""Kernels that run one after the other, as one kernel.

In reading order: `members` (what is fused, as data), `text` (the same as text), `parameters`
(identical arguments are one; `names`), `launched` (ranges: nests of work-items as one nest),
`owners` (proofs: who touches an element; `widened`), `promotion` (memory that a work-item or a
workgroup has for itself), `straightened` (code as if it were written as one),
`raised` (work-items as computes), `joined` (all of it).
"""
