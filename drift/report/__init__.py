"""The report: notebooks executed over a record, and the site made of them."""

from drift.report.site import RecordRef, build_site
from drift.report.tables import Record, load_record

__all__ = ["Record", "RecordRef", "build_site", "load_record"]
