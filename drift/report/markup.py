"""Inert HTML out of anything a record holds.

Whatever comes from a record passes :func:`escaped` exactly once: model output is
hostile, and no markup of it may reach a page. :func:`html` and :func:`fill` see to
it, so pages put no value into HTML in any other way.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd

from drift.report.tables import each

#: Characters that HTML, Quarto's shortcodes, Markdown or TeX mathematics would read.
ACTIVE = str.maketrans({c: f"&#{ord(c)};" for c in "&<>\"'`${}[]\\"})
#: Characters from which a cell of a table asks for a wider column.
LONG = 24
HIDDEN = re.compile("[^\n\t\x20-\x7e]")


class Markup(str):
    """Text that is HTML already, made of escaped parts.

    ``data`` are the tidy tables behind it, by the name under which a reader downloads them.
    """

    data: Mapping[str, pd.DataFrame] = MappingProxyType({})

    def over(self, *parts: object) -> Markup:
        """Return this text, with the tables behind all the parts it is made of."""
        found = [part.data for part in (self, *parts) if isinstance(part, Markup) and part.data]
        if found:
            self.data = {name: frame for one in found for name, frame in one.items()}
        return self


def escaped(text: object) -> Markup:
    """Return `text` as inert HTML: no markup of any kind, nothing invisible.

    Control, format and bidirectional characters are written as ``U+202E``, so a
    response can neither hide text nor reorder what stands around it.
    """
    if isinstance(text, Markup):
        return text
    return Markup(HIDDEN.sub(_visible, str(text).translate(ACTIVE)))


def _visible(match: re.Match[str]) -> str:
    character = match.group()
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
    if hidden or ord(character) & 0xFFFE == 0xFFFE:
        return f'<span class="drift-hidden">U+{ord(character):04X}</span>'
    return character


class _Inert(string.Formatter):
    def format_field(self, value: Any, spec: str) -> str:
        return escaped(format(value, spec) if spec else value)


def html(template: str, *parts: object, **values: object) -> Markup:
    """Return `template`, whose places are those of ``str.format``, with inert values."""
    return Markup(_Inert().vformat(template, parts, values)).over(*parts, *values.values())


def fill(root: Path, name: str, /, **values: object) -> Markup:
    """Return the template ``report/_templates/<name>.html`` of the project at `root`, filled."""
    return html(_template(root / "report" / "_templates" / f"{name}.html"), **values)


@lru_cache
def _template(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()


def coded(text: str) -> Markup:
    """Return text in which what stands between backticks is code."""
    parts = text.split("`")
    return joined(html("<code>{}</code>", part) if i % 2 else part for i, part in enumerate(parts))


def joined(parts: Iterable[object], between: str = "") -> Markup:
    """Return the parts in one piece, each inert."""
    parts = list(parts)
    return Markup(between.join(map(escaped, parts))).over(*parts)


def with_data(
    text: Markup, name: str, frame: pd.DataFrame, *, kinds: Sequence[str] = ("csv", "json")
) -> Markup:
    """Return `text` with links to the table behind it, which the site publishes.

    Parameters
    ----------
    name : str
        Names the files ``data/<name>.csv`` and so on beside the page; once in a record.
    frame : DataFrame
        Tidy: one observation a row, plain values; each column is in ``config/codebook.toml``.
    kinds : sequence of str
        The files to link; ``svg`` for a figure with this id.
    """
    link = '<a href="data/{}.{}" download>{}</a>'
    links = joined((html(link, name, kind, kind.upper()) for kind in kinds), " ")
    made = Markup(html('{}\n<p class="drift-data">{}</p>', text, links))
    made.data = {**text.data, name: frame}
    return made


def table(frame: pd.DataFrame, *, empty: str = "None.") -> Markup:
    """Return `frame` as a table that scrolls in its own box; columns of numbers right-aligned."""
    if frame.empty:
        return html("<p>{}</p>", empty)
    side = [_side(frame[name]) for name in frame]

    def line(cell: str, values: Iterable[Any]) -> Markup:
        shown = ("" if pd.api.types.is_scalar(v) and pd.isna(v) else v for v in values)
        return html("<tr>{}</tr>", joined(map(html, [cell] * len(side), side, shown)))

    # Quarto would read a table of its own out of ours without the attribute.
    return html(
        '<div class="drift-table" tabindex="0"><table data-quarto-disable-processing="true">'
        "<thead>{}</thead><tbody>\n{}\n</tbody></table></div>",
        line('<th scope="col"{}>{}</th>', frame.columns),
        joined((line("<td{}>{}</td>", row) for row in each(frame)), "\n"),
    )


def _side(column: pd.Series) -> Markup:
    """Return how a column stands: numbers to the right, long words in a wider one."""
    if pd.api.types.is_numeric_dtype(column):
        return Markup(' class="drift-number"')
    words = any(isinstance(v, str) and not isinstance(v, Markup) and len(v) > LONG for v in column)
    return Markup(' class="drift-words"' if words else "")


def percent(share: float) -> str:
    """Return a share of 1 as a percentage with one decimal."""
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def rate_text(rate: Mapping[str, Any]) -> Markup:
    """Return a rate with its interval and denominator, or why it is not estimable."""
    if rate["estimate"] is None or pd.isna(rate["estimate"]):
        return html("not estimable: {reason}", **rate)
    share, low, high = (percent(rate[name]) for name in ("estimate", "low", "high"))
    return html(
        '<b class="drift-share">{}</b> ({} of {}; 95\N{NO-BREAK SPACE}% interval {} to {})',
        *(share, rate["refused"], rate["n"], low[:-2], high),
    )


def when(moment: str) -> str:
    """Return a stored UTC time to the minute."""
    return moment[:16].replace("T", " ") + " UTC"
