"""ONNX in: models as graphs.

In reading order: `reading` (a model, node by node), `scopes` (what names mean), `values` (types,
and what is known), `open_dims` and `sizes` (sizes that calls pass, and nodes that calculate with
them), `control` (branches and loops), `folding` (nodes of known values), `bodies` (ops
by the functions that define them), `table` (the table of ops); then a file for each family:
`elements`, `moving`, `reducing`, `multiplying`, `windows`, `resizing`, `sampling`,
`transforms`, `recurrent`, `training`.
"""

from tilewright.frontends.onnx.reading import from_onnx

__all__ = ["from_onnx"]
