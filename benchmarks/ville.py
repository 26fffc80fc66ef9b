"""Ville checks: how often models that never change ring, against what is claimed.

First the timed part, at n = 41: 14 members of the zoo, each under `home`, `pairs`,
`mixture` and `restart`, 2,000 lifetimes of 1,500 refreshes, on two worker processes.
Prints as JSON the seconds and the peak memory of each worker, and fails over 60 s or
1 GB in all. Then the whole zoo at n = 14 and 41 as a table with the claimed bounds, the
notice and the negative controls with it; fails if a share is beyond its bound, or if a
control stays within.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from drift.stats.simulation import NEGATIVE_CONTROLS, Crossing, crossings
from drift.stats.zoo import ZOO

TIMED = ("home", "pairs", "mixture", "restart")
MEMBERS = tuple(ZOO)[:14]
SECONDS, MEGABYTES = 60, 1024
CONTROLS = {
    "conformal on adjacent flips": "iid glitch 0.75 %",
    "point null": "iid flips 1.5 %",
}


def check(task: tuple[str, str, int, int, int]) -> tuple[list[Crossing], int, int]:
    """Return the crossings of one process on one member, this worker's id and peak memory."""
    process, member, n, lifetimes, refreshes = task
    rows = crossings(process, member, n=n, lifetimes=lifetimes, refreshes=refreshes)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return rows, os.getpid(), peak


def line(row: Crossing) -> str:
    """Return one row of the table."""
    bound = "" if row.bound is None else f"{100 * row.bound:5.2f} %"
    return (
        f"{row.member:20} {row.n:3} {row.process:28} {row.threshold:4g} {100 * row.share:6.2f} %"
        f" [{100 * (row.low or 0):6.2f}, {100 * (row.high or 0):6.2f}]"
        f" {100 * row.entered / row.lifetimes:6.2f} % {bound:8} {row.verdict}"
    )


def main() -> None:
    """Print the figures, then the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lifetimes", type=int, default=2000)
    parser.add_argument("--refreshes", type=int, default=1500)
    options = parser.parse_args()
    shape = (options.lifetimes, options.refreshes)
    began, peaks = time.perf_counter(), {}
    with ProcessPoolExecutor(2) as pool:
        for _, worker, peak in pool.map(
            check, [(p, m, 41, *shape) for m in MEMBERS for p in TIMED]
        ):
            peaks[worker] = max(peak, peaks.get(worker, 0))
    seconds = time.perf_counter() - began
    figures = {
        "members": len(MEMBERS),
        "processes": TIMED,
        "lifetimes": options.lifetimes,
        "refreshes": options.refreshes,
        "seconds": round(seconds, 1),
        "peak_mb_of_each_worker": list(peaks.values()),
        "targets": {"seconds": SECONDS, "peak_mb_in_all": MEGABYTES},
    }
    print(json.dumps(figures, indent=2), flush=True)

    tasks = [
        (process, member, n, *shape)
        for n in (14, 41)
        for member in ZOO
        for process in (*TIMED, "burst")
    ]
    tasks += [(process, member, 41, *shape) for process, member in CONTROLS.items()]
    print("member, n, process, c, ever reached c [95 %], entered at D > 0, bound, verdict")
    wrong = []
    with ProcessPoolExecutor(2) as pool:
        for rows, _, _ in pool.map(check, tasks):
            for row in rows:
                print(line(row), flush=True)
                control = row.process in NEGATIVE_CONTROLS
                if (row.verdict == "beyond the bound") != control:
                    wrong.append(row)
    for row in wrong:
        print("NOT AS CLAIMED:", line(row))
    slow, large = seconds > SECONDS, sum(peaks.values()) > MEGABYTES
    if slow or large:
        print(f"over the target: {seconds:.1f} s, {sum(peaks.values())} MB")
    sys.exit(bool(wrong or slow or large))


if __name__ == "__main__":
    main()
