"""The work of a build: a notebook, the parameters to run it with, and the page it makes."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drift.errors import ConfigurationError, DriftError
from drift.report.inputs import Inputs


@dataclass(frozen=True)
class Notebook:
    """A notebook as it is stored, ``notebooks/<page>.ipynb``, and what it says of itself.

    ``declared`` holds type and default of each parameter by its name; ``needs`` begins the
    name of a file without which a record has no such page, empty for none.
    """

    path: Path
    text: str
    declared: Mapping[str, tuple[str, str]]
    needs: str

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.name}"

    @property
    def source(self) -> str:
        """The code of all cells."""
        cells = json.loads(self.text)["cells"]
        return "\n".join("".join(it["source"]) for it in cells if it["cell_type"] == "code")


@dataclass(frozen=True)
class Job:
    """One notebook to run with its parameters, for a page named ``<record>/<page>``.

    ``reads`` are the digests of the record's files whose change makes the page another one.
    """

    page: str
    notebook: Notebook
    parameters: dict[str, Any]
    reads: Inputs = field(default_factory=dict)


def read_notebook(path: Path) -> Notebook:
    """Return the notebook at `path`; DriftError if it is damaged."""
    import papermill

    text = path.read_text(encoding="utf-8")
    try:
        first = json.loads(text)["cells"][0]
        found = papermill.inspect_notebook(path)
    except Exception as error:
        raise DriftError(
            "the notebook cannot be read", where=str(path), got=f"{type(error).__name__}: {error}"
        ) from None
    needs = re.search(r"^needs:\s*(\S+)", "".join(first["source"]), re.M)
    declared = {name: (item["inferred_type_name"], item["default"]) for name, item in found.items()}
    return Notebook(path, text, declared, needs[1] if needs else "")


def check_parameters(job: Job) -> None:
    """Refuse a parameter that the notebook does not declare, or of another type.

    Raises
    ------
    ConfigurationError
        Names the parameter, the nearest declared one and all that are declared.
    """
    found = {name: kind for name, (kind, _) in job.notebook.declared.items()}
    for name, value in job.parameters.items():
        kind = type(value).__name__
        if found.get(name) != kind:
            near = difflib.get_close_matches(name, found, n=1, cutoff=0.0)
            raise ConfigurationError(
                f"parameter {name!r} is {'of the wrong type' if name in found else 'unknown'}",
                where=str(job.notebook.path),
                got=f"{value!r} ({kind})",
                expected=", ".join(f"{name}: {kind}" for name, kind in found.items()),
                next_step=f"did you mean {near[0]!r}?" if near and name not in found else None,
            )


def named(jobs: Iterable[Job], names: Iterable[str]) -> set[str]:
    """Return the pages that are meant by ``<record>/<page>`` or, in all records, ``<page>``.

    Raises
    ------
    ConfigurationError
        No page has such a name; says the nearest.
    """
    pages = {job.page: job.page.partition("/")[2] for job in jobs}
    found: set[str] = set()
    for name in names:
        meant = {page for page, stem in pages.items() if name in (page, stem)}
        if not meant:
            known = [*pages, *dict.fromkeys(pages.values())]
            near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.0)
            raise ConfigurationError(
                f"there is no page {name!r}",
                expected=", ".join(pages),
                next_step=f"did you mean {near[0]!r}?" if near else None,
            )
        found |= meant
    return found
