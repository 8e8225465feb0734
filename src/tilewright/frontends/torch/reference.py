"""What PyTorch itself computes of an exported program: a second opinion on its graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from tilewright.errors import UnsupportedError
from tilewright.frontends.torch.exported import (
    UPDATES,
    WEIGHTS,
    array_of,
    input_name,
    state_of,
    tensor_of,
    updated_input,
)

Arrays = Mapping[str, NDArray[Any]]


def eager_results(exported: ExportedProgram, arguments: Arrays) -> dict[str, NDArray[Any]]:
    """The results of the graph that `from_torch` makes of ``exported``, on ``arguments``, op by op
    in PyTorch.

    Raises `UnsupportedError` for arguments that it refuses, such as places outside of a tensor.
    """
    # Nothing is updated in place: what becomes of a buffer is a result, as in the graph.
    program = exported.run_decompositions({})
    signature = program.graph_signature
    values = _inputs(program, arguments)
    try:
        with torch.no_grad():
            outputs = program.graph_module(*values)
    except Exception as error:  # whatever its ops raise
        raise UnsupportedError(
            "PyTorch does not run the program on these arguments",
            why=f"{type(error).__name__}: {error}",
        ) from error
    results: dict[str, NDArray[Any]] = {}
    number = 0
    for spec, value in zip(signature.output_specs, outputs, strict=True):
        if spec.kind in UPDATES:
            results[input_name(updated_input(signature, spec))] = array_of(value)
        elif isinstance(value, torch.Tensor):
            results[f"output{number}"] = array_of(value)
            number += 1
    return results


def _inputs(program: ExportedProgram, arguments: Arrays) -> list[Any]:
    """All that a program takes: ``arguments`` by their names, parameters, numbers."""
    state = state_of(program)
    nodes = {node.name: node for node in program.graph.nodes}
    values: list[Any] = []
    for spec in program.graph_signature.input_specs:
        name = input_name(spec.arg.name)
        if name in arguments:
            values.append(tensor_of(arguments[name]))
        elif spec.kind in WEIGHTS:
            values.append(state[spec.target])
        else:
            assert spec.kind is InputKind.USER_INPUT
            values.append(nodes[spec.arg.name].meta["val"])
    return values
