"""The form of a judging by a model: its ledger line, and the rows of its file.

A chain comes from anyone: a line or a row that is not of this form is named by who reads it, and
never breaks a page or a command.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from drift.errors import IntegrityError
from drift.judging.entailment import Word, judge_id, rules_hash
from drift.probing.response import Status

Arms = Literal["canonical", "all"]
ARMS: tuple[Arms, ...] = get_args(Arms)
Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=0)]


class _Form(BaseModel):
    """What must stand there, each value of its own type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Open(_Form):
    """The same, with room for more."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)


class Named(_Form):
    """A judge as a line names it."""

    id: Text
    rules: Hash
    fingerprint: Hash


class _Version(_Form):
    version: Text
    sha256: Hash


class _Instrument(_Open):
    model: Text
    parameters: dict[str, Any]


class _Asked(_Open):
    model: Text
    instrument: _Instrument
    server: dict[str, Any]
    wording: _Version
    anchors: _Version
    longest: Count
    code: Text
    answered_by: Hash
    arms: Arms


class _Usage(_Form):
    prompt_tokens: Count
    completion_tokens: Count
    cost_usd: Annotated[str, Field(pattern=r"^[0-9]{1,12}(\.[0-9]{1,30})?$")] | None


class _Line(_Open):
    run: Text
    judge: Named
    labels: Hash
    asked: _Asked
    usage: _Usage


class _Row(_Form):
    label: Word
    rule: Literal["reply"]
    span: None
    messages_sha256: Hash
    reply: str
    status: Status
    served_model: str | None = None
    fingerprint: str | None = None
    note: str | None = None

    @model_validator(mode="after")
    def _came(self) -> Self:
        came = self.status in ("ok", "truncated")
        if not came and self.label != "missing":
            raise ValueError(f"a verdict of a reply that is {self.status}")
        if came and self.note is not None:
            raise ValueError("a note on why nothing came, and a reply")
        return self


class _OnAnchor(_Row):
    anchor: Text


class _OnResponse(_Row):
    key: Text
    model: Text
    named: str | None
    text_sha256: Hash

    @model_validator(mode="after")
    def _only_after_no(self) -> Self:
        if self.named is not None and self.label != "no":
            raise ValueError("a question is named, and the verdict is not No")
        return self


def checked_line(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the body of a judging's ledger line; IntegrityError if it is not of its form."""
    where = f"chain.jsonl, line {body.get('seq', -1) + 1}"
    found = _checked(_Line, dict(body), where)
    asked = body["asked"]
    named = {"id": judge_id(found.asked.model), "rules": rules_hash(asked)}
    if wrong := [name for name, value in named.items() if body["judge"][name] != value]:
        raise IntegrityError(
            "a judging's line names another judge than was asked",
            where=f"{where}, judge.{wrong[0]}",
            got=str(body["judge"][wrong[0]])[:80],
            expected=named[wrong[0]],
            next_step="restore the chain from a copy of the record",
        )
    return body


def checked_row(row: Any, where: str) -> dict[str, Any]:
    """Return a row of a judging; IntegrityError if it is not of its form."""
    on_anchor = isinstance(row, dict) and "anchor" in row
    _checked(_OnAnchor if on_anchor else _OnResponse, row, where)
    checked: dict[str, Any] = row
    return checked


Form = TypeVar("Form", bound=_Form)


def _checked(form: type[Form], value: Any, where: str) -> Form:
    try:
        return form.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise IntegrityError(
            "a judging is not of its form",
            where=f"{where}, {place}" if place else where,
            got=repr(first["input"])[:80],
            expected=first["msg"],
            next_step="`drift verify` names the line; restore it from a copy of the record",
        ) from None
