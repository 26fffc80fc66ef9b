"""Our own loopback servers: real weights run in this process by llama.cpp.

They live in threads of this process, so that nothing is left running when the process is
killed. They are asked over HTTP like any provider, and know only their alias.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from drift.config import ModelSpec
from drift.errors import ConfigurationError, DriftError

#: More threads only wait for each other with models of this size.
_MOST_THREADS = 8
_PROMPT_NAME = "drift_system_prompt"
#: Puts the server's own system prompt before a conversation that brings none.
_TEMPLATE_HEAD = (
    "{% if messages[0]['role'] != 'system' %}{% set messages = "
    "[{'role': 'system', 'content': " + _PROMPT_NAME + "}] + messages %}{% endif %}"
)


@contextlib.contextmanager
def serve(model: ModelSpec, weights: Path) -> Iterator[tuple[str, ...]]:
    """Serve `weights` under the name ``model.model``; yield the base URLs, one a slot.

    Every slot is a server of its own at a free port of 127.0.0.1, since llama.cpp rounds
    differently for batches of other sizes: with slots in one server an answer would depend
    on what is answered beside it. No prompt cache is kept either, so that it does not
    depend on what was asked before. The servers share the weights' memory.

    ConfigurationError if ``model.server.sampling`` names what llama.cpp does not know,
    DriftError if it cannot load the file.
    """
    parameters = _parameters(model, weights)
    prompt = model.server.system_prompt
    if prompt is not None:
        # llama.cpp's server has no system prompt of its own, so the model's template gets one;
        # the template is only known to a server that has loaded the model.
        server = _start(model, parameters, weights)
        found = httpx.get(f"{server.listening_address}/props", trust_env=False, timeout=60)
        del server
        parameters.chat_template = _TEMPLATE_HEAD + found.json()["chat_template"]
        parameters.default_template_kwargs = {_PROMPT_NAME: json.dumps(prompt, ensure_ascii=False)}
    servers = [_start(model, parameters, weights) for _ in range(model.server.slots)]
    try:
        yield tuple(f"{server.listening_address}/v1" for server in servers)
    finally:
        # The last references: a server stops and frees its memory when its own is gone.
        servers.clear()


def serving_facts() -> str:
    """Return the llama.cpp build and the CPU features in use, for embedded fingerprints."""
    features = re.findall(r"(\w+) = 1\b", _llama().get_system_info())
    return f"llama.cpp (xllamacpp {_llama().__version__}), {' '.join(features)}"


def _llama() -> Any:
    """Import xllamacpp; only where it is used, since it loads 100 MB."""
    # Threads that spin while they wait make it several times slower on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        import xllamacpp
    except ImportError as error:
        raise DriftError(
            f"llama.cpp cannot be loaded: {error}",
            next_step="install the package with its dependencies; on a minimal Linux image also "
            "the system package of libgomp (libgomp1)",
        ) from None
    return xllamacpp


def _start(model: ModelSpec, parameters: Any, weights: Path) -> Any:
    try:
        server = _llama().Server(parameters)
        # A server that is ended before its loop has begun waits for ever: only an answer
        # shows that it has. It warms the model up, too.
        first = {"messages": [{"role": "user", "content": "?"}], "max_tokens": 1}
        url = f"{server.listening_address}/v1/chat/completions"
        httpx.post(url, json=first, trust_env=False, timeout=300).raise_for_status()
        return server
    except (RuntimeError, httpx.HTTPError) as error:
        raise DriftError(
            f"{model.key}: llama.cpp cannot serve the weights: {error}",
            where=weights.name,
            next_step="check server.slots and server.context of the panel and the free memory",
        ) from None


def _parameters(model: ModelSpec, weights: Path) -> Any:
    spec, llama = model.server, _llama()
    parameters = llama.CommonParams()
    parameters.model.path = str(weights)
    parameters.model_alias = {model.model}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_parallel = 1
    parameters.n_ctx = spec.context
    threads = min(max((os.cpu_count() or 1) // spec.slots, 1), _MOST_THREADS)
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    # Flash attention splits its sums by thread, which would tie answers to the machine's cores.
    parameters.flash_attn_type = llama.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    parameters.n_gpu_layers = 0
    parameters.no_extra_bufts = True  # repacked weights could not be shared
    parameters.ui = parameters.endpoint_slots = False
    parameters.verbosity = -1
    parameters.cache_prompt = parameters.cache_idle_slots = False
    parameters.cache_ram_mib = 0
    parameters.slot_prompt_similarity = 0.0
    parameters.warmup = False
    for name, value in spec.sampling.items():
        kind = type(getattr(parameters.sampling, name, None))
        if kind not in (int, float):
            raise ConfigurationError(
                f"{model.key}: llama.cpp has no sampling number {name!r}",
                where=f"model {model.key}: server.sampling",
                expected="names such as temp, top_k, top_p, min_p, penalty_repeat, seed",
            )
        setattr(parameters.sampling, name, kind(value))
    return parameters
