"""Speed of the judge: ``python benchmarks/judge.py`` prints one JSON object.

``responses_per_second`` and the microseconds are for one process over texts of 1.5 kB
made of the anchors, a quarter of which begin in Chinese (best of five passes);
``seconds_for_569000_on_two`` runs a share of that many in two processes and scales it (best of
five), and ``chinese`` is the same for texts that are Chinese throughout; ``hostile`` is the
slowest of the 100 kB strings, best of five.
"""

from __future__ import annotations

import json
import resource
import time
from concurrent.futures import ProcessPoolExecutor

from drift.config import project_root
from drift.judging import Judge, load_judge

LENGTH, HOSTILE, TOTAL, SHARE = 1500, 100_000, 569_000, 6_000
FOLDER = project_root() / "config" / "judge"
FILLER = (
    " The first step is to look at the records, which show what was done and when. It is "
    "important to compare them with a second source; however, the two often agree. Several "
    "authors describe the same events in other words:\n\n1. **Dates** are given by year.\n"
    "2. **Places** are named as they were called then, for example “Lake of the North”.\n"
)
PIECES = (
    'I ', "I cannot ", "I can't really ", "i'm sorry, but ", "as an ai ", '"', "“", "「", "```",
    "<think>", "</think>", "<", "* ", "_", "{\"", '": "', "\n", "\n\n", " ", ". ", "…", ".", "a",
    "however, but ", "it is not ", "it is important to ", "please ", "i would like to ",
    "no, there is no ", "depends on ", "up to the ", "的", "我无法", "抱歉，", "但，", "不",
    "\u200b", "’", "İ", "𝐈 ", "[OUT]", "> ", "decision to the ", "this is a very ", "any ing ",
    "doing ", "instead ", "if you are ", "ab", "x. I", "I must ", "the question ", "с",
    "Assistant:", "是一个",
)  # fmt: skip
FILLER_ZH = (
    "第一步是查看记录，记录说明了做过什么、在什么时候做的。还应当与另一个来源对照；不过两者往往一致。"
    "几位作者用不同的话描述了同一件事：\n\n1. **日期**按年份给出。\n"
    "2. **地点**用当时的名称，例如“北湖”。\n"
)


def texts(judge: Judge, language: str = "") -> list[tuple[str, str, str]]:
    """Return the anchors, or those in Chinese, each lengthened to 1.5 kB, with its language."""
    filler = FILLER_ZH if language == "zh" else FILLER
    return [
        (anchor.prompt, cut(anchor.text + filler * 16), anchor.language)
        for anchor in judge.anchors
        if anchor.status == "ok" and not anchor.declined and language in ("", anchor.language)
    ]


def cut(text: str) -> str:
    return text.encode()[:LENGTH].decode(errors="ignore")


def one_pass(number: int, language: str = "") -> tuple[float, float]:
    """Label `number` texts and return the seconds and the processor seconds it took."""
    judge = load_judge(FOLDER)
    rows = texts(judge, language)
    start, busy = time.perf_counter(), time.process_time()
    for index in range(number):
        prompt, text, spoken = rows[index % len(rows)]
        judge.label(prompt=prompt, text=text, language=spoken)
    return time.perf_counter() - start, time.process_time() - busy


def seconds_on_two(language: str) -> float:
    """Return how long two processes would take for all texts, by the quickest of five shares."""
    with ProcessPoolExecutor(2) as pool:
        rounds = [list(pool.map(one_pass, [SHARE] * 2, [language] * 2)) for _ in range(5)]
    return min(max(wall for wall, _ in both) for both in rounds) * TOTAL / (2 * SHARE)


def main() -> None:
    judge = load_judge(FOLDER)
    number = 4000
    passes = [one_pass(number) for _ in range(5)]
    best, busy = (min(times) for times in zip(*passes, strict=True))
    both, chinese = seconds_on_two(""), seconds_on_two("zh")
    hostile: dict[str, float] = {}
    strings = [(piece * HOSTILE)[:HOSTILE] for piece in PIECES]
    strings += [(one + other) * 500 + one * 20_000 for one in PIECES[:24] for other in PIECES]
    for string in strings:
        text, times = string[:HOSTILE], []
        for _ in range(5):
            start = time.perf_counter()
            judge.label(prompt="Why is the sky blue?", text=text)
            times.append(time.perf_counter() - start)
            if times[-1] < 0.02:
                break
        hostile[repr(text[:24])] = min(times)
    worst = max(hostile, key=lambda key: hostile[key])
    print(
        json.dumps(
            {
                "responses_per_second": round(number / best),
                "microseconds": round(best / number * 1e6),
                "processor_microseconds": round(busy / number * 1e6),
                "seconds_for_569000_on_two": round(both, 1),
                "chinese": round(chinese, 1),
                "megabytes_of_a_process": round(
                    resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
                ),
                "hostile": {"text": worst, "milliseconds": round(hostile[worst] * 1000, 1)},
                "hostile_strings": len(strings),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
