"""The site: cold, with nothing changed, after one new run; peers on the same pages.

Prints as JSON: seconds of `drift report` over the shipped records and one of this machine
(a small synthetic one where ``data/embedded`` is not there), and what its processes held
at most, in MB: the command itself, the largest other process, and all of them together
(proportional set size, sampled). For scale, in the same run: papermill with ordinary
kernels, one notebook after the other, and nbconvert's HTML of the executed pages.

``--year`` builds a synthetic record of four models and 1,460 runs instead, and prints the
largest pages in MB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from year import add_run, new_record

ROOT = Path(__file__).resolve().parent.parent
DRIFT = Path(sys.executable).with_name("drift")


def copy_project(to: Path) -> None:
    """Copy what a build reads, without a record and without anything kept."""
    left_out = shutil.ignore_patterns("_site*", "_generated", "*.ipynb", "failures.json")
    shutil.copytree(ROOT / "report", to / "report", ignore=left_out)
    for folder in ("notebooks", "config", "data/published"):
        shutil.copytree(ROOT / folder, to / folder)
    for name in ("_quarto.yml", "index.qmd", "CITATION.cff"):
        shutil.copy(ROOT / name, to)


def synthetic_record(to: Path, runs: int) -> None:
    """Write a record of four models with so many runs."""
    with tempfile.TemporaryDirectory(prefix="report-") as work:
        made, chance = new_record(Path(work)), random.Random(20261129)
        for number in range(runs):
            add_run(made, number, chance)
            if number % 100 == 99:
                print(f"{number + 1} runs made", file=sys.stderr)
        shutil.move(made.store.folder, to)


def held(process: psutil.Process, peaks: dict[str, int], over: threading.Event) -> None:
    """Keep the peaks of memory of a process and its descendants, until it is over."""
    while not over.wait(0.1):
        total = 0
        for one in [process, *process.children(recursive=True)]:
            try:
                found = one.memory_full_info()
            except psutil.Error:  # it has ended
                continue
            name = "main" if one == process else "largest_other"
            peaks[name] = max(peaks[name], found.rss)
            total += found.pss
        peaks["together"] = max(peaks["together"], total)


def timed(root: Path, *command: str) -> dict[str, Any]:
    """Run a command in the project at `root`; return its seconds and peaks of memory."""
    environment = os.environ | {"REFUSAL_DRIFT_ROOT": str(root)}
    peaks, over = dict.fromkeys(("main", "largest_other", "together"), 0), threading.Event()
    start = time.perf_counter()
    with subprocess.Popen([DRIFT, *command], env=environment, stdout=subprocess.DEVNULL) as running:
        watch = threading.Thread(target=held, args=(psutil.Process(running.pid), peaks, over))
        watch.start()
        code = running.wait()
        seconds = time.perf_counter() - start
        over.set()
        watch.join()
    if code:
        raise SystemExit(f"{' '.join(command)} ended with code {code}")
    return {"seconds": round(seconds, 1), "mb": {key: it >> 20 for key, it in peaks.items()}}


def shipped(root: Path) -> dict[str, Any]:
    """Measure builds of the shipped records, and of one of this machine."""
    for path in (ROOT / "data").glob("*/chain.jsonl"):
        shutil.copytree(path.parent, root / "data" / path.parent.name)
    if not (root / "data" / "embedded").exists():
        synthetic_record(root / "data" / "embedded", 12)
    found = {"cold": timed(root, "report"), "nothing_changed": timed(root, "report")}
    runs = len(list((root / "data" / "phantom" / "readings").glob("*.json*")))
    timed(root, "refresh", "--panel", "phantom", "--runs", str(runs + 1))
    found["one_new_run"] = timed(root, "report")
    return found | {"peers": peers(root)}


def peers(root: Path) -> dict[str, Any]:
    """Measure others on the same notebooks: papermill in series, and nbconvert."""
    import nbconvert
    import papermill

    from drift.report.site import RecordRef, plan

    os.environ |= {"REFUSAL_DRIFT_ROOT": str(root), "MPLBACKEND": "agg"}
    records = [RecordRef(path.parent.name, path.parent) for path in root.glob("data/*/chain.jsonl")]
    jobs = plan(root, sorted(records, key=lambda ref: ref.name))

    def execute() -> None:
        for job in jobs:
            options = {"progress_bar": False, "cwd": root, "extra_arguments": ["--log-level=50"]}
            papermill.execute_notebook(job.notebook.path, None, job.parameters, **options)

    def export() -> None:
        exporter = nbconvert.HTMLExporter()
        for job in jobs:
            exporter.from_filename(str(root / "report" / f"{job.page}.ipynb"))

    return {
        "pages": len(jobs),
        "papermill_in_series_s": _seconds(execute),
        "nbconvert_html_s": _seconds(export),
    }


def _seconds(function: Callable[[], None]) -> float:
    start = time.perf_counter()
    function()
    return round(time.perf_counter() - start, 1)


def year(root: Path, runs: int) -> dict[str, Any]:
    """Measure a build of a synthetic record, and the size of its largest pages."""
    synthetic_record(root / "data" / "year", runs)
    found: dict[str, Any] = {"runs": runs, "cold": timed(root, "report", "--panel", "year")}
    site = root / "report" / "_site"
    sizes = {
        path.relative_to(site).as_posix(): path.stat().st_size for path in site.rglob("*.html")
    }
    largest = sorted(sizes, key=lambda name: -sizes[name])[:8]
    found["pages_mb"] = {name: round(sizes[name] / 1e6, 2) for name in largest}
    found["site_mb"] = sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) >> 20
    found["nothing_changed"] = timed(root, "report", "--panel", "year")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--year", action="store_true", help="a year of record instead")
    parser.add_argument("--runs", type=int, default=1460, help="runs of that year")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="report-") as work:
        root = Path(work)
        copy_project(root)
        print(json.dumps(year(root, options.runs) if options.year else shipped(root), indent=2))


if __name__ == "__main__":
    main()
