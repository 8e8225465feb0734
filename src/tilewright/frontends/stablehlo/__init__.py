"""StableHLO's text to graphs.

In reading order: `scanner` (words), `types` and `type_parser`, `elements` (constants), `attributes`
and `attribute_parser`, `syntax` (the tree), `listed`, `forms`, `region_forms` and
`operation_parser` (operations), `parser` (modules).
"""

from tilewright.frontends.stablehlo.parser import parse_module, parse_modules

__all__ = ["parse_module", "parse_modules"]
