#!/bin/sh
# Simulates a flaky test: it fails the first time and passes afterwards.
if test -e .flaky-seen; then
  echo "ok: $1"
  exit 0
fi
touch .flaky-seen
echo "$1: connection reset by peer" >&2
exit 1
