"""StableHLO's text to graphs.

In reading order: `scanner` (words), `types` and `type_parser`, `elements` (constants), `attributes`
and `attribute_parser`, `syntax` (the tree), `attribute_names` (which there are), `listed`, `forms`,
`region_forms` and `operation_parser` (operations), `parser` (modules). Then to graphs: `values`,
`translation`, the files of operations and what they compute of numbers (`real_numbers`,
`complex_numbers`), `quantized`, `regions`, `known` (what decides shapes), `operations` (all of
them), `checks` (what a program says of its results), `open_dims` (sizes that calls pass),
`program`.
"""

from tilewright.frontends.stablehlo.parser import parse_module, parse_modules
from tilewright.frontends.stablehlo.program import StableHLO, from_stablehlo

__all__ = ["StableHLO", "from_stablehlo", "parse_module", "parse_modules"]
