"""How to put a stored question again: the command that sends what was registered and sent."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

from drift.config import ModelSpec
from drift.probing.client import json_number, request_of
from drift.records.asking import seed_of
from drift.report.markup import Markup, fill, html
from drift.report.tables import Record, StoredRun


def command(
    record: Record, now: StoredRun, item: Mapping[str, Any], messages: list[dict[str, str]]
) -> Markup:
    """Return how to put the question again, from what was registered for this run."""
    registration = record.registrations.get(now.reading.get("registration", ""))
    if not registration:
        return html("<p>The record does not hold the registration under which this was asked.</p>")
    document = registration["instruments"][item["model"]]["document"]
    name = f"ask-{item['id']}"
    if document["endpoint"] == "phantom":
        said = "A scripted model, served only while its record is made. This makes the runs up to "
        said += "this one again, answer for answer, in a folder beside."
        line = f"drift refresh --panel {now.reading['panel']} --data again"
        line += f" --runs {now.reading['number']}"
    else:
        said, line = curl(document, item["model"], now.reading["number"], messages)
    made = fill(record.root, "command", name=name, command=line)
    return html("<details><summary>Ask it yourself</summary><p>{}</p>{}</details>", said, made)


def curl(
    document: Mapping[str, Any], model: str, number: int, messages: list[dict[str, str]]
) -> tuple[str, str]:
    """Return what is to be known of a request and the command that sends it, body as registered."""
    said = "The request as it was sent. Put a key of your own into the shell variable API_KEY; the "
    said += "provider may since have changed what answers under this name."
    endpoint = document["endpoint"]
    if endpoint == "embedded":
        endpoint = "http://127.0.0.1:8080/v1"
        said = "The model ran on the recorder's machine. Serve the weights of SHA-256 "
        said += f"{document['weights_sha256']} yourself, for example with llama-server -m "
        said += "weights.gguf --port 8080; what a server sets of its own is not in the request."
    kept = {name: value for name, value in document.items() if name in ModelSpec.model_fields}
    kept["parameters"] = {name: _exact(value) for name, value in kept["parameters"].items()}
    spec = ModelSpec(key=model, kind="openai", base_url=endpoint, **kept)
    if spec.system_prompt is not None and messages[0]["role"] != "system":
        messages = [{"role": "system", "content": spec.system_prompt}, *messages]
    payload = request_of(spec, seed_of(spec, number)) | {"messages": messages}
    body = json.dumps(payload, ensure_ascii=False, default=json_number)
    if not body.isprintable():
        body = json.dumps(payload, default=json_number)
    local = urlsplit(endpoint).hostname in ("127.0.0.1", "localhost", "::1")
    lines = [f"curl {shlex.quote(endpoint.rstrip('/') + '/chat/completions')}"]
    lines += ["-H 'Content-Type: application/json'"]
    lines += [] if local else ['-H "Authorization: Bearer $API_KEY"']
    return said, " \\\n  ".join([*lines, f"--data-raw {shlex.quote(body)}"])


def _exact(value: Any) -> Any:
    """Return a registered parameter as it was configured: decimals are sealed as strings."""
    number = isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", value)
    return Decimal(value) if number else value
