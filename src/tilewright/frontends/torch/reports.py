"""What became of the graphs that were compiled: how much is native, and what stays with PyTorch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tilewright.notebook import table_html


@dataclass(frozen=True)
class Island:
    """An op that PyTorch runs, in ``graph``, and why; ``count`` times."""

    graph: str
    op: str
    why: str
    count: int


@dataclass
class GraphReport:
    """A graph: how many ops are native, in how many programs; and which are not. ``arena``: the
    bytes that lie between the steps of its programs, ``live``: of these, what steps with the most
    need at once; 0 where a target runs it as it is. ``opened``: how many programs are for all sizes
    of some dims, ``closed``: why calls have a program for their very sizes."""

    name: str
    native: int = 0
    programs: int = 0
    arena: int = 0
    live: int = 0
    opened: int = 0
    closed: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, other: GraphReport) -> None:
        """Takes what became of the same graph for other sizes."""
        self.native += other.native
        self.programs += other.programs
        self.opened += other.programs
        self.arena += other.arena
        self.live += other.live
        self.refused += other.refused

    @property
    def islands(self) -> tuple[Island, ...]:
        """What PyTorch runs."""
        return tuple(Island(self.name, op, why, n) for (op, why), n in self.refused.items())

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {self.native} ops native, in {_counted(self.programs, 'program')}; "
            f"{sum(self.refused.values())} by PyTorch"
        ]
        if self.opened:
            lines.append(f"  {_counted(self.opened, 'program')} of open sizes")
        lines += [f"  {n} x for each set of sizes: {why}" for why, n in sorted(self.closed.items())]
        lines += [f"  {n} x {op}: {why}" for (op, why), n in sorted(self.refused.items())]
        return "\n".join(lines)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


@dataclass(frozen=True)
class Report:
    """All graphs that were compiled, in order. As text, a line for each and for each island."""

    graphs: tuple[GraphReport, ...]

    @property
    def islands(self) -> tuple[Island, ...]:
        """What PyTorch runs, of all graphs."""
        return tuple(island for graph in self.graphs for island in graph.islands)

    def __str__(self) -> str:
        return "\n".join(map(str, self.graphs)) or "nothing was compiled"

    def _repr_html_(self) -> str:
        graphs = [(g.name, g.native, g.programs, sum(g.refused.values())) for g in self.graphs]
        islands = [(island.graph, island.count, island.op, island.why) for island in self.islands]
        tables = table_html(graphs, ("graph", "ops native", "programs", "ops by PyTorch"))
        return tables + (table_html(islands, ("graph", "times", "op", "why")) if islands else "")


_graphs: list[GraphReport] = []
# Of a process that compiles for ever, the last ones.
_LIMIT = 1000


def begin(name: str) -> GraphReport:
    """A new graph in the report."""
    graph_report = GraphReport(name)
    _graphs.append(graph_report)
    del _graphs[:-_LIMIT]
    return graph_report


def report(clear: bool = False) -> Report:
    """What `torch.compile` with this backend made so far; with ``clear``, it is forgotten then."""
    summary = Report(tuple(_graphs))
    if clear:
        _graphs.clear()
    return summary
