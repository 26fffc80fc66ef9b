"""The end of every page: what it was made of, and the command that makes it again."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pandas as pd

from drift import __version__
from drift.config import sha256_hex
from drift.records.store import read_bytes
from drift.report.inputs import MACHINE, Inputs, digest
from drift.report.job import Job
from drift.report.markup import html, joined, table
from drift.report.tables import load_record


def colophon(job: Job, inputs: Inputs, root: Path) -> list[dict[str, Any]]:
    """Return the cells that end a page: a heading, and a table as if a cell had shown it."""
    name, _, page = job.page.partition("/")
    code = digest({file: value for file, value in inputs.items() if file.startswith("drift/")})
    shown = {key: value for key, value in job.parameters.items() if key != "folder"}
    given = {key: json.dumps(value) for key, value in shown.items()}
    values = {key: given.get(key, default) for key, (_, default) in job.notebook.declared.items()}
    rows = {
        "Parameters": joined(
            (html("<code>{} = {}</code>", *item) for item in values.items()), ", "
        ),
        "Notebook": html(
            '<a href="{}.ipynb" download data-noresolveinput>as executed</a>; as stored, {}, {}',
            *(page, job.notebook.name, _hash(inputs[job.notebook.name])),
        ),
        "Code": html("refusal-drift {}, {}", __version__, _hash(code)),
    }
    command = ["drift", "report", "--only", job.page]
    if name != "method":
        folder, as_of = (job.parameters.get(key, "") for key in ("folder", "as_of"))
        record = load_record(name, folder=folder, as_of=as_of, root=root)
        if record.reading:
            run, head = record.reading["run"], record.reading["head"]
            rows["Ledger line read"] = html("{}, {}", head["seq"], _hash(head["hash"]))
            read = sha256_hex(read_bytes(record.store.reading(run)))
            rows["Reading"] = html("run {}, {}", run, _hash(read))
        command += ["--as-of", as_of] if as_of else []
        command += ["--data", "DIR"] if folder else []
    files = {key: value for key, value in inputs.items() if key not in MACHINE}
    rows["All inputs but Python and its packages"] = html(
        "{}, {}", len(files), _hash(digest(files))
    )
    rows["To execute it again"] = html("<code>{}</code>", shlex.join(command))
    made = table(pd.DataFrame({"What": rows.keys(), "Value": rows.values()}))
    about = [
        "## This page\n",
        "\n",
        "What it was made of, by SHA-256. `drift report --why` says which of it has changed since.",
    ]
    return [
        {"cell_type": "markdown", "id": "about-this-page", "metadata": {}, "source": about},
        {
            "cell_type": "code",
            "id": "table-this-page",
            "metadata": {},
            "execution_count": None,
            "source": "#| label: table-this-page",
            "outputs": [
                {"output_type": "display_data", "metadata": {}, "data": {"text/html": made}}
            ],
        },
    ]


def _hash(value: str) -> object:
    return html('<span class="drift-hash">{}</span>', value)
