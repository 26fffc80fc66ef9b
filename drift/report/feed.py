"""Atom feeds: alarms, findings and closed series, each with the line that seals it.

A state that was entered and a series that closed have an entry of their own. The other
findings of one run of one model share one, which lists them: a restless model would push
every alarm out of the feed. Ids and times come from the record, so an entry never changes.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import orjson
from smalldocs.config import load

from drift.config import sha256_hex
from drift.records.store import exists, read_bytes
from drift.report.markup import Markup, html, joined
from drift.report.pages import KINDS, kind, notices
from drift.report.tables import Record

ATOM, XML = "http://www.w3.org/2005/Atom", "http://www.w3.org/XML/1998/namespace"
#: Entries of a feed, newest first; findings.jsonl holds every finding.
NEWEST = 200
#: Kinds of finding that have an entry of their own.
ALONE = ("alarm_state", "series_closed")
#: What no XML document may hold.
UNFIT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: When a record without a finding has changed last.
EPOCH = "1970-01-01T00:00:00Z"


def publish_feeds(root: Path, shown: Sequence[Record], site: Path) -> None:
    """Write ``feed.xml`` of each record and, at the site's root, of all of them."""
    website = load(root).config.get("website") or {}
    title, address = str(website.get("title") or ""), str(website.get("site-url") or "")
    base = f"{address.rstrip('/')}/" if address else ""
    entries = []
    for record in shown:
        place, own = f"report/{record.name}/", record_entries(record)
        entries += [entry | {"link": place + entry["link"]} for entry in own]
        about = {"identifier": identity(record).urn, "home": "reading.html"}
        text = feed(own, title=f"{title}: {record.name}", base=base and base + place, **about)
        _write(site / place / "feed.xml", text)
    entries.sort(key=lambda entry: (entry["updated"], entry["id"]), reverse=True)
    about = {"identifier": whole_identity(shown).urn, "home": "index.html"}
    _write(site / "feed.xml", feed(entries[:NEWEST], title=title, base=base, **about))


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def identity(record: Record) -> uuid.UUID:
    """Return what never changes of a record: the UUID of its first registration's hash."""
    chain = record.store.folder / "chain.jsonl"
    if not chain.exists():
        return uuid.uuid5(uuid.NAMESPACE_URL, record.name)
    with chain.open("rb") as stream:
        first = sha256_hex(stream.readline().removesuffix(b"\n"))
    return uuid.uuid5(uuid.NAMESPACE_URL, f"urn:sha256:{first}")


def whole_identity(shown: Sequence[Record]) -> uuid.UUID:
    """Return what identifies the feed of all records: by the oldest, real before made ones.

    A made record comes with every copy of the project.
    """
    known = [record for record in shown if record.sealed]
    known.sort(key=lambda it: (KINDS.index(kind(it)), it.sealed[0][0].body["at"], it.name))
    return uuid.uuid5(identity(known[0]) if known else uuid.NAMESPACE_URL, "all records")


def record_entries(record: Record) -> list[dict[str, str]]:
    """Return the newest entries of a record, newest first.

    Each holds id, updated, link (seen from the record's pages), model, kind, and in inert
    HTML title and content.
    """
    shared: dict[str, list[dict[str, Any]]] = {}
    for finding in record.findings:
        alone = finding["kind"] in ALONE
        name = finding["id"] if alone else f"{finding['run']}.{finding['model']}.findings"
        shared.setdefault(name, []).insert(0, finding)
    own, found = identity(record), []
    said = [html("<p>{}</p>", notice) for notice in notices(record)]
    for name, items in list(shared.items())[:NEWEST]:
        run, model = items[0]["run"], items[0]["model"]
        found.append(
            {
                "id": uuid.uuid5(own, name).urn,
                "updated": items[0]["at"],
                "link": f"runs/{run}.html#{items[0]['id']}",
                "model": model,
                "kind": items[0]["kind"] if len(items) == 1 else "findings",
                "title": html("{}, {}: {}", record.name, model, _summary(items)),
                "content": joined([*said, _content(items, _head(record, run))]),
            }
        )
    return found


def _summary(items: Sequence[dict[str, Any]]) -> str:
    """Return the only finding in its words, or how many there are of each kind."""
    if len(items) == 1:
        return str(items[0]["detail"])
    kinds = Counter(item["kind"].replace("_", " ") for item in items)
    several = (f"{n} {kind}{'s' if n > 1 else ''}" for kind, n in kinds.items())
    return ", ".join(several)


def _head(record: Record, run: str) -> dict[str, Any]:
    """Return the line that sealed the labels of a run, as its reading names it."""
    path = record.store.reading(run)
    found: dict[str, Any] = orjson.loads(read_bytes(path))["head"] if exists(path) else {}
    return found


def _content(items: Sequence[dict[str, Any]], head: dict[str, Any]) -> Markup:
    listed = joined(html("<li>{detail}</li>", **item) for item in items)
    sealed = html("<p>Sealed by line {seq} of the ledger, {hash}.</p>", **head) if head else ""
    return html("<ul>{}</ul>{}", listed, sealed)


def feed(
    entries: Sequence[dict[str, str]], *, title: str, identifier: str, home: str, base: str = ""
) -> bytes:
    """Return an Atom feed; `base` is the address that its links are seen from, where known."""
    top = ET.Element("feed", {"xmlns": ATOM} | ({"xml:base": base} if base else {}))
    _add(top, "id", identifier)
    _add(top, "title", title)
    _add(top, "updated", max((entry["updated"] for entry in entries), default=EPOCH))
    _add(_add(top, "author"), "name", title)
    for rel, href in (("self", "feed.xml"), ("alternate", home)):
        _add(top, "link", rel=rel, href=href)
    for entry in entries:
        into = _add(top, "entry")
        _add(into, "id", entry["id"])
        _add(into, "title", entry["title"], type="html")
        _add(into, "updated", entry["updated"])
        _add(into, "link", rel="alternate", href=entry["link"])
        _add(into, "category", term=entry["kind"])
        _add(into, "category", term=entry["model"])
        _add(into, "content", entry["content"], type="html")
    ET.indent(top)
    return bytes(ET.tostring(top, encoding="utf-8", xml_declaration=True)) + b"\n"


def _add(into: ET.Element, name: str, text: str = "", **attributes: str) -> ET.Element:
    fit = {key: UNFIT.sub("\ufffd", value) for key, value in attributes.items()}
    made = ET.SubElement(into, name, fit)
    made.text = UNFIT.sub("\ufffd", text) or None
    return made
