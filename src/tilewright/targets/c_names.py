"""Names that C and C++ take."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from tilewright.errors import ArgumentError, short

# What compilers take for something else, of what is otherwise a name.
_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        "auto bool break case catch char class const continue default delete do double else enum "
        "extern false float for friend goto if inline int long main namespace new operator private "
        "protected public register return short signed sizeof static struct switch template this "
        "throw true try typedef union unsigned using virtual void volatile while",
    )
)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,199}")


def checked_name(name: object) -> str:
    """``name``, if a function in C can be called so; otherwise raises `ArgumentError`."""
    taken = isinstance(name, str) and name in _KEYWORDS
    if isinstance(name, str) and _NAME.fullmatch(name) and not taken:
        return name
    raise ArgumentError(
        f"{short(name)} cannot be the name of a function in C",
        where="name",
        why="it is a word of C's own or of C++'s" if taken else None,
        cure="begin it with a letter, and go on with letters, digits and _ (200 at most)",
    )


def unique_names(names: Iterable[str], taken: Collection[str] = ()) -> list[str]:
    """``names`` as C has them: letters, digits and underscores, none of C's words, none twice and
    none of ``taken``."""
    used = {*taken, *_KEYWORDS}
    unique: list[str] = []
    for name in names:
        stem = re.sub(r"\W+", "_", name, flags=re.ASCII)
        stem = stem if stem[:1].isalpha() else f"a{stem}"
        fresh, number = stem, 2
        while fresh in used:
            fresh, number = f"{stem}_{number}", number + 1
        used.add(fresh)
        unique.append(fresh)
    return unique
