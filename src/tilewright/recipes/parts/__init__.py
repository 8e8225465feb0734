"""The parts of a `WorkgroupConfig`: each a small value that says one thing about the schedule, with
what it may not ask for (``check``) and what it has to do with the predicted time.

In reading order: `product` (what multiplies), `tile` (of workgroups and of what is in them),
`reduction` (in steps and slices), `staging` (how a step's tiles get to shared memory), `order`
(which workgroup takes which tiles), `storing` (how results leave). `asked` is what checks look at,
`work` what costs are counted from, `rates` what kernels attain; `forms` are those of the values.
"""

from tilewright.recipes.parts.order import Order
from tilewright.recipes.parts.product import Product
from tilewright.recipes.parts.reduction import Reduction
from tilewright.recipes.parts.staging import COPY_UNIT, Staging
from tilewright.recipes.parts.storing import Storing
from tilewright.recipes.parts.tile import Tile

__all__ = ["COPY_UNIT", "Order", "Product", "Reduction", "Staging", "Storing", "Tile"]
