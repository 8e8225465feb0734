"""All operations that are translated, by name: families in the order of their files."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.frontends.stablehlo import (
    contraction_operations,
    control_operations,
    elementwise_operations,
    index_operations,
    nest_operations,
    normalization_operations,
    reduction_operations,
    view_operations,
)
from tilewright.frontends.stablehlo.translation import Handler

HANDLERS: Mapping[str, Handler] = {
    **elementwise_operations.HANDLERS,
    **view_operations.HANDLERS,
    **reduction_operations.HANDLERS,
    **contraction_operations.HANDLERS,
    **index_operations.HANDLERS,
    **nest_operations.HANDLERS,
    **normalization_operations.HANDLERS,
    **control_operations.HANDLERS,
}
