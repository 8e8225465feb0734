"""Graphs: kernels whose computes are over whole tensors, as front ends build them.

In reading order: `tensor` (values with a shape: views of buffers), `builder` (what collects a
kernel's statements), `operands` (what a value loads, as a compute's operands), `replacing`
(buffers in place of others), `views` (reshapes, transposes, slices, pads: no computes),
`elementwise`, `contractions`, `convolution`, `reductions`, `windows` (families of ops, each as the
computes that it is), `library` (ops of the library as part of a graph), `functions` (scalar
functions that the IR has no operator for).
"""
