"""The passes over graphs in their order."""

from __future__ import annotations

from tilewright.graph.passes.channels_last import channels_last
from tilewright.graph.passes.drop_dead import drop_dead
from tilewright.graph.passes.fold_constants import fold_constants
from tilewright.graph.passes.fold_scales import fold_scales
from tilewright.graph.passes.forward_views import forward_views
from tilewright.graph.passes.integer_products import integer_products
from tilewright.graph.passes.packed_nibbles import pack_nibbles
from tilewright.graph.passes.rewrite_values import rewrite_values
from tilewright.graph.passes.share_values import share_values
from tilewright.graph.passes.tidy import tidy
from tilewright.ir.stmt import Kernel
from tilewright.passes.pipeline import Observer, Pass, run


def _with_scales(kernel: Kernel) -> Kernel:
    scaled = fold_scales(kernel)
    return kernel if scaled is kernel else drop_dead(fold_constants(scaled))


PASSES: tuple[Pass, ...] = (
    Pass("tidy", tidy),
    Pass("integers", integer_products),
    Pass("constants", fold_constants),
    Pass("views", forward_views),
    Pass("algebra", rewrite_values),
    Pass("shared", share_values),
    Pass("live", drop_dead),
    Pass("scales", _with_scales),
    Pass("nibbles", pack_nibbles),
    Pass("layouts", channels_last),
)


def optimized(kernel: Kernel, observer: Observer | None = None, check: bool = False) -> Kernel:
    """``kernel`` after all passes; ``observer`` sees each, ``check`` verifies what each makes."""
    return run(kernel, PASSES, observer, check)
