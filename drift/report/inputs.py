"""What a page depends on, by name, and the pages that are kept with it.

A page is kept in ``.cache/pages``: one line of JSON, the SHA-256 of each input by its
name, then the executed notebook. While all of them are as they were, so is the page.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

import orjson

from drift.config import sha256_hex
from drift.records.ledger import write_atomically

#: Inputs that differ between machines on which the same page comes out.
MACHINE = ("python", "packages")
#: Digests by the name of what they are of: ``config/alarm.toml``, ``drift/bank.py``, ``packages``.
Inputs = dict[str, str]


@dataclass(frozen=True)
class Module:
    """A module of this package: its file, that file's digest, and the names it imports."""

    file: str
    digest: str
    imports: frozenset[str]


def package() -> dict[str, Module]:
    """Return every module of this package by its dotted name."""
    home, found = Path(__file__).parents[1], {}
    for path in sorted(home.rglob("*.py")):
        place, source = path.relative_to(home.parent), path.read_bytes()
        name = ".".join(place.with_suffix("").parts).removesuffix(".__init__")
        found[name] = Module(place.as_posix(), sha256_hex(source), frozenset(imported(source)))
    return found


def imported(source: str | bytes) -> Iterator[str]:
    """Yield every dotted name that Python source imports anywhere, and the packages above it."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:n]) for n in range(1, len(parts) + 1))


def code(source: str, modules: Mapping[str, Module]) -> Inputs:
    """Return the modules that `source` imports, at any remove; all of them if it has an error."""
    found: Inputs = {}
    try:
        waiting = list(imported(source))
    except SyntaxError:
        waiting = list(modules)
    while waiting:
        module = modules.get(waiting.pop())
        if module and module.file not in found:
            found[module.file] = module.digest
            waiting += module.imports
    return found


def surroundings(root: Path) -> Inputs:
    """Return what every page depends on: interpreter, packages, the project's own files."""
    packages = sorted(f"{item.name} {item.version}" for item in distributions())
    names = ("config", "data/published", "data/synthetic", "report/_templates")
    folders = [root / name for name in names]
    paths = [path for folder in folders for path in folder.rglob("*")]
    # A process of one's own lies beside the notebooks.
    paths += [*root.glob("*.py"), *root.glob("notebooks/*.py")]
    paths += [root / "CITATION.cff", root / "report" / "figures.mplstyle"]
    # A record shows the panel that it registered: of these files only the default one is read.
    unread = {*root.glob("config/panels/*")} - {root / "config" / "panels" / "embedded.toml"}
    files = [path for path in paths if path.is_file() and path not in unread]
    machine = dict(zip(MACHINE, (sys.version, "\n".join(packages)), strict=True))
    return {key: sha256_hex(text.encode()) for key, text in machine.items()} | digests(files, root)


def record_inputs(folder: Path, name: str) -> Inputs:
    """Return what pages read of the record in `folder`, as if it lay in ``data/<name>``.

    ``head.json`` stands for the transcripts and labels, which it seals; the readings are
    one input, and the corpora another.
    """
    files = [path for path in folder.glob("[!.]*") if path.is_file()]
    found = {f"data/{name}/{key}": value for key, value in digests(files, folder).items()}
    for part in ("corpora", "readings"):
        paths = (folder / part).glob("*.json*")
        found[f"data/{name}/{part}/"] = digest(digests(paths, folder))
    return found


def digests(paths: Iterable[Path], root: Path) -> Inputs:
    """Return the digest of each file by its place below `root`."""
    found = ((path.relative_to(root).as_posix(), path.read_bytes()) for path in paths)
    return {place: sha256_hex(data) for place, data in sorted(found)}


def digest(inputs: Inputs) -> str:
    """Return one digest of all inputs, names and all."""
    return sha256_hex(orjson.dumps(inputs, option=orjson.OPT_SORT_KEYS))


def kept(root: Path, page: str) -> tuple[Inputs, str]:
    """Return what the kept page depended on, and its text; both are empty without one."""
    path = root / ".cache" / "pages" / f"{page}.ipynb"
    line, _, text = (path.read_text(encoding="utf-8") if path.exists() else "").partition("\n")
    try:
        found: Inputs = json.loads(line)
    except ValueError:  # none, or kept by an earlier version of this code
        return {}, ""
    return found, text


def keep(root: Path, page: str, inputs: Inputs, text: str) -> None:
    """Keep a page with what it depended on."""
    path = root / ".cache" / "pages" / f"{page}.ipynb"
    write_atomically(path, orjson.dumps(inputs) + b"\n" + text.encode())


def compared(before: Inputs, now: Inputs) -> dict[str, str]:
    """Return for each input whether it is unchanged, changed, new or gone, these three last."""
    words = {
        name: "new" if name not in before else "gone" if name not in now else "changed"
        for name in sorted({**before, **now})
        if before.get(name) != now.get(name)
    }
    return dict.fromkeys(sorted(set(now) - set(words)), "unchanged") | words
