"""PyTorch in: `torch.compile(model, backend="tilewright")`, and exported programs.

In reading order: `backend` (what `torch.compile` calls), `decompositions` (which ops PyTorch takes
apart), `shapes` (a graph for each set of unknown sizes), `open_sizes`, `opened`, `open_parts` (one
for all of them), `islands` (what is native, and what stays with PyTorch), `views` (what shares
memory), `replacing` (programs in the place of parts), `parts` (a program in a graph), `forms` (how
tensors lie in memory), `complexes` (pairs of tensors), `translate` (FX nodes to a graph of ours),
`spans` (places in a user's program), `checks` (what PyTorch refuses because of data), `table` (the
table of ops), `aten/` (what builds each op), `exported` (programs of `torch.export`), `reference`
(what PyTorch computes of one), `reports`. `kernels`: kernels in Python as custom ops.
"""

from tilewright.frontends.torch.backend import backend
from tilewright.frontends.torch.exported import from_torch
from tilewright.frontends.torch.kernels import custom_op
from tilewright.frontends.torch.reports import GraphReport, Island, Report, report

__all__ = ["GraphReport", "Island", "Report", "backend", "custom_op", "from_torch", "report"]
