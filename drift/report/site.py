"""The site: execute the notebooks, write the generated parts, render, publish.

Everything is made beside what is there and moved into place at the end: whatever
fails, the site that was there before stays.
"""

from __future__ import annotations

import difflib
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from drift.errors import ConfigurationError, DriftError
from drift.report import pages
from drift.report.execute import Job, Progress, execute
from drift.report.markup import escaped, percent, when
from drift.report.tables import Record, load_record, run_ids

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
    as_of: str | None = None,
    render: bool = True,
    note: str | None = None,
    progress: Progress | None = None,
) -> Path:
    """Build the report of `records` and return the path of its ``index.html``.

    Parameters
    ----------
    root : Path
        The project: it holds ``notebooks/``, ``_quarto.yml`` and ``report/``.
    records : sequence of RecordRef
        What the site shows, and all it shows, in this order.
    as_of : str, optional
        A run id of one of the records: what came after it is left out of all of them.
    render : bool
        False stops after the notebooks; ``quarto render`` then makes the site.
    note : str, optional
        A sentence for the front page, for example why a record is missing.
    progress : callable, optional
        Called as each page ends.

    Raises
    ------
    ConfigurationError
        No record holds that run, or a notebook with an unknown or mistyped parameter.
    DriftError
        A notebook or the renderer failed; the site from before is untouched.
    """
    run = as_of or ""
    folders = {ref.name: ref.folder.resolve() for ref in records}
    known = sorted({item for folder in folders.values() for item in run_ids(folder)})
    if run and run not in known:
        near = difflib.get_close_matches(run, known, n=1, cutoff=0.0)
        raise ConfigurationError(
            f"no record holds a reading of run {run!r}",
            next_step=f"the nearest is {near[0]}" if near else "there is no run yet",
        )
    loaded = [
        load_record(name, folder=folder, as_of=run, root=root) for name, folder in folders.items()
    ]
    report, generated = root / "report", root / "report" / "_generated"
    fresh = generated / "executed"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    execute(_jobs(root, records, run), fresh, root=root, progress=progress)
    for page in sorted(report.glob("[!_]*/*.ipynb")):
        page.unlink()
        # Quarto stops at a folder of the sidebar that is there and holds no page.
        if not any(page.parent.iterdir()):
            page.parent.rmdir()
    for page in sorted(fresh.glob("*/*.ipynb")):
        target = report / page.relative_to(fresh)
        target.parent.mkdir(exist_ok=True)
        page.rename(target)
    shutil.rmtree(fresh)
    renderer = quarto_version()
    named = f"Quarto {renderer}" if renderer else f"smalldocs {version('smalldocs')}"
    (generated / "front.md").write_text(front_page(loaded, note), encoding="utf-8")
    (generated / "footer.html").write_text(
        f'<footer class="drift-footer">refusal-drift {version("refusal-drift")}. '
        f"Rendered with {named}. Every number is re-derivable from the sealed record.</footer>\n",
        encoding="utf-8",
    )
    site = report / "_site"
    if render:
        publish(_render_quarto if renderer else _render_smalldocs, root, site)
    return site / "index.html"


def front_page(records: Sequence[Record], note: str | None) -> str:
    """Return the generated part of the front page: each record and model at a glance."""
    parts = [f'<p class="drift-banner">{escaped(note)}</p>'] if note else []
    for record in records:
        parts.append(f'<section class="drift-record"><h2>{escaped(record.title)}</h2>')
        if record.reading is None:
            parts.append(f"<p>{pages.NO_RUN}</p></section>")
            continue
        reading, folder = record.reading, f"report/{escaped(record.name)}"
        parts.append(pages.banner(record))
        cards = [_card(key, model, folder) for key, model in record.models.items()]
        parts.append(
            f"<p>Run {escaped(reading['run'])}, {when(reading['started_at'])}, "
            f"{escaped(reading['scope'])}. "
            f'<a href="{folder}/reading.html">Reading</a> · <a href="{folder}/rates.html">Rates</a>'
            f' · <a href="{folder}/transcripts.html">Transcripts</a></p>'
            f'<div class="drift-cards">{"".join(cards)}</div>'
            f'<p class="drift-small">Method version {escaped(reading["method_version"])}, judge '
            f"{escaped(reading['judge']['id'])} {escaped(reading['judge']['fingerprint'][:12])}, "
            f"assurance {escaped(reading['assurance'])}, head {reading['head']['seq']} "
            f"<code>{escaped(reading['head']['hash'])}</code></p></section>"
        )
    return "\n".join(["```{=html}", *parts, "```", ""])


def _card(key: str, model: Mapping[str, Any], folder: str) -> str:
    rate, found = model["canonical"], model["coverage"]
    if rate["estimate"] is None:
        figure = f'<p class="drift-big">not estimable</p><p>{escaped(rate["reason"])}</p>'
    else:
        low, high, mark = (round(100 * rate[field], 1) for field in ("low", "high", "estimate"))
        figure = (
            f'<p class="drift-big">{percent(rate["estimate"])} <small>refused</small></p>'
            f'<div class="drift-strip" aria-hidden="true"><i style="left:{low}%;'
            f'width:{round(high - low, 1)}%"></i><b style="left:{mark}%"></b></div>'
            f"<p>{rate['refused']} of {rate['n']} sensitive families, 95 % interval {low} to "
            f"{high} %</p>"
        )
    change, controls = (
        text.replace('href="', f'href="{folder}/')
        for text in (pages.change_text(model), pages.controls_text(model["controls"]))
    )
    return (
        f'<div class="drift-card"><h3>{escaped(key)}</h3>'
        f'<p class="drift-small">{escaped(model["lab"])}, {escaped(model["role"])}</p>{figure}'
        f"<p>{change}</p>"
        f'<p class="drift-small">Coverage: {found["canonical_determined"]} of '
        f"{found['canonical_n']} canonical arms determined.</p>"
        f'<p class="drift-small">Controls: {controls}.</p></div>'
    )


def _jobs(root: Path, records: Sequence[RecordRef], as_of: str) -> list[Job]:
    jobs = []
    for ref in records:
        home = ref.folder.resolve()
        own = home == (root / "data" / ref.name).resolve()
        inside = home.relative_to(root) if home.is_relative_to(root) else home
        shown = "" if own else str(inside)
        parameters = {"panel": ref.name, "folder": shown, "as_of": as_of}
        jobs += [
            Job(ref.name, notebook.stem, notebook, parameters)
            for notebook in sorted((root / "notebooks").glob("*.ipynb"))
        ]
    return jobs


def quarto_version() -> str | None:
    """Return the version of the ``quarto`` on PATH, or None if there is none that runs."""
    found = shutil.which("quarto")
    if found is None:
        return None
    try:
        done = subprocess.run([found, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip() or None


def publish(render: Callable[[Path, Path], None], root: Path, site: Path) -> None:
    """Render into a fresh folder and put it in the place of `site`.

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
    render(root, fresh)
    if not (fresh / "index.html").exists():
        raise DriftError("the renderer wrote no index.html", where=str(fresh))
    for sheet in fresh.rglob("*.css"):
        text = sheet.read_bytes()
        if REMOTE_IMPORT.search(text):
            sheet.write_bytes(REMOTE_IMPORT.sub(b"", text))
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
