"""The same work on many runs, in worker processes where there are enough of them."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from typing import TypeVar

#: Fewest runs for which worker processes pay.
PARALLEL_FROM = 64

Job = TypeVar("Job")
Result = TypeVar("Result")


def spread(
    function: Callable[[Job], Result], jobs: Sequence[Job], workers: int | None = None
) -> Iterator[Result]:
    """Yield ``function(job)`` of each job in their order.

    `workers` are processes, by default the machine's cores where there are many jobs.
    """
    workers = workers or (os.cpu_count() or 1 if len(jobs) >= PARALLEL_FROM else 1)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, spawn) if workers > 1 else nullcontext() as pool:
        yield from pool.map(function, jobs, chunksize=32) if pool else map(function, jobs)
