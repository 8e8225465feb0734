"""Graphs: kernels whose computes are over whole tensors, as `tensor` makes them for front ends, and
the programs that come of them.

In reading order: `library` (ops of the library as part of a graph), `predicting` (how long parts of
a graph take), `passes` (what makes a graph simpler, or faster by that), `preparing` (what is made
of constant arguments, apart from the rest), `graph` (what front ends give; `opening`: one that is
right for all sizes that calls pass), `fusion_rules` and `fusing` (which statements are one kernel),
`cutting` (a graph as steps of small kernels, `launches`; `canonical`: what these are called;
`numbered`: which numbers they take; `relabels`: copies that steps go without; `in_place`: results
in the place of operands; `stored`: kept on disk), `parts` (the kernels, compiled; `workers`,
`worker`: by processes side by side; `reporting`: how far that is), `memory` (where what they leave
to each other lies), `exporting` (programs as files), `program` (what a user calls), `open_program`
(the same of sizes that calls pass), `compiling` (who makes them).
`boundaries` says why groups are apart, `listing` what a program is in words.
"""
