"""The site: execute the notebooks, write the generated parts, render, publish.

Everything is made beside what is there and moved into place at the end: whatever
fails, the site that was there before stays.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from drift.errors import ConfigurationError, DriftError
from drift.report.execute import Job, Progress, declared, execute
from drift.report.markup import fill
from drift.report.pages import front_page
from drift.report.tables import load_record, run_ids

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
    """Build the report of `records`, and of nothing else; return its ``index.html``.

    Parameters
    ----------
    root : Path
        The project.
    as_of : str, optional
        A run id of one of the records: what came after it is left out of all of them.
    render : bool
        False stops after the notebooks; ``quarto render`` then makes the site.
    note : str, optional
        A sentence for the front page, for example why a record is missing.

    Raises
    ------
    ConfigurationError
        No record holds that run, or a notebook with an unknown or mistyped parameter.
    DriftError
        A notebook or the renderer failed; the site from before is untouched.
    """
    run, report = as_of or "", root / "report"
    known = sorted({item for ref in records for item in run_ids(ref.folder)})
    if run and run not in known:
        near = difflib.get_close_matches(run, known, n=1, cutoff=0.0)
        raise ConfigurationError(
            f"no record holds a reading of run {run!r}",
            next_step=f"the nearest is {near[0]}" if near else "there is no run yet",
        )
    executed = execute(_jobs(root, records, run), root=root, progress=progress)
    quarto = quarto_version()
    renderer = f"Quarto {quarto}" if quarto else f"smalldocs {version('smalldocs')}"
    footer = fill(root, "footer", version=version("refusal-drift"), renderer=renderer)
    shown = [
        load_record(ref.name, folder=ref.folder.resolve(), as_of=run, root=root) for ref in records
    ]
    generated = {"_generated/front.md": front_page(shown, note), "_generated/footer.html": footer}
    for page in sorted(report.glob("[!_]*/*.ipynb")):
        page.unlink()
        # Quarto stops at a folder of the sidebar that is there and holds no page.
        if not any(page.parent.iterdir()):
            page.parent.rmdir()
    for name, text in (executed | generated).items():
        target = report / name
        target.parent.mkdir(exist_ok=True)
        target.write_text(text, encoding="utf-8")
    if render:
        publish(_render_quarto if quarto else _render_smalldocs, root, report / "_site")
    return report / "_site" / "index.html"


def _jobs(root: Path, records: Sequence[RecordRef], as_of: str) -> list[Job]:
    """Return one job for each record and notebook, after those that belong to no record.

    A notebook without a parameter ``panel`` belongs to none. None holds a path of this machine.
    """
    notebooks = sorted((root / "notebooks").glob("*.ipynb"))
    of_records = [path for path in notebooks if "panel" in declared(path)]
    once = [path for path in notebooks if path not in of_records]
    jobs = [Job(f"method/{path.stem}", path, {}) for path in once]
    for ref in records:
        # head.json stands for the transcripts and labels, which it seals.
        reads = sorted([*ref.folder.glob("*.json*"), *ref.folder.glob("[cr]*s/*.json")])
        folder = os.path.relpath(ref.folder.resolve(), root.resolve())
        parameters = {"panel": ref.name, "folder": folder, "as_of": as_of}
        jobs += [
            Job(f"{ref.name}/{path.stem}", path, parameters, tuple(reads)) for path in of_records
        ]
    return jobs


def quarto_version() -> str | None:
    """Return the version of the ``quarto`` on PATH, or None if there is none that runs."""
    command = ["quarto", "--version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
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
        sheet.write_bytes(REMOTE_IMPORT.sub(b"", sheet.read_bytes()))
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
