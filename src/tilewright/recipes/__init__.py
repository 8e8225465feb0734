"""Recipes: how to schedule a class of op on a class of machine.

In reading order: `roles` (which dims are M, N, K and batch), `config` (what can be chosen),
`contraction` (convolution and matmul on a CPU), `streaming` (everything else on a CPU), `choose`
(which recipe an op takes).
"""
