"""A page of texts side by side with what changed, such as the steps of a compilation: all that is
there in a list, and what is asked for beside it.

One file that needs no network: the texts are in it once each, as data, and a short script shows
what is asked for. (A browser lays out what it shows, and a kernel may have ten thousand lines.)
"""

from __future__ import annotations

import difflib
import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.engine.overview import STYLE, Overview


@dataclass(frozen=True)
class Entry:
    """A line of the list: ``label`` and what it says beside (``note``), below the heading
    ``group``; with a text ``after`` (None: nothing to look at), and one ``before`` that it is
    compared with. ``inner``: it is a part of what stands above. ``sheet`` is HTML that is shown in
    place of a text. ``beside`` says before its name what is compared."""

    group: str
    label: str
    note: str = ""
    before: str | None = None
    after: str | None = None
    inner: bool = False
    sheet: str | None = None
    beside: str = "before and after"

    @property
    def shown(self) -> bool:
        """Whether there is something to look at."""
        return self.after is not None or self.sheet is not None


# What the list calls the overview, and where links find it.
_OVERVIEW = "why this speed"


def page_text(
    title: str,
    entries: Sequence[Entry],
    overview: Overview | None = None,
    folded: bool = False,
    style: str = "",
) -> str:
    """The page as HTML. The ``overview``, or else the first entry that has a text, is shown when it
    opens, and each entry at a link to its name (`anchor`). ``folded``: parts are listed only below
    the heading of what is shown. ``style`` is that of sheets."""
    if overview is not None:
        entries = [Entry("", _OVERVIEW, sheet=overview.html()), *entries]
    texts: dict[str, int] = {}
    data = {"entries": [_entry(entry, texts) for entry in entries]}
    written = {**data, "texts": [text.splitlines() for text in texts], "folded": folded}
    name = html.escape(title)
    return _PAGE.format(
        title=name,
        style=_STYLE + STYLE + style,
        list="\n".join(_list(entries)),
        sheets="\n".join(_sheets(entries)),
        # A script ends at the first "</script", whatever it is in.
        data=json.dumps(written, separators=(",", ":")).replace("<", "\\u003c"),
        script=_SCRIPT,
    )


def anchor(label: str) -> str:
    """The link to the entry that is called ``label``, in its page."""
    return "#" + re.sub(r"\W+", "-", label, flags=re.ASCII)


def _sheets(entries: Sequence[Entry]) -> Iterable[str]:
    for number, entry in enumerate(entries):
        if entry.sheet is not None:
            yield f'<section class="sheet" data-sheet="{number}" hidden>\n{entry.sheet}\n</section>'


def _entry(entry: Entry, texts: dict[str, int]) -> Mapping[str, Any]:
    """What the script is told of an entry: the numbers of its texts, and how they differ."""
    if entry.sheet is not None:
        return {"sheet": True}
    if entry.after is None:
        return {}
    after = texts.setdefault(entry.after, len(texts))
    values: dict[str, Any] = {"after": after, "label": entry.label}
    if entry.before is not None:
        values["before"] = texts.setdefault(entry.before, len(texts))
        values["beside"] = entry.beside
        values["changes"] = list(_changes(entry.before, entry.after))
    return values


def _changes(before: str, after: str) -> Iterable[tuple[int, int, int, int]]:
    """The lines of both that differ by more than how far they are indented: from and to (exclusive)
    before, from and to after."""
    old, new = ([line.strip() for line in text.splitlines()] for text in (before, after))
    matcher = difflib.SequenceMatcher(None, old, new)
    for tag, *places in matcher.get_opcodes():
        if tag != "equal":
            a, b, c, d = places
            yield a, b, c, d


