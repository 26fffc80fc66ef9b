"""The pages of a report: which notebooks run again, with what, and what is kept.

Nothing of a failed build is shown, and two builds of one record give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import orjson

from drift.config import sha256_hex
from drift.errors import DriftError
from drift.report.inputs import (
    Inputs,
    code,
    compared,
    digest,
    keep,
    kept,
    package,
    surroundings,
)
from drift.report.job import Job, check_parameters, named
from drift.report.kernels import Failure, Run, outcomes

#: Called with the page that has just ended, how many have ended, and how many there are.
Progress = Callable[[str, int, int], None]
Say = Callable[[str], None]


def inputs(jobs: Iterable[Job], root: Path) -> dict[str, Inputs]:
    """Return what each page depends on, by page."""
    modules, around = package(), surroundings(root)
    found = {}
    for job in jobs:
        source = f"{job.notebook.source}\nimport {__name__}"
        own = {
            "parameters": digest(job.parameters),
            job.notebook.name: sha256_hex(job.notebook.text.encode()),
        }
        found[job.page] = {**around, **code(source, modules), **own, **job.reads}
    return found


def why_again(jobs: Sequence[Job], page: str, root: Path) -> list[str]:
    """Return a line for each input of a page, and whether the page would run again."""
    lines = []
    for job in jobs:
        if job.page not in named(jobs, [page]):
            continue
        before, _ = kept(root, job.page)
        found = compared(before, inputs([job], root)[job.page])
        moved = sum(word != "unchanged" for word in found.values())
        lines += [f"{word:9}  {name}" for name, word in found.items()]
        again = "does not run again: nothing has changed"
        if moved:
            again = f"runs again: {moved} of {len(found)} inputs are not as they were"
        if not before:
            again = "runs again: no such page is kept"
        lines.append(f"{job.page} {again}")
    return lines


def execute(
    jobs: Sequence[Job],
    *,
    root: Path,
    only: Iterable[str] = (),
    progress: Progress | None = None,
    say: Say | None = None,
) -> dict[str, str]:
    """Run every job whose inputs changed; return executed notebooks by ``<record>/<page>.ipynb``.

    Parameters
    ----------
    only : iterable of str, optional
        Pages as in :func:`named`: these run in any case, and another only if no page
        with its parameters is kept.

    Raises
    ------
    ConfigurationError
        A parameter is unknown or of the wrong type, or a page; nothing has run.
    DriftError
        A notebook failed; ``report/failures.json`` holds all failures.
    """
    for job in jobs:
        check_parameters(job)
    asked, now, stale = named(jobs, only), inputs(jobs, root), 0
    done: dict[str, str] = {}
    for job in jobs:
        before, text = kept(root, job.page)
        same = before == now[job.page]
        usable = asked and before.get("parameters") == now[job.page]["parameters"]
        if job.page not in asked and (same or usable):
            done[f"{job.page}.ipynb"] = text
            stale += not same
    if stale and say:
        say(f"{stale} other pages are shown as kept, though inputs of theirs have changed")
    waiting = [job for job in jobs if f"{job.page}.ipynb" not in done]
    # Simulations last longest, so they begin first.
    waiting.sort(key=lambda job: "lifetimes" not in job.notebook.declared)
    failures = []
    with closing(outcomes(_runs(waiting, now, root), root=root)) as ending:
        for ended, (page, outcome) in enumerate(ending, start=1):
            if isinstance(outcome, Failure):
                failures.append(outcome)
            else:
                done[f"{page}.ipynb"] = outcome
                keep(root, page, now[page], outcome)
            if progress:
                progress(page, ended, len(waiting))
    listed = root / "report" / "failures.json"
    listed.unlink(missing_ok=True)
    if failures:
        failures.sort(key=lambda failure: failure.page)
        listed.write_bytes(orjson.dumps(failures, option=orjson.OPT_INDENT_2))
        raise DriftError(
            f"{len(failures)} of {len(jobs)} pages failed\n" + "\n\n".join(map(str, failures)),
            where="report/failures.json",
            next_step="the site from before is unchanged; mend the cause and build again",
        )
    return {f"{job.page}.ipynb": done[f"{job.page}.ipynb"] for job in jobs}


def _runs(jobs: Sequence[Job], now: Mapping[str, Inputs], root: Path) -> list[Run]:
    """Return the jobs as the kernels take them, each with the end of its page."""
    from drift.report.colophon import colophon

    return [
        Run(
            job.page,
            job.notebook.name,
            job.notebook.text,
            job.parameters,
            colophon(job, now[job.page], root),
        )
        for job in jobs
    ]
