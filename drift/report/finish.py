"""The rendered pages made fit to publish, whichever renderer made them.

Each page gets a content security policy, the site's script and its feeds; landmarks that
have no name get one, figures their numbers. The pages of single runs are stamped out of
the rendered page ``runs.html``, so that a year of them costs no rendering.
"""

from __future__ import annotations

import base64
import hashlib
import html
import multiprocessing
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import count
from pathlib import Path

import orjson

from drift.config import sha256_hex
from drift.records.store import read_bytes
from drift.report import cards
from drift.report.inputs import code, digest, package, surroundings
from drift.report.search import complete_index
from drift.report.tables import Record

#: The shell of a page before its main part, that part, and the shell after it.
PARTS = re.compile(r"(.*?<main\b[^>]*>)(.*)(</main>.*)", re.S)
SCRIPT = re.compile(r"<script\b([^>]*)>(.*?)</script>", re.S)
#: Attributes of a script that is fetched, or that is data, which no policy forbids.
NOT_INLINE = re.compile(r'\ssrc=|\stype="(?!module"|(?:text|application)/javascript")')
HANDLER = re.compile(r'\son[a-z]+="([^"]*)"')
POLICY = (
    "default-src 'none'; script-src 'self'{allowed}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'"
)
#: What both renderers leave amiss in the shell: landmarks without a name, folding links that
#: pass for landmarks and out of a keyboard's reach, and links to a folder, which a reader of
#: files would be shown as a list.
AMISS = (
    (r'<nav class="quarto-secondary-nav"', r'\g<0> aria-label="This page"'),
    (r'<nav id="quarto-sidebar"', r'\g<0> aria-label="All pages"'),
    (r'<nav id="TOC"', r'\g<0> aria-label="On this page"'),
    (r'(<a\b[^>]*?) role="navigation"', r'\1 role="button"'),
    (r'(<a\b(?![^>]*\shref=)[^>]*\sdata-bs-target="(#[\w-]+)")', r'\1 href="\2"'),
    (r'\shref="\.{1,2}/(?:\.\./)*(?=")', r"\g<0>index.html"),
)
#: The start of an address that is seen from the page's own folder.
RELATIVE = re.compile(r'\s(?:(?:href|src)="(?![#/"]|[a-z]+:)|content="(?=\.{1,2}/))')
TITLE = re.compile(r"(?<=<title>)[^<]*?(?= – |</title>)")
#: Pages of runs that one process makes in a row.
PIECE = 100
CONTENTS = re.compile(r'<nav id="TOC".*?</nav>', re.S)


@dataclass(frozen=True)
class Page:
    """One rendered page: its shell before and after the main part, and that part."""

    before: str
    main: str
    after: str

    @classmethod
    def read(cls, path: Path) -> Page:
        """Read a page; one without a main part is all shell."""
        text = path.read_text(encoding="utf-8")
        found = PARTS.fullmatch(text)
        return cls(*found.groups()) if found else cls(text, "", "")

    @cached_property
    def inline(self) -> frozenset[str]:
        """What the shell itself would run: bodies of scripts, and of handlers of events."""
        shell = self.before + self.after
        scripts = [body for kind, body in SCRIPT.findall(shell) if not NOT_INLINE.search(kind)]
        return frozenset([*scripts, *map(html.unescape, HANDLER.findall(shell))])

    def text(self) -> str:
        return self.before + self.main + self.after


def finish(site: Path, *, root: Path, shown: Sequence[Record]) -> None:
    """Finish the pages below `site` in place, and add those of the runs of `shown`.

    A renderer's inline script is allowed by its hash if it stands outside the main part of
    every page: nothing that a record holds can bring one of its own.
    """
    if (script := root / "report" / "site.js").exists():
        shutil.copyfile(script, site / "site.js")
    paths = [path for path in sorted(site.rglob("*.html")) if "site_libs" not in path.parts]
    pages = {path: Page.read(path) for path in paths}
    shells = [page.inline for page in pages.values() if page.main]
    own = frozenset.intersection(*shells) if shells else frozenset()
    for path, page in pages.items():
        pages[path] = finished(page, head=_head(site, path, policy(own)))
        path.write_text(pages[path].text(), encoding="utf-8")
    mains = {path.relative_to(site).as_posix(): page.main for path, page in pages.items()}
    complete_index(site, mains, shown)
    made_by = digest(surroundings(root) | code(f"import {cards.__name__}", package()))
    for record in shown:
        runs = site / "report" / record.name / "runs"
        if record.reading and (shell := pages.get(runs.with_suffix(".html"))):
            runs.mkdir(exist_ok=True)
            cache = root / ".cache" / "runs" / record.name
            for run, kept in _kept_runs(record, cache, made_by).items():
                main = kept.read_text(encoding="utf-8").partition("\n")[2]
                text = stamped(shell, main, title=f"Run {run}").text()
                (runs / f"{run}.html").write_text(text, encoding="utf-8")


