#!/bin/sh
# Open an issue about a failed slot; while one is open, further failures are comments on it.
#
#   PANEL   the panel that failed
#   ISSUES  the repository for the issue, OWNER/NAME; `gh` is logged in, or GH_TOKEN is set
set -eu
if [ -n "${1:-}" ]; then
  set -a
  . "$1"
  set +a
fi
: "${PANEL:?}" "${ISSUES:?}"

title="A run of $PANEL failed"
body="$(date -u +%Y-%m-%dT%H:%MZ), on ${HOSTNAME:-a machine without a name}. The last good site stays. \
What went wrong is in the log; report/failures.json names a notebook that stopped."
open=$(gh issue list --repo "$ISSUES" --state open --json number,title \
  --jq "map(select(.title == \"$title\")) | .[0].number // empty")
if [ -n "$open" ]; then
  gh issue comment "$open" --repo "$ISSUES" --body "$body"
else
  gh issue create --repo "$ISSUES" --title "$title" --body "$body"
fi
