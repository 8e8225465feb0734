"""The passes over graphs in their order."""

from __future__ import annotations

from tilewright.graph.passes.channels_last import channels_last
from tilewright.graph.passes.drop_dead import drop_dead
from tilewright.graph.passes.fold_constants import fold_constants
from tilewright.graph.passes.fold_scales import fold_scales
from tilewright.graph.passes.forward_views import forward_views
from tilewright.graph.passes.integer_products import integer_products
from tilewright.graph.passes.join_products import join_products
from tilewright.graph.passes.packed_nibbles import pack_nibbles
from tilewright.graph.passes.rewrite_values import rewrite_values
from tilewright.graph.passes.share_values import share_values
from tilewright.graph.passes.tidy import tidy
from tilewright.graph.predicting import Deciding
from tilewright.ir.stmt import Kernel
from tilewright.passes.pipeline import Observer, Pass, run


def _with_scales(kernel: Kernel) -> Kernel:
    scaled = fold_scales(kernel)
    return kernel if scaled is kernel else drop_dead(fold_constants(scaled))


def passes(deciding: Deciding | None = None) -> tuple[Pass, ...]:
    """The passes; those that would decide by predicted times go by rules without ``deciding``."""

    def joined(kernel: Kernel) -> Kernel:
        result = join_products(kernel, deciding)
        return kernel if result is kernel else drop_dead(fold_constants(result))

    return (
        Pass("tidy", tidy),
        Pass("integers", integer_products),
        Pass("constants", fold_constants),
        Pass("views", forward_views),
        Pass("algebra", rewrite_values),
        Pass("shared", share_values),
        Pass("live", drop_dead),
        Pass("scales", _with_scales),
        Pass("joined", joined),
        Pass("nibbles", pack_nibbles),
        Pass("layouts", lambda kernel: channels_last(kernel, deciding)),
    )


PASSES = passes()


def optimized(
    kernel: Kernel,
    observer: Observer | None = None,
    check: bool = False,
    deciding: Deciding | None = None,
) -> Kernel:
    """``kernel`` after all `passes`; ``observer`` sees each, ``check`` verifies what each makes."""
    return run(kernel, passes(deciding), observer, check)
