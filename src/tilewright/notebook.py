"""HTML for notebooks (``_repr_html_``): text, tables, and parts that unfold."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

# Notebooks center the cells of tables, and set text in their own font.
_CELL = "text-align: left; vertical-align: top"


def text_html(content: str) -> str:
    """``content`` as it is printed."""
    return f"<pre>{html.escape(content)}</pre>"


def table_html(rows: Sequence[Sequence[object]], header: Sequence[str] = ()) -> str:
    """A table with a line for each of ``rows``, under a ``header``."""
    lines = [_line("th", header)] if header else []
    lines += [_line("td", row) for row in rows]
    return f"<table>{''.join(lines)}</table>"


def facts_html(pairs: Mapping[str, object]) -> str:
    """A table of names and their values."""
    return table_html(list(pairs.items()))


def unfolded_html(parts: Mapping[str, str]) -> str:
    """Texts by their titles, each of which a click unfolds."""
    return "".join(
        f"<details><summary>{html.escape(title)}</summary>{text_html(content)}</details>"
        for title, content in parts.items()
    )


def _line(tag: str, cells: Sequence[object]) -> str:
    line = "".join(f'<{tag} style="{_CELL}">{html.escape(str(cell))}</{tag}>' for cell in cells)
    return f"<tr>{line}</tr>"
