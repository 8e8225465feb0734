"""What builds each ATen op, a file for each family.

In reading order: `promotion` (PyTorch's rules for types and shapes), `arithmetic`, `functions`,
`comparisons`, `conversions` (elementwise ops), `shapes` (views), `creation`, `products` (products
of matrices and convolutions), `sums` (reductions), `norms`, `windows` (pooling), `places` (gathers
and scatters), `gradients` (what only backward graphs have). Importing this fills the table.
"""
