"""Machines, as data.

In reading order: `instruction` (what a machine instruction computes, and on which forms of memory),
`machine` (features, registers, memory levels), then one file per family: `x86`.
"""
