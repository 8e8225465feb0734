"""What builds each ATen op, a file for each family.

In reading order: `promotion` (PyTorch's rules for types and shapes), `arithmetic`, `functions`,
`conversions` (elementwise ops), `shapes` (views), `creation`, `sums` (reductions and scans),
`products` (products of matrices and convolutions), `attention`, `norms`, `pooling`, `places`
(gathers and scatters), `quantized` (integers that stand for floats, weights of 4 bits),
`resampling`, `sorting`, `complexes` (pairs of parts, Fourier transforms), `gradients` (what only
backward graphs have).
Importing them fills the table.
"""
