"""The site's search: the embedded renderer indexes prose alone, and what is generated is added."""

from __future__ import annotations

import html
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from drift.report.pages import anchor
from drift.report.tables import Record

#: Most characters that are added of one page: the index is fetched whole.
MOST = 8_000
#: Left out: answers, which are not ours, figures, facts and rows, what is folded or runs.
APART = re.compile(r"<(pre|svg|dl|tbody|details|script|style|nav|header)\b.*?</\1>", re.S)
PLACE = re.compile(r'<[^>]*\sid="([^"]*)"[^>]*>')
BLOCK = re.compile(r"</?(?:article|div|fig\w+|h\d|li|[ou]l|p|section|table|t[dhr]|thead)\b[^>]*>")

Entry = dict[str, Any]


def complete_index(site: Path, mains: Mapping[str, str], shown: Sequence[Record]) -> None:
    """Add to the index of `site` what its pages generate, and the families of `shown`.

    `mains` are the main parts of pages by their address. Transcripts are found by family.
    """
    index = site / "search.json"
    entries: list[Entry] = orjson.loads(index.read_bytes()) if index.exists() else []
    pages = defaultdict[str, list[Entry]](list)
    for entry in entries:
        pages[entry["href"].partition("#")[0]].append(entry)
    for page, of in pages.items():
        if page in mains and not page.endswith("/transcripts.html"):
            entries += _with_generated(page, of, mains[page])
    for record in shown:
        page = f"report/{record.name}/transcripts.html"
        entries += _families(record, page) if (site / page).exists() else ()
    if entries:
        index.write_bytes(orjson.dumps(entries))


def _with_generated(page: str, entries: Sequence[Entry], main: str) -> Iterator[Entry]:
    """Lengthen the entries of a page by up to `MOST` characters; yield one that it had not."""
    sections = {entry["href"].partition("#")[2]: entry for entry in entries}
    if "" not in sections:
        place = {"objectID": page, "href": page, "title": entries[0]["title"]}
        sections[""] = place | {"section": "", "text": ""}
        yield sections[""]
    left = MOST
    for name, text in generated(main, sections):
        if (left := left - len(text) - 1) < 0:
            break
        sections[name]["text"] = f"{sections[name]['text']} {text}".lstrip()


def generated(main: str, sections: Mapping[str, Entry]) -> Iterator[tuple[str, str]]:
    """Yield each visible text that no entry holds yet, with the id of the section it stands in."""
    held = " ".join(f"{it['title']} {it['section']} {it['text']}" for it in sections.values())
    parts = PLACE.split(APART.sub("", main))
    section = ""
    for name, part in zip(["", *parts[1::2]], parts[::2], strict=True):
        section = name if name in sections else section
        for block in BLOCK.split(part):
            text = " ".join(html.unescape(re.sub("<[^>]*>", "", block)).split())
            if text not in held:
                held = f"{held} {text}"
                yield section, text


def _families(record: Record, page: str) -> Iterator[Entry]:
    """Yield each family by its name, its questions and why it is benign; no response."""
    for item in record.families.values():
        address = f"{page}#{anchor(item.id)}"
        place = {"objectID": address, "href": address, "title": f"Transcripts, {record.name}"}
        text = " ".join(filter(None, (*item.wordings, item.zh, item.why_benign)))
        yield place | {"section": item.id, "text": text}
