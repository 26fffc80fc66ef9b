"""The real reference target, run on this machine and asked through the client."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from asking import ask_all, questions
from loopback import Loopback

from drift.config import ModelSpec
from drift.errors import ConfigurationError, DriftError
from drift.probing import Ask
from drift.probing.embedded import serve, serving_facts


def target(**server: Any) -> ModelSpec:
    return ModelSpec(
        key="reference",
        kind="embedded",
        model="SmolLM2-135M-Instruct",
        weights="SmolLM2-135M-Instruct.Q4_1.gguf",
        parameters={"temperature": 0},
        max_tokens=12,
        concurrency=4,
        timeout_s=300,
        server={"slots": 2, "context": 256} | server,
    )


def ask(urls: tuple[str, ...], model: ModelSpec, asks: list[Ask]) -> dict[str, str]:
    unused = Loopback(lambda request: pytest.fail("not asked"))
    asked = ask_all(unused, asks, model, base_url=urls, fingerprint=serving_facts())
    assert asked.error is None
    assert {row.status for row in asked.rows} <= {"ok", "truncated"}
    assert {row.served_model for row in asked.rows} == {"SmolLM2-135M-Instruct"}
    assert {row.fingerprint for row in asked.rows} == {serving_facts()}
    return {row.key: row.text for row in asked.rows}


@pytest.mark.weights
def test_the_real_model_answers_the_same_at_temperature_0_whatever_ran_before(
    smollm2_weights: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asks = questions(6)
    with serve(target(), smollm2_weights) as urls:
        assert len(set(urls)) == 2
        first = ask(urls, target(), asks)
        again = ask(urls, target(), asks[::-1])
    with serve(target(slots=1), smollm2_weights) as urls:
        alone = ask(urls, target(), asks)
    assert first == again == alone
    assert capfd.readouterr() == ("", "")


@pytest.mark.weights
def test_the_server_holds_its_own_sampling_and_system_prompt(smollm2_weights: Path) -> None:
    prompt = 'Say "no"\nto {{ all }} {% of %} it, \u4e2d.'
    sampling = {"temp": Decimal("0.25"), "top_k": 7}
    spec = target(slots=1, system_prompt=prompt, sampling=sampling)
    with serve(spec, smollm2_weights) as urls, httpx.Client(trust_env=False, timeout=60) as client:
        address = urls[0].removesuffix("/v1")
        defaults = client.get(f"{address}/props").json()["default_generation_settings"]["params"]
        bare = [{"role": "user", "content": "Hello?"}]
        own = [{"role": "system", "content": "Ours."}, *bare]
        rendered = [
            client.post(f"{address}/apply-template", json={"messages": said}).json()["prompt"]
            for said in (bare, own)
        ]
    assert (defaults["temperature"], defaults["top_k"]) == (0.25, 7)
    assert prompt in rendered[0]
    assert prompt not in rendered[1] and "Ours." in rendered[1]


@pytest.mark.weights
def test_nothing_runs_on_when_the_process_is_killed(smollm2_weights: Path) -> None:
    code = """
        import sys, time
        from pathlib import Path
        from drift.config import ModelSpec
        from drift.probing.embedded import serve
        model = ModelSpec(key="k", kind="embedded", model="m", weights="w")
        with serve(model, Path(sys.argv[1])) as urls:
            print(urls[0], flush=True)
            time.sleep(600)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(smollm2_weights)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        address = url.removesuffix("/v1")
        assert httpx.get(f"{address}/health", trust_env=False).status_code == 200
        process.kill()
        process.wait()
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{address}/health", trust_env=False)
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


@pytest.mark.weights
def test_the_servers_are_gone_when_their_context_ends(smollm2_weights: Path) -> None:
    spec = target()
    with pytest.raises(RuntimeError, match="while they run"), serve(spec, smollm2_weights) as urls:
        raise RuntimeError("while they run")
    for url in urls:
        with pytest.raises(httpx.ConnectError):
            httpx.get(url, trust_env=False)


def test_a_file_that_is_no_model_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF and nothing more")
    with pytest.raises(DriftError, match="cannot serve") as caught, serve(target(), path):
        pass
    assert caught.value.where == "broken.gguf"


@pytest.mark.parametrize("name", ["temperature", "print", "grammar", "ignore_eos"])
def test_an_unknown_sampling_default_is_a_configuration_error(name: str, tmp_path: Path) -> None:
    spec = target(sampling={name: 1})
    with pytest.raises(ConfigurationError, match=name), serve(spec, tmp_path / "unused.gguf"):
        pass


def test_the_facts_name_the_build_and_the_processor_and_no_path() -> None:
    facts = serving_facts()
    assert facts.startswith("llama.cpp (xllamacpp ")
    assert "/" not in facts and len(facts) <= 200
