"""Building: the same bytes twice, one build at a time, and a failure that changes nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from report.conftest import ROOT, keep

from drift.config import canonical_json, sha256_hex
from drift.errors import ConfigurationError, DriftError, IntegrityError
from drift.records.store import locked
from drift.report.colophon import colophon
from drift.report.execute import execute, inputs
from drift.report.front import front_page
from drift.report.site import RecordRef, build_site, plan, publish, sidebar_lines
from drift.report.tables import load_record

METHOD = ("ville", "power", "reproduction", "attribution", "aftermath")
LAST = "20261127T180000Z"
NOTE = "The lab's run is missing: <no weights>."


def tree(folder: Path) -> dict[str, bytes]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def records(root: Path) -> list[RecordRef]:
    return [RecordRef(name, root / "data" / name) for name in ("embedded", "empty")]


def test_two_executions_give_the_same_bytes(built: Path) -> None:
    kept = built / ".cache" / "pages"
    for page in (built / "report").glob("*/*.ipynb"):
        text = (kept / page.relative_to(built / "report")).read_text(encoding="utf-8")
        assert text.partition("\n")[2] == page.read_text(encoding="utf-8")
    shutil.rmtree(kept)
    again = execute(plan(built, records(built)[:1]), root=built)
    assert {"embedded/reading.ipynb", "method/ville.ipynb"} <= set(again)
    for page, text in again.items():
        assert text == (built / "report" / page).read_text(encoding="utf-8")


def test_a_notebook_without_a_record_is_executed_once_however_many_records_there_are(
    built: Path,
) -> None:
    pages = [item.page for item in plan(built, records(built), "20261127T060000Z")]
    assert {f"method/{name}" for name in METHOD} <= set(pages)
    assert not {f"embedded/{name}" for name in METHOD} & set(pages)
    assert len(pages) == len(set(pages))


def test_no_page_shows_a_warning_of_the_code_behind_it(built: Path) -> None:
    for path in (built / "report").glob("*/*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            assert [out for out in cell.get("outputs", ()) if out["output_type"] == "stream"] == []


def test_two_builds_give_the_same_site_byte_for_byte(built: Path) -> None:
    first = tree(built / "report" / "_site")
    (built / ".cache" / "site.sha256").unlink()
    build_site(root=built, records=records(built), note=NOTE)
    assert tree(built / "report" / "_site") == first


def test_nothing_is_rendered_when_nothing_has_changed(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    monkeypatch.setattr("drift.report.site.publish", lambda make, site: made.append(site))
    site = build_site(root=built, records=records(built), note=NOTE).parent
    assert made == []
    stamp = built / ".cache" / "site.sha256"
    kept = stamp.read_text()
    build_site(root=built, records=records(built), note="Another note.")
    assert made == [site]
    stamp.write_text(kept)


def test_a_site_that_lost_a_file_is_made_again(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    monkeypatch.setattr("drift.report.site.publish", lambda make, site: made.append(site))
    stamp, page = built / ".cache" / "site.sha256", built / "report/_site/report/method/ville.html"
    kept, text = stamp.read_text(), page.read_bytes()
    for damage in (page.unlink, lambda: page.write_bytes(text[:-1])):
        stamp.write_text(kept)
        damage()
        build_site(root=built, records=records(built), note=NOTE)
        page.write_bytes(text)
    assert made == [built / "report" / "_site"] * 2
    stamp.write_text(kept)


@pytest.fixture
def growing(fresh_project: Path, synthetic: ModuleType) -> tuple[Path, Callable[[], None]]:
    """A project whose record lacks its last run, and what lets that run land."""
    folder = fresh_project / "data" / "embedded"
    synthetic.write_record(folder, fresh_project / "config" / "probe_bank.json")
    keep(fresh_project, "reading")
    late = [folder / "chain.jsonl", folder / "head.json", folder / "readings" / f"{LAST}.json"]
    whole = [path.read_bytes() for path in late]
    lines = whole[0].splitlines(keepends=True)[:-2]
    late[0].write_bytes(b"".join(lines))
    head = {"hash": sha256_hex(lines[-1][:-1]), "seq": len(lines) - 1}
    late[1].write_bytes(canonical_json(head) + b"\n")
    late[2].unlink()

    def land() -> None:
        for path, data in zip(late, whole, strict=True):
            path.write_bytes(data)

    return fresh_project, land


def test_a_run_that_lands_during_a_build_is_on_every_page(
    growing: tuple[Path, Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, land = growing

    def slow(*arguments: Any, **options: Any) -> dict[str, str]:
        done = execute(*arguments, **options)
        land()
        return done

    monkeypatch.setattr("drift.report.site.execute", slow)
    build_site(root=root, records=records(root)[:1], render=False)
    assert LAST in (root / "report/_generated/front.md").read_text(encoding="utf-8")
    assert LAST in (root / "report/embedded/reading.ipynb").read_text(encoding="utf-8")


def test_a_record_that_goes_on_changing_is_not_shown_and_the_site_stays(
    growing: tuple[Path, Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, _ = growing
    later = iter("ab")

    def slow(*arguments: Any, **options: Any) -> dict[str, str]:
        (root / "data" / "embedded" / "series.json").write_text(next(later))
        return {}

    monkeypatch.setattr("drift.report.site.execute", slow)
    with pytest.raises(DriftError, match="embedded") as caught:
        build_site(root=root, records=records(root)[:1])
    assert "changed while its report was built" in str(caught.value)
    assert not (root / "report" / "_generated").exists()


@pytest.mark.parametrize("cut", ["chain.jsonl", "head.json", "both"])
def test_nothing_is_shown_of_a_record_whose_chain_was_cut_or_edited(
    growing: tuple[Path, Callable[[], None]], cut: str
) -> None:
    root, land = growing
    folder = root / "data" / "embedded"
    before = {name: (folder / name).read_bytes() for name in ("chain.jsonl", "head.json")}
    land()
    for name, data in before.items():
        if cut in (name, "both"):
            (folder / name).write_bytes(data)
    with pytest.raises(IntegrityError, match="disagree") as caught:
        build_site(root=root, records=records(root)[:1])
    assert caught.value.exit_code == 4
    assert not (root / "report" / "_generated").exists()


def test_two_builds_of_one_report_exclude_each_other(fresh_project: Path) -> None:
    keep(fresh_project)
    with (
        locked(fresh_project / ".cache" / "report.lock", doing="building this report"),
        pytest.raises(DriftError, match="another command is building this report") as caught,
    ):
        build_site(root=fresh_project, records=[])
    assert caught.value.exit_code == 1
    assert not (fresh_project / "report" / "_site").exists()


def test_every_page_ends_with_what_it_was_made_of_and_how_to_make_it_again(built: Path) -> None:
    for path in sorted((built / "report").glob("*/*.ipynb")):
        page = path.relative_to(built / "report").with_suffix("").as_posix()
        heading, cell = json.loads(path.read_text(encoding="utf-8"))["cells"][-2:]
        assert "".join(heading["source"]).startswith("## This page\n")
        (output,) = cell["outputs"]
        text = "".join(output["data"]["text/html"])
        stored = (built / "notebooks" / path.name).read_bytes()
        assert sha256_hex(stored) in text
        assert f'href="{path.name}"' in text
        assert f"drift report --only {page}" in text
        if page.startswith("embedded/"):
            read = (built / "data" / "embedded" / "readings" / f"{LAST}.json").read_bytes()
            assert sha256_hex(read) in text
            assert json.loads(read)["head"]["hash"] in text
            assert "--as-of" not in text


def test_the_command_for_a_page_of_another_day_names_the_day(built: Path) -> None:
    day = "20261127T060000Z"
    (job,) = (it for it in plan(built, records(built), day) if it.page == "embedded/reading")
    _, cell = colophon(job, inputs([job], built)[job.page], built)
    said = cell["outputs"][0]["data"]["text/html"]
    assert f"drift report --only embedded/reading --as-of {day}" in said


def test_one_page_alone_is_written_and_nothing_else_is_touched(
    fresh_project: Path, synthetic: ModuleType
) -> None:
    record = fresh_project / "data" / "embedded"
    synthetic.write_record(record, fresh_project / "config" / "probe_bank.json")
    keep(fresh_project, "reading", "runs")
    only: dict[str, Any] = {"records": records(fresh_project)[:1], "only": ["embedded/reading"]}
    other = fresh_project / "report" / "embedded" / "runs.ipynb"
    other.parent.mkdir()
    other.write_text("as it was")
    build_site(root=fresh_project, render=False, **only)
    assert other.read_text() == "as it was"
    assert (other.parent / "reading.ipynb").exists()
    assert not (fresh_project / "report" / "_generated").exists()


def test_the_lines_for_the_sidebar_are_ready_to_paste(fresh_project: Path) -> None:
    keep(fresh_project)
    project = fresh_project / "_quarto.yml"
    assert sidebar_lines(fresh_project, ["embedded", "phantom", "lab"]) == []
    _, *lines = sidebar_lines(fresh_project, ["my-own"])
    assert len(lines) == 4
    text = project.read_text(encoding="utf-8")
    listed = [*yaml.safe_load(text)["website"]["sidebar"]["contents"]]
    place = text.index("\nformat:")
    project.write_text("\n".join([text[:place].rstrip("\n"), *lines, text[place:]]))
    again = yaml.safe_load(project.read_text(encoding="utf-8"))["website"]["sidebar"]["contents"]
    assert again == [*listed, {"section": "My own", "contents": "report/my-own/*.ipynb"}]
    assert sidebar_lines(fresh_project, ["my-own"]) == []


def test_an_executed_notebook_keeps_no_trace_of_moment_or_machine(built: Path) -> None:
    for path in (built / "report").glob("*/*.ipynb"):
        text = path.read_text(encoding="utf-8")
        assert str(built) not in text
        assert "start_time" not in text
        metadata = json.loads(text)["metadata"]
        assert set(metadata) == {"kernelspec", "language_info"}
        assert metadata["language_info"] == {"name": "python"}


def test_no_file_of_the_site_asks_another_host_for_anything(built: Path) -> None:
    for name, data in tree(built / "report" / "_site").items():
        if name.endswith(".css"):
            assert not re.search(rb"(@import|url\()\s*[\"']?(https?:)?//", data), name
        if name.endswith(".html"):
            asked = rb"<(?:script|link|img|iframe|source)[^>]*(?:src|href)=[\"']?(?:https?:)?//"
            assert not re.search(asked, data), name


def test_the_sidebar_lists_the_pages_of_a_record_in_order(built: Path) -> None:
    text = (built / "report" / "_site" / "index.html").read_text(encoding="utf-8")
    places = [
        text.index(f'href="report/embedded/{name}.html"')
        for name in ("reading", "rates", "alarm", "transcripts")
    ]
    places += [text.index(f'href="report/method/{name}.html"') for name in METHOD]
    assert places == sorted(places)


def test_every_page_of_a_record_is_linked_from_its_section_of_the_front_page(built: Path) -> None:
    text = (built / "report" / "_site" / "index.html").read_text(encoding="utf-8")
    section = text.partition('id="record-embedded"')[2].partition("</section>")[0]
    for path in (built / "report" / "embedded").glob("*.ipynb"):
        assert f'href="report/embedded/{path.stem}.html"' in section
    scripted = front_page([load_record("phantom", root=ROOT)], None)
    assert 'href="report/phantom/truth.html"' in scripted


def test_the_renderer_reads_every_key_of_the_project_file(built: Path) -> None:
    from smalldocs.site import Site, load

    project = load(built)
    project.config["project"]["output-dir"] = "report/_warned"
    site = Site(project, quiet=True)
    site.build()
    shutil.rmtree(built / "report" / "_warned")
    # Both keys are Quarto's alone: it could run code, and its theme could ask for a font.
    known = ("execute.enabled is ignored", "theme report/dark.scss")
    assert [item for item in site.warnings if not item.startswith(known)] == []


def _break(root: Path, source: str) -> None:
    path = root / "notebooks" / "reading.ipynb"
    document = json.loads(path.read_text(encoding="utf-8"))
    document["cells"][5]["source"] = ["#| label: broken\n", source]
    document["cells"][5]["cell_type"] = "code"
    document["cells"][5] |= {"outputs": [], "execution_count": None}
    path.write_text(json.dumps(document), encoding="utf-8")
    keep(root, "reading")


@pytest.mark.parametrize(
    ("source", "said"),
    [("1 / 0", "ZeroDivisionError: division by zero"), ("import os; os._exit(3)", "DeadKernel")],
)
def test_a_failing_notebook_leaves_the_last_good_site_and_names_the_cell(
    fresh_project: Path, source: str, said: str
) -> None:
    site = fresh_project / "report" / "_site"
    site.mkdir()
    (site / "index.html").write_text("the last good site")
    before = fresh_project / "report" / "embedded" / "reading.ipynb"
    before.parent.mkdir()
    before.write_text("the last good page")
    _break(fresh_project, source)
    with pytest.raises(DriftError) as caught:
        build_site(root=fresh_project, records=records(fresh_project)[:1])
    assert caught.value.exit_code == 1
    assert said in str(caught.value)
    assert (site / "index.html").read_text() == "the last good site"
    assert before.read_text() == "the last good page"
    (failure,) = json.loads((fresh_project / "report" / "failures.json").read_text())
    assert failure["notebook"] == "notebooks/reading.ipynb"
    assert said in failure["error"]
    if source == "1 / 0":
        assert (failure["page"], failure["label"]) == ("embedded/reading", "broken")
        assert "1 / 0" in failure["source"]
        assert "ZeroDivisionError" in failure["traceback"]
        assert "\x1b" not in failure["traceback"]


def test_a_renderer_that_fails_leaves_the_last_good_site(tmp_path: Path) -> None:
    site = tmp_path / "_site"
    site.mkdir()
    (site / "index.html").write_text("the last good site")

    def broken(into: Path) -> None:
        into.mkdir()
        (into / "part.html").write_text("half")
        raise DriftError("renderer failed")

    with pytest.raises(DriftError):
        publish(broken, site)
    assert [path.name for path in tmp_path.iterdir()] == ["_site"]
    with pytest.raises(DriftError, match=r"no index\.html"):
        publish(Path.mkdir, site)
    assert tree(site) == {"index.html": b"the last good site"}


IMPORTS = """@charset "UTF-8";@import url(https://fonts.example/x?a;b;c);
@import url("//fonts.example/x;y") screen;@import 'https://fonts.example/z;';a{b:url(c;d)}"""


def test_publishing_replaces_the_whole_site_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    site = tmp_path / "_site"
    for text in ("first", "second"):

        def render(into: Path, text: str = text) -> None:
            into.mkdir()
            (into / "index.html").write_text(text)
            (into / f"{text}.css").write_text(IMPORTS)

        publish(render, site)
    assert tree(site) == {
        "index.html": b"second",
        "second.css": b'@charset "UTF-8";\na{b:url(c;d)}',
    }
    assert [path.name for path in tmp_path.iterdir()] == ["_site"]


def test_a_site_cut_off_between_its_two_renames_is_taken_back(tmp_path: Path) -> None:
    old = tmp_path / "_site.old"
    old.mkdir()
    (old / "index.html").write_text("the last good site")

    def broken(into: Path) -> None:
        raise DriftError("renderer failed")

    with pytest.raises(DriftError):
        publish(broken, tmp_path / "_site")
    assert tree(tmp_path / "_site") == {"index.html": b"the last good site"}


def test_quarto_is_asked_for_the_same_project_when_it_is_there(
    fresh_project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path_factory.mktemp("tools")
    quarto = tools / "quarto"
    quarto.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo 1.7.34; exit; fi\n'
        'echo "$@" > called; mkdir -p "$4"; cp report/_generated/footer.html "$4/index.html"\n'
    )
    quarto.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    keep(fresh_project)
    index = build_site(root=fresh_project, records=[])
    assert index == fresh_project / "report" / "_site" / "index.html"
    assert "Rendered with Quarto 1.7.34" in index.read_text()
    called = (fresh_project / "called").read_text()
    assert called == f"render {fresh_project} --output-dir report/_site.new\n"


def test_a_record_elsewhere_is_shown_under_its_name_whatever_kernels_the_machine_has(
    built: Path, fresh_project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered = fresh_project / "kernels" / "python3" / "kernel.json"
    registered.parent.mkdir(parents=True)
    broken = {"argv": ["false"], "display_name": "Broken", "language": "python"}
    registered.write_text(json.dumps(broken))
    monkeypatch.setenv("JUPYTER_PATH", str(fresh_project))
    keep(fresh_project, "reading")
    elsewhere = RecordRef("mine", built / "data" / "embedded")
    build_site(root=fresh_project, records=[elsewhere], render=False)
    text = (fresh_project / "report" / "mine" / "reading.ipynb").read_text(encoding="utf-8")
    assert "20261127T180000Z" in text
    assert "data/embedded" not in text and str(built) not in text
    assert "drift report --only mine/reading --data DIR" in text
    assert not (fresh_project / "report" / "_site").exists()
    assert (fresh_project / "report" / "_generated" / "front.md").exists()


def test_pages_of_a_record_that_is_no_longer_shown_are_taken_away(fresh_project: Path) -> None:
    keep(fresh_project)
    gone = fresh_project / "report" / "gone" / "reading.ipynb"
    gone.parent.mkdir()
    gone.write_text("{}")
    kept = fresh_project / "report" / "mine" / "notes.txt"
    kept.parent.mkdir()
    kept.write_text("not ours")
    (kept.parent / "reading.ipynb").write_text("{}")
    build_site(root=fresh_project, records=[], render=False)
    assert not gone.parent.exists()
    assert [path.name for path in kept.parent.iterdir()] == ["notes.txt"]
    assert (fresh_project / "report" / "site.css").exists()


def test_the_front_page_of_another_day_says_which(
    fresh_project: Path, synthetic: ModuleType
) -> None:
    record = fresh_project / "data" / "embedded"
    synthetic.write_record(record, fresh_project / "config" / "probe_bank.json")
    keep(fresh_project)
    options: dict[str, Any] = {"records": records(fresh_project)[:1], "render": False}
    front = fresh_project / "report" / "_generated" / "front.md"
    build_site(root=fresh_project, **options)
    assert "as of run" not in front.read_text(encoding="utf-8")
    build_site(root=fresh_project, as_of="20261127T060000Z", note="No weights.", **options)
    text = front.read_text(encoding="utf-8")
    assert "This is the report as of run 20261127T060000Z" in text
    assert "No weights." in text
    assert LAST not in text


def test_a_run_that_no_record_holds_is_refused_with_the_nearest(built: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        build_site(root=built, records=records(built), as_of="20261127T060009Z")
    assert "20261127T060000Z" in str(caught.value)


@pytest.mark.parametrize("name", ["../x", "Method", "method", "", "_site", "a/b"])
def test_a_record_name_that_is_no_folder_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be named"):
        RecordRef(name, Path("data"))
