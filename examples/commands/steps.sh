#!/bin/sh
# Its output goes into the prompt. DOGWATCH_ITERATION says which turn it is.
echo "- step $DOGWATCH_ITERATION"
