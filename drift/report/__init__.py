"""The report: notebooks executed over a record, and the site made of them."""

from drift.report.execute import Failure, Job, Progress, execute
from drift.report.site import RecordRef, build_site
from drift.report.tables import Record, load_record

__all__ = [
    "Failure",
    "Job",
    "Progress",
    "Record",
    "RecordRef",
    "build_site",
    "execute",
    "load_record",
]
