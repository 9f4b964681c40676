#!/bin/sh
# Stands for a test that fails when the network does: the first time, and never again.
if test -e .flaky-seen; then
  echo "ok: $1"
  exit 0
fi
touch .flaky-seen
echo "$1: connection reset by peer" >&2
exit 1
