"""JAX functions on our targets: `jit` compiles what JAX's own ``jit`` lowers to StableHLO.

`jitted` has the function that users call.
"""

from tilewright.frontends.jax.jitted import Jitted, jit

__all__ = ["Jitted", "jit"]
