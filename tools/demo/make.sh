#!/bin/sh
# Trains and exports both demo models. Run it from the root of the repository, with requirements.txt installed.
set -eu
here=$(dirname "$0")
for model in demo demo-draft; do
    python "$here/train.py" "$model" --out demo-run "$@"
    python "$here/export.py" "$model" --run demo-run --out "models/$model"
    cp "demo-run/$model-training-log.jsonl" "models/$model/training-log.jsonl"
done
