"""Whole tensors: what front ends and the library say ops with, as kernels of computes on these.

In reading order: `places` (variables for them), `names`, `tensor` (values with a shape, and the
builder of a kernel), `operands` (what a value loads, as a compute's operands), `replacing` (buffers
in place of others), `known` (sizes as data), `views` (reshapes, transposes, slices, pads: no
computes), `elementwise`, `contractions`, `convolution`, `reductions`, `windows` (families of ops,
as the computes that they are), `indexing` (gathers, scatters), `control` (loops and branches that
depend on data), `nests` (sorts, solvers), `fourier`, `random_bits`, `einsum`, `kernels` (any kernel
as statements beside others), `sharing` (values too long to write out). `nn` has the ops of neural
networks on these.
"""
