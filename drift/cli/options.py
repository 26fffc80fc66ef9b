"""Options that several commands share, and the records that they name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from drift.config import load_panel, project_root
from drift.errors import ConfigurationError
from drift.records.store import Store
from drift.refresh import Record

PanelOption = Annotated[
    str, typer.Option("--panel", help="A name in config/panels, or the path of a panel file.")
]
DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="Folder that holds the records; by default data/ of the project."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def refuse_existing(path: Path | None, option: str) -> None:
    """Refuse a file to write that is there already, be it a link to nothing or a device."""
    if path and (path.exists() or path.is_symlink()):
        raise ConfigurationError(
            "the file is there already",
            where=str(path),
            next_step=f"name a new file with {option}",
        )


def open_record(panel: str, data: Path | None) -> Record:
    root = project_root()
    loaded = load_panel(panel, root=root)
    return Record(loaded, folder=(data or root / "data") / loaded.name, root=root)


def named_records(panel: list[str] | None, data: Path | None) -> list[tuple[str, Path]]:
    """Return the records named, or all that are there, each with its folder."""
    folder = data or project_root() / "data"
    names = panel or sorted(path.name for path in folder.glob("*") if Store(path).holds_anything())
    known(folder, names if data is None else [*names, "."])
    return [(name, folder / name) for name in names]


def known(folder: Path, names: list[str]) -> None:
    """Refuse a record, or a folder of records, that is not there."""
    missing = [
        name
        for name in names
        if not (folder.is_dir() if name == "." else Store(folder / name).holds_anything())
    ]
    if missing:
        present = sorted(path.name for path in folder.glob("*") if Store(path).holds_anything())
        raise ConfigurationError(
            "no such record",
            where=str(folder),
            got=", ".join(missing),
            expected=", ".join(present) or "a folder that holds records",
            next_step="correct --panel or --data",
        )
