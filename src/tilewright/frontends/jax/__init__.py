"""JAX functions on our targets: `jit` compiles what JAX's own ``jit`` lowers to StableHLO.

`jitted` has the function that users call, `kernels` what makes kernels in Python functions of JAX.
"""

from tilewright.frontends.jax.jitted import Jitted, jit
from tilewright.frontends.jax.kernels import callback

__all__ = ["Jitted", "callback", "jit"]
