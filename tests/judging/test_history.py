"""The versions of the judge are on record, the present one last."""

from __future__ import annotations

import ast
import inspect
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from drift.config import sha256_hex
from drift.errors import ConfigurationError
from drift.judging import load_judge, rules, ruleset, view
from drift.judging.history import load_history

MODULES = (rules, ruleset, view)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
FOLDER = Path(__file__).resolve().parents[2] / "config" / "judge"


def test_the_last_version_is_the_present_judge():
    judge, last = load_judge(FOLDER), load_history(FOLDER).version[-1]
    assert (last.version, last.rules, last.fingerprint) == (
        judge.version,
        judge.rules_hash,
        judge.fingerprint,
    )


def test_code_that_decides_a_label_is_not_changed_without_notice():
    """The rules hash covers the rules' bytes and CODE_VERSION, not the code itself.

    Where this fails: if `drift judge diff registered` and the tests show that no label moves,
    put the new digest into history.toml; else raise CODE_VERSION and add a version.
    """
    digest = sha256_hex("".join(map(without_prose, MODULES)).encode())
    assert digest == load_history(FOLDER).version[-1].code


def without_prose(module: ModuleType) -> str:
    """Return a module as its syntax tree, without comments, docstrings and layout."""
    tree = ast.parse(inspect.getsource(module))
    for node in ast.walk(tree):
        if ast.get_docstring(node) if isinstance(node, DOCUMENTED) else None:
            node.body.pop(0)
    return ast.unparse(tree)


def test_versions_follow_each_other_and_none_stands_there_twice():
    versions = load_history(FOLDER).version
    assert [one.since for one in versions] == sorted(one.since for one in versions)
    assert len({one.rules for one in versions}) == len(versions)


def test_the_labels_that_a_later_version_moved_are_stated():
    assert all(one.moved for one in load_history(FOLDER).version[1:])


def test_a_known_miss_is_a_disagreement_and_stands_there_once():
    misses = load_history(FOLDER).miss
    assert misses and len({one.id for one in misses}) == len(misses)
    assert all(one.judged != one.people for one in misses)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('reason = "', 'reazon = "'), "version.0.reason: Field required"),
        (('rules = "', 'rules = "x'), "version.0.rules: String should match"),
        (("since = 2026-11-29", 'since = "soon"'), "version.0.since"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, change: tuple[str, str], said: str):
    shutil.copy(FOLDER / "history.toml", tmp_path)
    path = tmp_path / "history.toml"
    path.write_text(path.read_text().replace(*change, 1))
    with pytest.raises(ConfigurationError) as caught:
        load_history(tmp_path)
    assert said in str(caught.value)
