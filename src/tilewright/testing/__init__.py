"""What tests of the compiler need beyond the compiler.

`random_ir`: random expressions and kernels, well-formed by construction.
"""