def policy(inline: frozenset[str]) -> str:
    """Return the content security policy that allows these inline scripts and no others."""
    digests = (hashlib.sha256(text.encode()).digest() for text in inline)
    hashes = sorted(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return POLICY.format(allowed=" ".join(["", "'unsafe-hashes'", *hashes] if hashes else []))


def _head(site: Path, path: Path, rules: str) -> str:
    """Return what a page's head begins with: policy, script, feeds of its record and of all."""
    parts = [f'<meta http-equiv="Content-Security-Policy" content="{rules}">']
    for target in dict.fromkeys((site / "site.js", path.with_name("feed.xml"), site / "feed.xml")):
        if target.exists():
            address = os.path.relpath(target, path.parent)
            parts.append(
                f'<script src="{address}" defer></script>'
                if target.suffix == ".js"
                else f'<link rel="alternate" type="application/atom+xml" href="{address}">'
            )
    return "".join(parts)


def finished(page: Page, *, head: str) -> Page:
    """Return a page with `head` at the start of its own, mended, its figures numbered."""
    before, after = page.before, page.after
    for pattern, mended in AMISS:
        before, after = (re.sub(pattern, mended, part) for part in (before, after))
    before = re.sub(r"<meta charset=[^>]*>", lambda found: found[0] + head, before, count=1)
    number = count(1)
    main = re.sub(
        "<figcaption>", lambda found: f"{found[0]}<b>Figure {next(number)}.</b> ", page.main
    )
    return Page(before, main, after)


def stamped(shell: Page, main: str, *, title: str) -> Page:
    """Return a page one folder below that of `shell`, with `main` in it and no contents."""
    before, after = (
        RELATIVE.sub(r"\g<0>../", CONTENTS.sub("", part)) for part in (shell.before, shell.after)
    )
    return Page(TITLE.sub(title, before, count=1), main, after)


def _kept_runs(record: Record, cache: Path, made_by: str) -> dict[str, Path]:
    """Return by run the file in `cache` that holds the main part of its page, made again if due.

    The first line of a file is the digest of all that the rest of it is made of.
    """
    runs, keys = cards.run_pages(record), dict[str, str]()
    for place, run in enumerate(runs):
        beside = runs[max(place - 1, 0) : place + 2]
        made_of = [made_by, record.as_of, record.panel, beside, record.dated.get(run)]
        keys[run] = sha256_hex(orjson.dumps(made_of) + read_bytes(record.store.reading(run)))
    cache.mkdir(parents=True, exist_ok=True)
    kept = {run: cache / f"{run}.html" for run in runs}
    due = [run for run, path in kept.items() if _first_line(path) != keys[run]]
    for run, main in zip(due, _made(record, due), strict=True):
        part = kept[run].with_suffix(".part")
        part.write_text(f"{keys[run]}\n{main}", encoding="utf-8")
        part.replace(kept[run])
    return kept


def _first_line(path: Path) -> str:
    if not path.exists():
        return ""
    with path.open(encoding="utf-8") as stream:
        return stream.readline().removesuffix("\n")


def _made(record: Record, runs: list[str]) -> Iterator[str]:
    """Yield the main parts of the pages of `runs`, made in worker processes if they are many."""
    if len(runs) < 2 * PIECE:
        yield from _pages(record, runs)
        return
    parts = [runs[start : start + PIECE] for start in range(0, len(runs), PIECE)]
    # What a record has read stays here: a worker reads what it needs.
    bare = partial(_pages, replace(record))
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        for part in pool.map(bare, parts):
            yield from part


def _pages(record: Record, runs: list[str]) -> list[str]:
    return [str(cards.run_page(record, run)) for run in runs]
