"""Whether the promises of a scalar parameter make sense."""

from __future__ import annotations

from tilewright.dtypes import s64
from tilewright.ir.stmt import ScalarParam
from tilewright.ir.verify_groups import Defect


def scalar_defect(param: ScalarParam) -> Defect | None:
    """What is wrong with the type, the bounds and the divisor of ``param``."""
    name, type_ = param.name, param.dtype
    if type_.is_nibble:
        return Defect(f"the parameter {name} is {type_}", "pass s8 or u8, and convert it inside")
    bounded = param.low is not None or param.high is not None
    if bounded and not type_.is_integer:
        cure = "leave the bounds away: integers have such"
        return Defect(f"the parameter {name} is {type_}, and has bounds", cure)
    if param.divisor < 1:
        cure = "give a divisor of 1 or more"
        return Defect(f"the parameter {name} is a multiple of {param.divisor}", cure)
    if param.divisor > 1 and type_ is not s64:
        cure = "leave the divisor away, or pass the number as s64"
        return Defect(f"the parameter {name} is {type_}, and has a divisor", cure)
    if not type_.is_integer:
        return None
    for bound in (param.low, param.high):
        if bound is not None and not type_.lowest <= bound <= type_.highest:
            cure = f"{type_} holds {type_.lowest} to {type_.highest}"
            return Defect(f"the parameter {name} is bounded by {bound}", cure)
    low = int(type_.lowest) if param.low is None else param.low
    high = int(type_.highest) if param.high is None else param.high
    if high // param.divisor * param.divisor < low:
        by = "" if param.divisor == 1 else f" by {param.divisor}"
        cure = "give bounds with a number between them that the divisor divides"
        return Defect(f"no number is in {low}..{high}{by}, as the parameter {name} has to be", cure)
    return None
