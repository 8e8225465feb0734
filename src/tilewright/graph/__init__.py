"""Graphs: kernels whose computes are over whole tensors, as front ends build them, and the
programs that come of them.

In reading order: `tensor` (values with a shape: views of buffers), `builder` (what collects a
kernel's statements), `operands` (what a value loads, as a compute's operands), `replacing`
(buffers in place of others), `views` (reshapes, transposes, slices, pads: no computes),
`elementwise`, `contractions`, `convolution`, `reductions`, `windows` (families of ops, each as the
computes that it is), `indexing` (gathers, scatters), `sampling` (elements between elements),
`control` (loops and branches that depend on data), `nests` (sorts, solvers), `fourier`,
`random_bits`, `sharing` (values too long to write out), `library` (ops of the library as part of a
graph), `functions` (scalar functions that the IR has no operator for).

Then `passes` (what makes a graph simpler), `preparing` (what is made of constant arguments, apart
from the rest), `graph` (what front ends give), `cutting` (a graph as steps of small kernels;
`canonical`: what these are called; `in_place`: results in the place of operands; `stored`: kept on
disk), `parts` (the kernels, compiled; `workers`, `worker`: by processes side by side; `reporting`:
how far that is), `memory` (where what they leave to each other lies), `program` (what a user
calls).
"""
