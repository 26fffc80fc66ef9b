"""Inert HTML out of anything a record holds.

Whatever comes from a record passes :func:`escaped` exactly once: model output is
hostile, and no markup of it may reach a page.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from itertools import repeat
from typing import Any

import pandas as pd

from drift.report.tables import each

#: Characters that HTML, Quarto's shortcodes, Markdown or TeX mathematics would read.
ACTIVE = str.maketrans({c: f"&#{ord(c)};" for c in "&<>\"'`${}[]\\"})
HIDDEN = re.compile("[^\n\t\x20-\x7e]")


class Markup(str):
    """Text that is HTML already, made by this module from escaped parts."""


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


def table(frame: pd.DataFrame, *, empty: str = "None.") -> Markup:
    """Return `frame` as a table that scrolls in its own box; columns of numbers right-aligned."""
    if frame.empty:
        return Markup(f"<p>{empty}</p>")
    number = [pd.api.types.is_numeric_dtype(frame[name]) for name in frame]
    lines = [(tuple(frame.columns), 'th scope="col"'), *((row, "td") for row in each(frame))]
    head, *body = (
        f"<tr>{''.join(map(_cell, line, number, repeat(tag)))}</tr>" for line, tag in lines
    )
    # Quarto would read a table of its own out of ours without the attribute.
    return Markup(
        '<div class="drift-table" tabindex="0"><table data-quarto-disable-processing="true">'
        f"<thead>{head}</thead><tbody>\n" + "\n".join(body) + "\n</tbody></table></div>"
    )


def _cell(value: object, right: bool, tag: str) -> str:
    missing = value is None or (isinstance(value, float) and pd.isna(value))
    side = ' class="drift-number"' if right else ""
    return f"<{tag}{side}>{'' if missing else escaped(value)}</{tag[:2]}>"


def percent(share: float) -> str:
    """Return a share of 1 as a percentage with one decimal."""
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def rate_text(rate: Mapping[str, Any]) -> Markup:
    """Return a rate with its interval and denominator, or why it is not estimable."""
    if rate["estimate"] is None or pd.isna(rate["estimate"]):
        return Markup(f"not estimable: {escaped(rate['reason'])}")
    return Markup(
        f"<b>{percent(rate['estimate'])}</b> ({rate['refused']} of {rate['n']}; "
        f"95\N{NO-BREAK SPACE}% interval {100 * rate['low']:.1f} to {percent(rate['high'])})"
    )


def when(moment: str) -> str:
    """Return a stored UTC time to the minute."""
    return moment[:16].replace("T", " ") + " UTC"


def digest(value: str) -> Markup:
    """Return a hash in full, in a form that wraps on a phone."""
    return Markup(f'<span class="drift-hash">{escaped(value)}</span>')
