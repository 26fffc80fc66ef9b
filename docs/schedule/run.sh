#!/bin/sh
# One slot of a record: refresh, verify, report, publish. Ends with the exit code of the refresh.
#
#   sh docs/schedule/run.sh [FILE]     FILE holds the settings below as NAME=value lines
#
#   PANEL   name in config/panels, or the path of a panel file
#   DATA    folder that holds the records: a git repository of its own
#   SITE    where the site goes, as rsync takes it: /var/www/drift/ or user@host:drift/
#   BOARD   yes: make the night of the board too, in the first slot of a UTC day
#
# and the API keys that the panel names. Run it in a clone in which `make env` has been run.
set -eu
if [ -n "${1:-}" ]; then
  set -a
  . "$1"
  set +a
fi
: "${PANEL:?}" "${DATA:?}" "${SITE:?}"

code=0
.venv/bin/drift refresh --panel "$PANEL" --data "$DATA" || code=$?
if [ "${BOARD:-no}" = yes ]; then
  night=0
  .venv/bin/drift board --panel "$PANEL" --data "$DATA" || night=$?
  case $code in
    0 | 3 | 5) [ "$night" = 0 ] || code=$night ;;    # what went wrong last, but a failure stays
  esac
fi

# Whatever came back is kept, an open run of a paused or failed refresh included.
git -C "$DATA" add --all
git -C "$DATA" diff --cached --quiet || git -C "$DATA" commit --quiet --message "Run of $PANEL"
git -C "$DATA" push --quiet

case $code in
  0 | 3 | 5) ;;         # whole, paused, partial: the site is renewed and shows what is missing
  *) exit "$code" ;;    # the last good site stays
esac
.venv/bin/drift verify --data "$DATA"    # a record that does not hold is not published
.venv/bin/drift report --data "$DATA"
rsync --archive --delete report/_site/ "$SITE"
exit "$code"
