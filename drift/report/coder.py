"""The coder's page: one file, for a browser without a network.

What it holds of a record is data in a block that no browser executes, and is put on the page as
text. Its policy admits its own script and style by hash, and nothing else: no request leaves it.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable
from pathlib import Path

import orjson

from drift.config import canonical_json, sha256_hex
from drift.errors import ConfigurationError
from drift.records.draw import Drawn, SheetRow, key_bytes
from drift.records.scheme import REFUSAL, SCHEMES, Scheme
from drift.records.sheet import COLUMNS, CUT, sheet_bytes

_HERE = Path(__file__).resolve().parent


def coder_page(
    rows: Iterable[SheetRow], *, study: str, manual: str, scheme: Scheme = REFUSAL
) -> bytes:
    """Return the page of these rows, with the scheme's chapter of the coding manual folded in.

    `manual` is the text of ``config/codebook.md``, as :func:`chapters` reads it. Labels are kept in
    the browser under the sheet's own id.
    """
    ordered = sorted(rows, key=lambda row: row.id)
    sheet = sha256_hex(canonical_json([study, [row.id for row in ordered]]))[:16]
    data = {
        "study": study,
        "sheet": sheet,
        "columns": COLUMNS,
        "cut": CUT,
        "scheme": scheme.name,
        "ask": {"en": scheme.ask, "zh": scheme.ask_zh},
        "words": [
            {"name": it.name, "key": it.key, "en": it.name, "zh": it.zh}
            | {"means": {"en": it.means, "zh": it.means_zh}}
            for it in scheme.words
        ],
        "rows": [vars(row) for row in ordered],
    }
    english, chinese = chapters(manual, scheme)
    page = (_HERE / "coder.html").read_text(encoding="utf-8")
    script = (_HERE / "coder.js").read_text(encoding="utf-8")
    (style,) = re.findall("<style>(.*?)</style>", page, re.S)
    parts = {
        "script_hash": _source(script),
        "style_hash": _source(style),
        "manual_en": manual_html(english),
        "manual_zh": manual_html(chinese),
        "data": _inert(data),
        "script": script,
    }
    # One pass: what a part holds is never taken for a place.
    pattern = "{(" + "|".join(parts) + ")}"
    return re.sub(pattern, lambda place: parts[place[1]], page).encode()


def chapters(manual: str, scheme: Scheme) -> tuple[str, str]:
    """Return a scheme's chapter of the manual in English and in Chinese.

    Each chapter is under a heading of the first order, the English and the Chinese ones in the
    order of the schemes.
    """
    parts = re.split(r"^(?=# )", manual, flags=re.M)[1:]
    chinese = [part for part in parts if re.match("#.*[\u4e00-\u9fff]", part)]
    english = [part for part in parts if part not in chinese]
    if min(len(english), len(chinese)) <= scheme.chapter:
        raise ConfigurationError(f"the coding manual has no chapter on {scheme.name}")
    return english[scheme.chapter], chinese[scheme.chapter]


def _source(text: str) -> str:
    """Return how a content security policy names an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _inert(data: object) -> str:
    """Return JSON that closes no element and ends no line, whatever is in it."""
    text = orjson.dumps(data).decode()
    return re.sub("[<>&\u2028\u2029]", lambda mark: f"\\u{ord(mark[0]):04x}", text)


def manual_html(text: str) -> str:
    """Return a manual as HTML: headings, lists, paragraphs, bold, italics and nothing else."""
    made = []
    for block in re.split(r"\n{2,}", text.strip()):
        lines = block.split("\n")
        if heading := re.match(r"(#+) (.*)", block):
            level = len(heading[1]) + 1
            made.append(f"<h{level}>{_inline(heading[2])}</h{level}>")
        elif all(re.match(r"- |\d+\. ", line) for line in lines):
            kind = "ul" if block.startswith("- ") else "ol"
            items = (_inline(line.partition(" ")[2]) for line in lines)
            made.append(f"<{kind}>{''.join(f'<li>{item}</li>' for item in items)}</{kind}>")
        else:
            made.append(f"<p>{_inline(' '.join(lines))}</p>")
    return "\n".join(made)


def _inline(text: str) -> str:
    text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", html.escape(text))
    return re.sub(r"\*(.+?)\*", r"<em>\1</em>", text)


README = """Coding study {study}: {rows} answers to read.

For coders
  sheet.html   open it in a browser, on any machine, without a network: it keeps every key press.
               Download the CSV or the JSON lines at the end and hand that in.
  sheet.csv    the same answers for a spreadsheet: write {words}
               in the column label, and save it as CSV UTF-8 under your own name,
               ana.csv for the coder ana. An apostrophe before a cell keeps a spreadsheet from
               taking it for a formula; leave it there. A sheet-NAME.csv is in that coder's order.
  The manual is config/codebook.md of the project; the page has it folded in.
  Two coders read all answers, each alone. Give them these files and no other.

Not for coders
  key.json     what every row is: run, model, question, stratum, inclusion probability, the judge's
               label. A coder who has seen it, the record or the report has seen the answer.

Afterwards (A, B: what the coders handed in)
  drift code agreement DIR A B
  drift code adjudicate DIR A B        a third reader reads what the two call differently
  drift code agreement DIR A B --adjudicated C
  drift code seal DIR A B --adjudicated C --coder adjudicated
"""


def study_files(drawn: Drawn, *, manual: str, coders: Iterable[str] = ()) -> dict[str, bytes]:
    """Return the files of a study by name; a coder's own CSV is in the order of that coder."""
    rows, study = drawn.rows.values(), drawn.key.study
    scheme = SCHEMES[drawn.key.scheme]
    words = ", ".join(f"{it.name} ({it.key})" for it in scheme.words)
    readme = README.format(study=study, rows=len(rows), words=words)
    return {
        "key.json": key_bytes(drawn.key),
        "sheet.csv": sheet_bytes(rows),
        **{f"sheet-{coder}.csv": sheet_bytes(rows, coder) for coder in coders},
        "sheet.html": coder_page(rows, study=study, manual=manual, scheme=scheme),
        "README.txt": readme.encode(),
    }
