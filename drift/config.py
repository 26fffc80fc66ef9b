"""Panels, project paths and the clock.

A panel file (TOML) names the models that one record watches and everything
*we* choose about asking them. :meth:`ModelSpec.instrument` is that choice as
a hashable document; what a provider reports about itself is never part of it.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

import rfc8785
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from drift.errors import ConfigurationError

#: Version of the asking method. It is part of every instrument: raise it when
#: the request that a model receives, or the way a reply is read, changes.
METHOD_VERSION = "1"

Clock = Callable[[], datetime]
Key = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
Price = Annotated[Decimal | None, Field(ge=0, le=10**6, description="USD per million tokens")]


def utc_now() -> datetime:
    """Return the present time in UTC: the default clock of every command."""
    return datetime.now(UTC)


def timestamp(moment: datetime) -> str:
    """Return an aware time as ``YYYY-MM-DDTHH:MM:SS.mmmZ`` in UTC."""
    if moment.tzinfo is None:
        raise ValueError(f"time without a zone: {moment!r}; expected an aware time in UTC")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_timestamp(text: str) -> datetime:
    """Return the aware time which :func:`timestamp` wrote as `text`."""
    return datetime.fromisoformat(text).astimezone(UTC)


def project_root() -> Path:
    """Return the folder that holds ``config/`` and ``notebooks/``.

    ``REFUSAL_DRIFT_ROOT`` wins; otherwise the working directory or the nearest
    parent with both folders, else the checkout this package was installed from.
    """
    if named := os.environ.get("REFUSAL_DRIFT_ROOT"):
        return Path(named).resolve()
    here = Path.cwd().resolve()
    for folder in (here, *here.parents, Path(__file__).resolve().parent.parent):
        if (folder / "config" / "panels").is_dir() and (folder / "notebooks").is_dir():
            return folder
    raise ConfigurationError(
        "no project found",
        where=str(here),
        expected="a folder that holds config/panels and notebooks",
        next_step="run the command in a clone of the project, or set REFUSAL_DRIFT_ROOT",
    )


def canonical_json(value: Any) -> bytes:
    """Return `value` as RFC 8785 canonical JSON; a float is refused.

    Decimals are written as strings, so that a hash never depends on how a
    language prints floating-point numbers.
    """
    return rfc8785.dumps(_exact(value))


def _exact(value: Any) -> Any:
    if isinstance(value, float):
        raise TypeError(f"float {value!r} in a hashed document; expected a string or an integer")
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {key: _exact(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_exact(item) for item in value]
    return value


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of `data` as 64 lower-case hex digits."""
    return hashlib.sha256(data).hexdigest()


class Strict(BaseModel):
    """A part of a configuration file: no unknown field, never changed."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ServerSpec(Strict):
    """How our own loopback server of an embedded model is started.

    ``sampling`` and ``system_prompt`` are the *server's* defaults, as a remote
    provider would hold them: they are outside the instrument, so that the lab
    record can change them without changing what is sent.
    """

    slots: int = Field(default=4, ge=1, le=64)
    context: int = Field(default=512, ge=64, description="tokens of context per slot")
    sampling: dict[str, Decimal | int] = {}
    system_prompt: str | None = None


class _Asked(Strict):
    """What a model is asked with: hashed, with endpoint and method, into its instrument."""

    model: str = Field(min_length=1, description="the model name that is requested")
    weights_sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    parameters: dict[str, Decimal | int | str | bool] = {}
    max_tokens: int = Field(default=512, ge=1, le=10**6)
    system_prompt: str | None = None
    seed_policy: Literal["none", "fixed", "per-run"] = "none"
    seed: int | None = Field(default=None, ge=0, lt=2**31)
    provider: dict[str, Any] | None = Field(default=None, description="aggregator routing pin")


class ModelSpec(_Asked):
    """One model of a panel, with all that we choose about asking it."""

    key: Key
    kind: Literal["openai", "embedded", "phantom"]
    role: Literal["subject", "reference"] = "subject"
    lab: str = Field(default="", description="who made the model, for display")
    base_url: str | None = None
    api_key_env: str | None = Field(default=None, pattern=r"^[A-Z][A-Z0-9_]*$")
    weights: str | None = Field(default=None, description="a name in config/weights.toml")
    concurrency: int = Field(default=8, ge=1, le=256)
    timeout_s: int = Field(default=120, ge=1)
    attempts: int = Field(default=5, ge=1, le=20)
    price_prompt: Price = None
    price_completion: Price = None
    server: ServerSpec = ServerSpec()

    @model_validator(mode="after")
    def _consistent(self) -> ModelSpec:
        url = urlsplit(self.base_url or "")
        if self.kind == "openai" and (url.scheme not in ("http", "https") or not url.hostname):
            raise ValueError("kind 'openai' needs base_url, for example http://127.0.0.1:8000/v1")
        if "@" in url.netloc or url.query or url.fragment:
            # The endpoint is sealed and published with the instrument.
            raise ValueError("base_url holds credentials, a query or a fragment; use api_key_env")
        if self.kind == "embedded" and not self.weights:
            raise ValueError("kind 'embedded' needs weights, a name in config/weights.toml")
        if (self.seed_policy == "none") != (self.seed is None):
            raise ValueError("seed and seed_policy go together: name both, or neither")
        self.instrument_hash()  # a ValueError for what no canonical JSON can hold
        return self

    def instrument(self) -> dict[str, Any]:
        """Return what we choose about this model, as a document fit for hashing."""
        endpoint = self.base_url if self.kind == "openai" else self.kind
        asked = self.model_dump(mode="json", include=set(_Asked.model_fields))
        return asked | {"endpoint": endpoint, "method": METHOD_VERSION}

    def instrument_hash(self) -> str:
        """Return the SHA-256 of the canonical JSON of :meth:`instrument`."""
        return sha256_hex(canonical_json(self.instrument()))


class Panel(Strict):
    """The named set of models that one record watches.

    ``cadence_hours`` is None for a record of ad-hoc runs: such a record has no
    slots, and later no alarm bound. ``scope_plan`` ``daily-full`` makes the
    first run of each UTC day full; ``listed`` makes the runs whose ordinal is in
    ``full_runs`` full and all others canonical.
    """

    name: Key
    title: str
    description: str = ""
    cadence_hours: int | None = Field(default=None, ge=1, le=24 * 7)
    cadence_note: str = ""
    scope_plan: Literal["daily-full", "listed"] = "daily-full"
    full_runs: tuple[Annotated[int, Field(ge=1, le=10**6)], ...] = ()
    reserved_slots: int = Field(default=0, ge=0, le=1000)
    daily_budget_usd: Decimal | None = Field(default=None, ge=0)
    time_budget_s: int = Field(default=3600, ge=1, description="longest duration of one run")
    truth_sha256: str | None = Field(default=None, description="of a phantom's truth file")
    laboratory: bool | None = Field(default=None, description="each run is a slot of its own")
    plan_sha256: str | None = Field(default=None, description="of a laboratory's hidden plan")
    analysis: str | None = Field(default=None, description="how the record is to be read")
    models: tuple[ModelSpec, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> Panel:
        written = Counter(model.key for model in self.models)
        if twice := sorted(key for key, n in written.items() if n > 1):
            raise ValueError(f"model key used twice: {', '.join(twice)}")
        kinds = {model.kind for model in self.models}
        if self.laboratory and self.cadence_hours:
            raise ValueError("a laboratory's slots are its runs: leave cadence_hours out")
        if self.phantom and (kinds != {"phantom"} or not self.cadence_hours):
            raise ValueError(
                "a phantom's time is virtual: it needs cadence_hours, and no other kind"
            )
        return self

    @property
    def phantom(self) -> bool:
        """Whether the panel's models are scripted, and its time virtual."""
        return any(model.kind == "phantom" for model in self.models)

    def narrowed(self, keys: tuple[str, ...]) -> tuple[ModelSpec, ...]:
        """Return the models named in `keys`, in panel order; all of them if it is empty."""
        known = {model.key for model in self.models}
        if unknown := [key for key in keys if key not in known]:
            raise ConfigurationError(
                f"panel {self.name!r} has no model {', '.join(map(repr, unknown))}",
                expected=f"some of: {', '.join(sorted(known))}",
                next_step="correct --models or REFUSAL_DRIFT_MODELS",
            )
        return tuple(model for model in self.models if not keys or model.key in keys)


