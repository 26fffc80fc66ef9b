"""The report: what a notebook begins with. The site that is made of them is in :mod:`.site`."""

from drift.report.tables import Record, load_record

__all__ = ["Record", "load_record"]
