#!/bin/sh
# The output becomes part of the prompt. DOGWATCH_ITERATION is the number of the iteration.
echo "- step $DOGWATCH_ITERATION"