def _list(entries: Sequence[Entry]) -> Iterable[str]:
    group, groups = "", 0
    for number, entry in enumerate(entries):
        if entry.group != group:
            group = entry.group
            groups += 1
            if group != entry.label:
                yield f"<h2>{html.escape(group)}</h2>"
        label, note = html.escape(entry.label), html.escape(entry.note)
        said = f"<b>{label}</b> <i>{note}</i>"
        if not entry.shown:
            yield f"<p>{said}</p>"
            continue
        kind = ' class="inner"' if entry.inner else ""
        place = f'data-entry="{number}" data-group="{groups}"'
        yield f'<button{kind} {place} title="{label}">{said}</button>'


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>{style}</style>
<h1>{title}</h1>
<nav>
{list}
</nav>
<main>
<noscript>The texts are shown by a script.</noscript>
{sheets}
<p id="what"></p>
<table id="text"></table>
</main>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</html>
"""

_STYLE = """
:root { color-scheme: light dark; --mark: light-dark(#ffe0dc, #5a2a26);
  --new: light-dark(#d8f5dc, #1f4a2a); --line: light-dark(#ddd, #444);
  --dim: light-dark(#666, #aaa); --word: light-dark(#0002, #fff3) }
body { display: grid; height: 100vh; margin: 0;
  grid-template: auto minmax(0, 1fr) / min(22em, 40%) minmax(0, 1fr);
  font: 14px/1.4 system-ui, sans-serif }
h1 { grid-column: 1 / 3; font: bold 15px monospace; margin: 0; padding: .6em 1em;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere }
nav { overflow-y: auto; padding: 0 0 1em; border-right: 1px solid var(--line) }
h2 { font-size: 12px; margin: 1em 1em .3em; color: var(--dim); overflow-wrap: anywhere }
nav p, nav button { display: flex; justify-content: space-between; gap: 1em; width: 100%;
  box-sizing: border-box; margin: 0; padding: .25em 1em; border: 0; background: none;
  color: inherit; font: inherit; text-align: left }
nav button { cursor: pointer } nav button[hidden] { display: none }
nav button:hover, nav button:focus-visible { background: var(--line) }
nav button[aria-current] { background: Highlight; color: HighlightText }
nav p { color: var(--dim) }
nav button.inner { padding-left: 2em; font: 12px/1.3 ui-monospace, monospace }
nav b { font-weight: 600; overflow: hidden; text-overflow: ellipsis; white-space: nowrap }
nav button.inner b { font-weight: 400 } nav p b { font-weight: 400 }
nav i { font-style: normal; font-variant-numeric: tabular-nums; white-space: nowrap }
main { overflow: auto }
#what { margin: 0; padding: .5em 1em; color: var(--dim); position: sticky; left: 0 }
table { border-collapse: collapse; font: 12px/1.45 ui-monospace, monospace }
td { white-space: pre-wrap; overflow-wrap: anywhere; padding: 0 1em 0 .5em; vertical-align: top }
td.number { text-align: right; color: var(--dim); user-select: none; padding: 0 .5em 0 1em }
table.pair { table-layout: fixed; width: 100% }
table.pair tr:first-child td.number { width: 3em }
mark { background: var(--word); color: inherit }
td.old { background: var(--mark) } td.new { background: var(--new) }
td + td.number { border-left: 1px solid var(--line) }
"""

_SCRIPT = r"""
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const table = document.getElementById("text");
const what = document.getElementById("what");
const buttons = [...document.querySelectorAll("button[data-entry]")];
const sheets = [...document.querySelectorAll("section[data-sheet]")];

function cell(row, text, kind, from, to) {
  const made = row.insertCell();
  made.textContent = text;
  if (/\d+-byte (Folded )?(Spill|Reload)/.test(text)) made.classList.add("spill");
  if (kind) made.classList.add(kind);
  if (!(from < to)) return;
  const mark = document.createElement("mark");
  mark.textContent = text.slice(from, to);
  made.replaceChildren(text.slice(0, from), mark, text.slice(to));
}

function line(body, before, i, after, j, marked) {
  const row = body.insertRow();
  const left = before && i !== null ? before[i] : "", right = j !== null ? after[j] : "";
  let same = 0, tail = 0;
  if (marked && left && right) {
    const most = Math.min(left.length, right.length);
    while (same < most && left[same] === right[same]) same++;
    while (tail < most - same && left.at(-1 - tail) === right.at(-1 - tail)) tail++;
  }
  const kind = (name, here) => marked && before && here !== null ? name : "";
  const alike = 3 * (same + tail) > Math.max(left.length, right.length);
  const end = text => alike ? text.length - tail : 0;
  if (before) {
    cell(row, i === null ? "" : i + 1, "number");
    cell(row, left, kind("old", i), same, end(left));
  }
  cell(row, j === null ? "" : j + 1, "number");
  cell(row, right, kind("new", j), same, end(right));
}

function mark(number) {
  const chosen = buttons.find(button => button.dataset.entry === String(number));
  for (const button of buttons) {
    if (button === chosen) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
    if (data.folded && button.classList.contains("inner"))
      button.hidden = button.dataset.group !== chosen.dataset.group;
  }
  for (const sheet of sheets) sheet.hidden = sheet.dataset.sheet !== String(number);
  table.hidden = what.hidden = "sheet" in data.entries[number];
  document.querySelector("main").scrollTo(0, 0);
}

function show(number) {
  mark(number);
  const entry = data.entries[number];
  if (entry.sheet) return;
  const after = data.texts[entry.after];
  const before = "before" in entry ? data.texts[entry.before] : null;
  const body = document.createElement("tbody");
  let i = 0, j = 0;
  for (const [from, to, start, end] of entry.changes || []) {
    for (; i < from; i++, j++) line(body, before, i, after, j, false);
    for (; i < to || j < end; i++, j++)
      line(body, before, i < to ? i : null, after, j < end ? j : null, true);
    i = to; j = end;
  }
  for (; j < after.length; i++, j++) line(body, before, i, after, j, false);
  table.replaceChildren(body);
  table.className = before ? "pair" : "";
  const count = (entry.changes || []).length;
  what.textContent = before === null ? entry.label
    : `${entry.beside} ${entry.label}: ${count} ${count === 1 ? "place" : "places"} changed`;
  const first = table.querySelector(".old, .new");
  if (first) first.scrollIntoView({block: "center"});
}

// As `anchor` of the page's writer has it.
const anchor = button => "#" + button.title.replace(/\W+/g, "-");

function follow() {
  const asked = buttons.find(button => anchor(button) === decodeURIComponent(location.hash));
  const found = asked || buttons[0];
  if (found) show(Number(found.dataset.entry));
}

for (const button of buttons)
  button.addEventListener("click", () => {
    history.pushState(null, "", anchor(button));
    show(Number(button.dataset.entry));
  });
addEventListener("hashchange", follow);
addEventListener("popstate", follow);
document.addEventListener("keydown", event => {
  const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
  if (!step) return;
  const listed = buttons.filter(button => !button.hidden);
  const now = listed.findIndex(button => button.hasAttribute("aria-current"));
  const next = listed[now + step];
  if (next) { next.focus(); next.click(); event.preventDefault(); }
});
follow();
"""
