"""The site: execute the notebooks, write the generated parts, render, publish.

Everything is made beside what is there and moved into place at the end: whatever
fails, the site that was there before stays.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import orjson

from drift.config import sha256_hex
from drift.errors import ConfigurationError, DriftError, IntegrityError
from drift.records.ledger import Ledger
from drift.records.store import Store, locked, read_bytes
from drift.report.execute import Progress, Say, execute
from drift.report.finish import finish
from drift.report.front import front_page
from drift.report.inputs import Inputs, digests, record_inputs, surroundings
from drift.report.job import Job, named, read_notebook
from drift.report.markup import fill
from drift.report.published import publish_files
from drift.report.tables import load_record, run_ids

AS_OF = "This is the report as of run {}: what came after that run is left out."
#: An import of a style sheet or font from another host, as themes have it; the address,
#: quoted or not, may hold semicolons.
REMOTE_IMPORT = re.compile(
    rb"""@import\s*(?:url\(\s*(?:https?:)?//[^)]*\)|(?:url\(\s*)?(["'])(?:https?:)?//.*?\1\s*\)?)[^;]*;"""
)


@dataclass(frozen=True)
class RecordRef:
    """A record to show: its name, which is its folder below ``report/``, and where it lies."""

    name: str
    folder: Path

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", self.name) or self.name == "method":
            raise ConfigurationError(
                f"record cannot be named {self.name!r}",
                expected="lower-case letters, digits, '.', '_' and '-'; not 'method'",
            )


def build_site(
    *,
    root: Path,
    records: Sequence[RecordRef],
    as_of: str = "",
    only: Sequence[str] = (),
    render: bool = True,
    note: str = "",
    progress: Progress | None = None,
    say: Say | None = None,
) -> Path:
    """Build the report of `records`, and of nothing else; return its ``index.html``.

    A site is not made again when nothing has changed that it is made of.

    Parameters
    ----------
    root : Path
        The project.
    as_of : str, optional
        A run id of one of the records: what came after it is left out of all of them.
    only : sequence of str, optional
        Pages, ``<record>/<page>`` or ``<page>``, that run in any case; the others are shown as
        they are kept. Without `render` these alone run.
    render : bool
        False stops after the notebooks and returns their folder; ``quarto render`` then
        makes the site.
    note : str, optional
        A sentence for the front page, for example why a record is missing.

    Raises
    ------
    ConfigurationError
        No record holds that run, no notebook makes that page, or a notebook has an unknown
        or mistyped parameter.
    DriftError
        Another command is building this report, a record changed twice while it was built, or
        a notebook or the renderer failed; the site from before is untouched.
    IntegrityError
        The head of a record is not the end of its chain, or its last reading is not of it.
    """
    report = root / "report"
    site, stamped = report / "_site", root / ".cache" / "site.sha256"

    def build() -> Path:
        before = _read(records)
        jobs = plan(root, records, as_of)
        if only and not render:
            jobs = [job for job in jobs if job.page in named(jobs, only)]
        executed = execute(jobs, root=root, only=only, progress=progress, say=say)
        _same_records(records, before)
        if only and not render:
            _write(report, executed)
            return report
        quarto = quarto_version()
        renderer = f"Quarto {quarto}" if quarto else f"smalldocs {version('smalldocs')}"
        stamp = _stamp(root, before, executed, as_of, note, renderer)
        if render and stamped.exists() and stamped.read_text() == _stamp_of(site, stamp):
            return site / "index.html"
        shown = [
            load_record(ref.name, folder=ref.folder.resolve(), as_of=as_of, root=root)
            for ref in records
        ]
        footer = fill(root, "footer", version=version("refusal-drift"), renderer=renderer)
        _clear(report)
        _write(report, executed)
        front = front_page(shown, " ".join(filter(None, (as_of and AS_OF.format(as_of), note))))
        _write(report / "_generated", {"front.md": front, "footer.html": footer})
        stamped.unlink(missing_ok=True)
        if not render:
            return report

        def make(fresh: Path) -> None:
            (_render_quarto if quarto else _render_smalldocs)(root, fresh)
            publish_files(root, shown, executed, fresh)
            finish(fresh, root=root, shown=shown)
            _same_records(records, before)

        publish(make, site)
        stamped.write_text(_stamp_of(site, stamp))
        return site / "index.html"

    with locked(root / ".cache" / "report.lock", doing="building this report"):
        for ref in records:
            _check_head(ref)
        try:
            return build()
        except RecordChanged:  # a run landed: no page may show it beside one that does not
            return build()


class RecordChanged(DriftError):
    """A record is not as it was when the build began."""


def _read(records: Sequence[RecordRef]) -> dict[str, Inputs]:
    """Return the digests of what pages read of each record."""
    return {ref.name: record_inputs(ref.folder, ref.name) for ref in records}


def _same_records(records: Sequence[RecordRef], before: Mapping[str, Inputs]) -> None:
    now = _read(records)
    if moved := [name for name in now if now[name] != before[name]]:
        raise RecordChanged(
            f"a record changed while its report was built: {', '.join(moved)}",
            next_step="build again when the command that changes it has ended",
        )


def _check_head(ref: RecordRef) -> None:
    """Refuse a record whose chain was visibly cut or edited; a seal may be under way."""
    ledger, runs = Ledger(ref.folder), run_ids(ref.folder)
    head, last = ledger.read_head(), ledger.last()
    sound = head in (last.named, last.before) if last else not head
    if sound and runs:
        reading = orjson.loads(read_bytes(Store(ref.folder).reading(runs[-1])))
        sound = reading["head"] in (line.named for line in ledger.backwards())
    if not sound:
        raise IntegrityError(
            "head.json, chain.jsonl and the last reading disagree: the record was cut or edited",
            where=str(ref.folder),
            next_step="run `drift verify` and restore the record from a copy",
        )


def plan(root: Path, records: Sequence[RecordRef], as_of: str = "") -> list[Job]:
    """Return a job for each page: of a record and a notebook, or of a notebook that needs none.

    A notebook without a parameter ``panel`` belongs to no record. The parameter ``folder``
    is given for a record that lies elsewhere than in ``data/``; the kernels leave it out of the
    page.

    Raises
    ------
    ConfigurationError
        No record holds the run `as_of`; says the one before it.
    """
    known = sorted({item for ref in records for item in run_ids(ref.folder)})
    if as_of and as_of not in known:
        near = max((run for run in known if run < as_of), default=known[0] if known else "")
        raise ConfigurationError(
            f"no record holds a reading of run {as_of!r}",
            next_step=f"did you mean {near!r}?" if near else "there is no run yet",
        )
    notebooks = [read_notebook(path) for path in sorted((root / "notebooks").glob("*.ipynb"))]
    jobs = [
        Job(f"method/{notebook.path.stem}", notebook, {})
        for notebook in notebooks
        if "panel" not in notebook.declared
    ]
    for ref in records:
        reads = record_inputs(ref.folder, ref.name)
        parameters = {"panel": ref.name, "as_of": as_of}
        place = ref.folder.resolve()
        if place != (root / "data" / ref.name).resolve():
            parameters["folder"] = os.path.relpath(place, root.resolve())
        jobs += [
            Job(f"{ref.name}/{notebook.path.stem}", notebook, parameters, reads)
            for notebook in notebooks
            if "panel" in notebook.declared
            and (not notebook.needs or any(ref.folder.glob(f"{notebook.needs}*")))
        ]
    return jobs


def _stamp(root: Path, read: Mapping[str, Inputs], *made_of: object) -> str:
    """Return the digest of all that the site is made of."""
    own = [root / "_quarto.yml", root / "index.qmd"]
    own += [path for path in (root / "report").iterdir() if path.is_file()]
    package = Path(__file__).parents[1]
    files = {**digests(own, root), **digests(package.rglob("*.py"), package)}
    whole = [files, read, surroundings(root), made_of]
    return sha256_hex(orjson.dumps(whole, option=orjson.OPT_SORT_KEYS))


def _stamp_of(site: Path, made_of: str) -> str:
    """Return the digest of `made_of` and of the files of `site`, each with its size."""
    files = (path for path in site.rglob("*") if path.is_file())
    sizes = sorted((path.relative_to(site).as_posix(), path.stat().st_size) for path in files)
    return sha256_hex(orjson.dumps([made_of, sizes]))


def _clear(report: Path) -> None:
    """Remove executed notebooks, and the folders that held nothing else."""
    for page in sorted(report.glob("[!_]*/*.ipynb")):
        page.unlink()
        # Quarto stops at a folder of the sidebar that is there and holds no page.
        if not any(page.parent.iterdir()):
            page.parent.rmdir()


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def sidebar_lines(root: Path, names: Iterable[str]) -> list[str]:
    """Return what to add to ``_quarto.yml`` for records that it does not list, ready to paste."""
    listed = (root / "_quarto.yml").read_text(encoding="utf-8")
    lines = [
        line
        for name in names
        if f"report/{name}/" not in listed
        for line in (
            f"      # The record {name}, its pages in the order of their front matter.",
            "      # drift report writes them; while there are none, the section stays empty.",
            f"      - section: {name.replace('-', ' ').capitalize()}",
            f"        contents: report/{name}/*.ipynb",
        )
    ]
    return ["for the sidebar, add to _quarto.yml at the end of contents:", *lines] if lines else []


def quarto_version() -> str | None:
    """Return the version of the ``quarto`` on PATH, or None if there is none that runs."""
    command = ["quarto", "--version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip() or None


def publish(make: Callable[[Path], None], site: Path) -> None:
    """Make a site in a fresh folder and put it in the place of `site`.

    Raises
    ------
    DriftError
        The renderer failed or wrote no index; `site` is as it was.
    """
    fresh, old = site.with_name("_site.new"), site.with_name("_site.old")
    if old.exists() and not site.exists():  # a build was cut off between the two renames
        old.rename(site)
    for folder in (fresh, old):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        make(fresh)
        if not (fresh / "index.html").exists():
            raise DriftError("the renderer wrote no index.html", where=str(fresh))
        for sheet in fresh.rglob("*.css"):
            sheet.write_bytes(REMOTE_IMPORT.sub(b"", sheet.read_bytes()))
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    if site.exists():
        site.rename(old)
    fresh.rename(site)
    shutil.rmtree(old, ignore_errors=True)


def _render_quarto(root: Path, into: Path) -> None:
    target = into.relative_to(root).as_posix()
    command = ["quarto", "render", str(root), "--output-dir", target]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root)
    if done.returncode:
        raise DriftError("quarto failed", where="_quarto.yml", got=done.stderr.strip()[-2000:])


def _render_smalldocs(root: Path, into: Path) -> None:
    from smalldocs.config import BuildError, ConfigError, load
    from smalldocs.site import Site

    try:
        project = load(root)
        project.config["project"]["output-dir"] = into.relative_to(root).as_posix()
        Site(project, quiet=True).build()
    except (BuildError, ConfigError) as error:
        raise DriftError("smalldocs failed", where="_quarto.yml", got=str(error)) from None
