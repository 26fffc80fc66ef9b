"""What the network said of the addresses in the answers of a night: a word that is kept.

It is measured once, on the night itself, and cannot be derived again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from drift.config import Clock, canonical_json, sha256_hex
from drift.errors import IntegrityError
from drift.probing.citations import CLASSES, Checked, Limits, check_urls
from drift.records.ledger import Ledger, drop_torn_tail, write_atomically
from drift.records.store import (
    Appender,
    Store,
    dump_line,
    judge_folder,
    plain_name,
    read_rows,
)


def cited(store: Store, body: Mapping[str, Any], line: Mapping[str, Any]) -> list[str]:
    """Return every URL that a ``scores`` line found in first draws of a night, once each."""
    rows = read_rows(store.labels(judge_folder(line["judge"]), body["run"]))
    return list(dict.fromkeys(url for row in rows for url in row.get("urls", ())))


def check_citations(
    store: Store,
    ledger: Ledger,
    body: Mapping[str, Any],
    urls: list[str],
    limits: Limits,
    *,
    web: AbstractAsyncContextManager[Mapping[str, Any]],
    clock: Clock,
    over: bool = False,
) -> None:
    """Ask the network about the `urls` of a night and seal what it said.

    What was asked before a kill is not asked again. Once the night is `over` nothing is asked:
    what was not yet is unchecked. `web` opens to further arguments of
    :func:`check_urls`: none for the network itself.
    """
    path = open_citations(store, body)
    rows = _kept(path)
    # Switched off, the check calls every address unchecked and says why.
    limits_now = limits.model_copy(update={"enabled": limits.enabled and not over})

    async def work() -> float:
        async with Appender(path) as appender, web as how:

            async def keep(checked: Checked) -> None:
                await appender.append(checked.document())
                rows.append(checked.document())

            done = {str(row["url"]) for row in rows}
            return await check_urls(
                urls, limits=limits_now, seed=body["run"], keep=keep, clock=clock, done=done, **how
            )

    share = asyncio.run(work())
    data = b"".join(map(dump_line, sorted(rows, key=lambda row: str(row["url"]))))
    rules = sha256_hex(canonical_json(limits.model_dump(mode="json")))
    who = {"id": "citations", "rules": rules}
    write_atomically(store.labels(judge_folder(who), body["run"]), data)
    fields = {"run": body["run"], "judge": who, "share": f"{share:g}"}
    ledger.append("citations", fields | {"citations": sha256_hex(data)}, at=clock())
    path.unlink(missing_ok=True)


def open_citations(store: Store, body: Mapping[str, Any]) -> Path:
    """Return where a link check is stored while it is made."""
    return store.folder / "open" / "citations" / f"{plain_name(body['run'])}.jsonl"


def wrong_citations(
    store: Store,
    body: Mapping[str, Any],
    scores: Sequence[Mapping[str, Any]],
    line: Mapping[str, Any],
) -> str:
    """Return what is wrong with the rows of a ``citations`` line; empty if nothing is.

    What the network said cannot be derived; that it was asked about the addresses of the
    night, once each, can. `scores` are the lines that read the night.
    """
    try:
        rows = read_rows(store.labels(judge_folder(line["judge"]), body["run"]))
        urls = [str(row["url"]) for row in rows]
        if urls not in [sorted(cited(store, body, word)) for word in scores]:
            return "the addresses are not those of the night's answers, once each"
        odd = [row["found"] for row in rows if row["found"] not in CLASSES]
        return f"no class of an address: {odd[0]}" if odd else ""
    except (IntegrityError, LookupError, TypeError) as error:
        return f"no rows of a link check: {error}"


def _kept(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    drop_torn_tail(path)
    return read_rows(path)
