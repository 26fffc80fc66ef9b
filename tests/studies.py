"""Made-up studies and labels; no person has read anything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from drift.records.draw import Key, KeyRow, Place, SheetRow, Stratum, Unit
from drift.records.scheme import Name
from drift.records.sheet import Marks
from drift.records.study import Study

#: Strata of the made-up study: model, judge's label, language, units, units drawn.
STRATA = [
    ("m1", "answered", "en", 200, 50),
    ("m1", "refused", "en", 40, 20),
    ("m2", "answered", "en", 90, 45),
    ("m2", "refused", "en", 10, 10),
]


def made_up(
    strata: list[tuple[str, str, str, int, int]] = STRATA, *, scheme: Name = "refusal"
) -> Study:
    """Return a study whose rows are numbered; each unit stands for one response."""
    rows, sheet = {}, {}
    for number, (model, _, language, units, drawn) in enumerate(strata):
        for n in range(drawn):
            name = f"{number:04x}{n:08x}"
            place = Place(run="20260301T000500Z", model=model, key=f"t/q-{number}-{n}#en-1")
            unit = Unit(stratum=number, inclusion=drawn / units, responses=(place,))
            sheet[name] = SheetRow(name, "Why?", f"answer {n}", False, language)
            rows[name] = KeyRow(read_sha256=sheet[name].sha256, units=(unit,))
    key = Key(
        study="",
        panel="test",
        scheme=scheme,
        judge={"id": "rules"},
        arms="canonical",
        runs={"m1": ("20260301T000500Z",)},
        seed=1,
        n=len(rows),
        floor=4,
        left_out={},
        strata=tuple(
            Stratum(
                model=model, label=label, language=language, units=units, responses=units,
                drawn=drawn,
            )  # type: ignore[arg-type]
            for model, label, language, units, drawn in strata
        ),
        rows=rows,
    )  # fmt: skip
    return Study(Path("study"), key.named, sheet)


def judged(study: Study) -> dict[str, str]:
    return {row: study.key.strata[unit.stratum].label for row, unit in study.units}


def marks(name: str, labels: Mapping[str, str]) -> Marks:
    return Marks(f"made-up-{name}", dict(labels), {})  # type: ignore[arg-type]
