"""Families in the site's search: the embedded renderer indexes prose, and no table or answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import orjson

from drift.report.pages import anchor
from drift.report.tables import Record


def add_families(site: Path, shown: Sequence[Record]) -> None:
    """Let the search of `site` find each family by its name, its questions and why it is benign.

    Responses stay out of the index: it is fetched whole, and they are not ours.
    """
    index = site / "search.json"
    entries = orjson.loads(index.read_bytes()) if index.exists() else []
    for record in shown:
        page = f"report/{record.name}/transcripts.html"
        for item in record.families.values() if (site / page).exists() else ():
            address = f"{page}#{anchor(item.id)}"
            place = {"objectID": address, "href": address, "title": f"Transcripts, {record.name}"}
            text = " ".join(filter(None, (*item.wordings, item.zh, item.why_benign)))
            entries.append(place | {"section": item.id, "text": text})
    if entries:
        index.write_bytes(orjson.dumps(entries))