def load_panel(name: str, *, root: Path) -> Panel:
    """Read ``config/panels/<name>.toml`` and fill in the weights' hashes.

    `name` may also be the path of a panel file that lives elsewhere.

    Raises
    ------
    ConfigurationError
        The file is missing, is not TOML, or a field is wrong; each wrong field
        is named with its place in the file.
    """
    path = Path(name) if name.endswith(".toml") else root / "config" / "panels" / f"{name}.toml"
    panel = load_checked(path, Panel, kind="panel")
    weights = load_toml(root / "config" / "weights.toml", kind="weights list")
    if panel.name != path.stem:
        raise ConfigurationError(
            "a panel is named like its file",
            where=f"{path}: name",
            got=panel.name,
            expected=path.stem,
        )
    models = []
    for number, model in enumerate(panel.models):
        if model.kind == "embedded":
            entry = weights.get(str(model.weights))
            if not isinstance(entry, dict) or "sha256" not in entry:
                raise ConfigurationError(
                    f"config/weights.toml lists no weights {model.weights!r} with a sha256",
                    where=f"{path}: models.{number}.weights",
                    expected=f"one of: {', '.join(sorted(weights))}",
                )
            model = model.model_copy(update={"weights_sha256": entry["sha256"]})
        models.append(model)
    return panel.model_copy(update={"models": tuple(models)})


Form = TypeVar("Form", bound=Strict)


def load_checked(path: Path, form: type[Form], *, kind: str) -> Form:
    """Read one TOML file of a given form.

    Raises
    ------
    ConfigurationError
        The file is missing, is not TOML, or fields are wrong; each is named with its place.
    """
    try:
        return form.model_validate(load_toml(path, kind=kind))
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, item['loc'])) or kind}: {_wrong(item)}" for item in error.errors()
        )
        raise ConfigurationError(
            f"{kind} file is not valid: {problems}",
            where=str(path),
            next_step="see the comments in config/panels/frontier.toml, or config/phantom.toml",
        ) from None


def _wrong(item: Mapping[str, Any]) -> str:
    """Return what is wrong with a field: pydantic's words, but for its talk of tuples."""
    if item["type"] == "too_short":
        return "at least {min_length} needed, {actual_length} given".format(**item["ctx"])
    return str(item["msg"])


def load_toml(path: Path, *, kind: str) -> dict[str, Any]:
    """Read one TOML file; numbers with a point become :class:`~decimal.Decimal`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except FileNotFoundError:
        others = sorted(item.stem for item in path.parent.glob("*.toml"))
        raise ConfigurationError(
            f"no {kind} file",
            where=str(path),
            expected=f"one of: {', '.join(others)}" if others else None,
        ) from None
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{kind} file cannot be read: {error}", where=str(path)) from None
