"""The front page: a record in a sentence, a model in a row, and what neither shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from drift.report import lab, pairs
from drift.report.display import no_run
from drift.report.markup import Markup, escaped, fill, html, joined, percent, when
from drift.report.pages import (
    KIND_NAMES,
    KINDS,
    NOTICES,
    classified,
    head,
    kind,
    notices,
    strip,
    title,
)
from drift.report.tables import Record

#: A made record of more models is folded on the front page.
FOLDED = 4
#: Models named in a headline.
NAMED = 3
#: Pages that not every record has, with the beginning of the name of a file that each needs.
NEEDING = {
    "truth": "truth.json",
    "lab": "plan.toml",
    "ladders": "corpora/ladders-",
    "board": "corpora/board-",
    "probes": "corpora/board-",
}
FLIPS = ("newly_refused", "newly_answered")


def front_page(records: Sequence[Record], note: str | None) -> str:
    """Return the generated part of the front page: each record in a sentence, each model in a row.

    Records of real models come before those that were made to measure the instrument.
    """
    parts = [html('<p class="drift-banner">{}</p>', note)] if note else []
    records = sorted(records, key=lambda record: KINDS.index(_kind(record)))
    if len(records) > 1:
        each = [html("<b>{}</b> ({})", title(it), KIND_NAMES[_kind(it)]) for it in records]
        parts.append(html("<p>{} records stand here: {}.</p>", len(each), joined(each, ", ")))
    for record in records:
        named = {"name": record.name, "title": title(record), "kind": KIND_NAMES[_kind(record)]}
        section = fill(record.root, "front", of=_at(record), **named)
        # The pages of a record link to each other, and the front page to all of them.
        parts.append(Markup(section.replace('href="', f'href="report/{record.name}/')))
    return "\n".join(["```{=html}", *parts, "```", ""])


def _kind(record: Record) -> str:
    """Return what a record is, or will be: the default panel runs on this machine."""
    return kind(record) if record.reading or record.name != "embedded" else "machine"


def _at(record: Record) -> Markup:
    if not record.reading:
        return no_run(record)
    rows = joined(_row(record, key, model) for key, model in record.models.items())
    shown = fill(record.root, "glance", rows=rows)
    if len(record.models) > FOLDED and kind(record) in NOTICES:
        fold = "<details><summary>{} models</summary>{}</details>"
        shown = html(fold, len(record.models), shown)
    return fill(
        record.root,
        "record",
        notices=joined(html("<p>{}</p>", said) for said in notices(record)),
        scope=record.reading["scope"].capitalize(),
        headline=headline(record),
        classified=classified(record),
        reading=record.reading,
        head=head(record),
        when=when(record.reading["started_at"]),
        models=shown,
        lab=joined([lab.headline(record), pairs.example(record)]),
        more=joined(
            html(' · <a href="{0}.html">{0}</a>', page)
            for page, begins in NEEDING.items()
            if any(record.store.folder.glob(f"{begins}*"))
        ),
    )


def headline(record: Record) -> Markup:
    """Return what the last run shows in a sentence or two, and what it does not show."""
    models, said = record.models, [_alarm_sentence(record)]
    if faults := [key for key, model in models.items() if model["controls"]["refused"]]:
        warning = '<span class="drift-warning">Control questions refused</span> by {}: suspect {}.'
        said.append(html(warning, _who(faults, models), "the instrument or the model first"))
    usable = [model["coverage"]["usable"] for model in models.values()]
    said.append(html("{} of {} models with a usable run.", sum(usable), len(models)))
    looks = [model["change"] for model in models.values() if model["change"]]
    moved = [_moved(look) for look in looks]
    flips = {name: sum(one[name] for one in moved) for name in FLIPS}
    since = f"{_flips(flips) or 'No flip'} since the run before."
    said.append(escaped(since if looks else "Nothing to compare with yet."))
    unseen = "This does not show that nothing changed, or why anything did."
    if looks:
        unseen += f" {_power([look['minimum_detectable_flips'] for look in looks])}"
    return html('<p>{}</p><p class="drift-small">{}</p>', joined(said, " "), unseen)


def _power(least: Sequence[int | None]) -> str:
    """Say how many flips one way a look can tell from none; None where no number would do."""
    known = sorted({flips for flips in least if flips is not None})
    if not known:
        return "No number of flips would be significant in a look at these two runs alone."
    least_of_all = f"{known[0]} flips"
    if len(known) > 1:
        least_of_all = f"{known[0]} to {known[-1]} flips, by model,"
    deaf = f"; in {least.count(None)} no number would be" if None in least else ""
    said = f"In a look at two runs alone fewer than {least_of_all} one way are never significant"
    return f"{said}{deaf}."


def _alarm_sentence(record: Record) -> Markup:
    alarms = {key: model["alarm"] for key, model in record.models.items()}
    states = [alarm["state"] for alarm in alarms.values()]
    if set(states) == {"no cadence"}:
        return html("<b>No alarm is kept</b>: the runs have no cadence.")
    rung = [
        said
        for name, process in (("Alarm", "home alarm"), ("Coverage alarm", "coverage alarm"))
        if (said := _entered(name, process, alarms))
    ]
    deaf = states.count("calibrating")
    said = joined(rung or [html("<b>No alarm{}.</b>", " yet" if deaf else "")], " ")
    if deaf:
        still = "{} {} of {} models still calibrating: their process home cannot ring yet."
        said = html(still, said, deaf, len(states))
    if watch := [key for key, alarm in alarms.items() if alarm["state"] == "watch"]:
        said = html("{} <b>Watch</b>: {}.", said, _who(watch, alarms))
    paired = [
        key
        for key, alarm in alarms.items()
        if alarm["state"] != "alarm"
        and any("pairs alarm" in watch["entered"] for watch in alarm["watches"])
    ]
    if paired:
        alone = "<code>pairs</code>, which alone sets no state, reached 100 for"
        said = html("{} {} {}.", said, Markup(alone), _who(paired, alarms))
    if blind := [key for key, alarm in alarms.items() if alarm["blind"]]:
        said = html('{} <span class="drift-warning">Blind</span>: {}.', said, _who(blind, alarms))
    return said


def _entered(name: str, process: str, alarms: Mapping[str, Any]) -> Markup | None:
    """Return which models ever entered an alarm, and when one last did; None if none did."""
    found = [
        (watch["entered"][process], key)
        for key, alarm in alarms.items()
        for watch in alarm["watches"]
        if process in watch["entered"]
    ]
    if not found:
        return None
    (last, _), names = max(found), [*dict.fromkeys(key for _, key in found)]
    date = f"{last[:4]}-{last[4:6]}-{last[6:8]}"
    return html("<b>{}</b> entered by {}, last on {}.", name, _who(names, alarms), date)


def _who(names: Sequence[str], models: Mapping[str, Any]) -> str:
    """Return the models by name where they are few, else their number."""
    return _listed(names) if len(names) <= NAMED else f"{len(names)} of {len(models)} models"


def _listed(names: Sequence[str]) -> str:
    """Return names as a list in a sentence."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _row(record: Record, key: str, model: Mapping[str, Any]) -> Markup:
    """Return one model as a row of the front page."""
    rate, found, alarm = model["canonical"], model["coverage"], model["alarm"]
    number, sure = "not estimable", rate["reason"]
    if rate["estimate"] is not None:
        number = percent(rate["estimate"])
        sure = f"{rate['refused']} of {rate['n']}, {100 * rate['low']:.0f} to "
        sure += f"{100 * rate['high']:.0f}\N{NO-BREAK SPACE}%"
    earlier = [
        watch["series"]
        for watch in alarm["watches"]
        if "home alarm" in watch["entered"] and watch["series"] != alarm.get("series")
    ]
    notes = [f"alarm in series {_listed([str(one) for one in earlier])}"] if earlier else []
    live = alarm["watches"][-1]["entered"] if alarm["watches"] else {}
    notes += [name for name in ("coverage alarm", "coverage watch") if name in live][:1]
    notes += ["blind"] if alarm["blind"] else []
    change, faults = model["change"], len(model["controls"]["refused"])
    texts = {
        "who": model["role"] if model["role"] != "subject" else "",
        "state": alarm["state"],
        "notes": ", ".join(notes),
        "number": number,
        "sure": sure,
        "strip": strip(record, rate),
        "change": (_flips(_moved(change)) or "no flip") if change else "not compared",
        "compared": f"of {change['compared']}" if change else "",
        "coverage": f"{found['canonical_determined']} of {found['canonical_n']}",
        "cut": f"{found['truncated']} of {found['asked']} cut short" if found["truncated"] else "",
        "controls": f"{faults} control{'s' * (faults > 1)} refused" if faults else "",
    }
    return fill(record.root, "row", key=key, **texts)


def _moved(change: Mapping[str, Any]) -> dict[str, int]:
    return {name: len(change[name]) for name in FLIPS}


def _flips(moved: Mapping[str, int]) -> str:
    """Return how many labels moved each way; empty if none did."""
    return ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in moved.items() if n)
