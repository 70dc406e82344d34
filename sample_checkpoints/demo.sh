#!/bin/sh
# The story of a head transplant, told on three checkpoints of one training run; `make demo` runs it.
# Leaves the edited checkpoints in build/demo, to look at.
set -eu
cd "$(dirname "$0")/.."
samples=sample_checkpoints
edited=build/demo

bold() { if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then printf '\033[1m%s\033[0m\n' "$*"; else printf '%s\n' "$*"; fi; }
show() { bold "\$ $*"; "$@"; echo; }
# `diff` and `probe` answer "they differ" with exit code 1, which is what the story expects.
show_difference() {
  bold "\$ $*"
  code=0
  "$@" || code=$?
  [ "$code" -eq 1 ] || { echo "expected differences (exit code 1), got exit code $code" >&2; exit 1; }
  echo
}
# The training script is any script: what Orbax and JAX log about themselves is kept for the case that it fails.
train_on() {
  bold "\$ python resume.py $*"
  python "$samples/resume.py" "$@" 2>"$edited/log" || { cat "$edited/log" >&2; exit 1; }
  echo
}

rm -rf "$edited"
mkdir -p "$edited"

bold "1. A trained checkpoint, opened without its model code"
show surgery inspect "$samples/digits_standard"
train_on "$samples/digits_standard" --evaluate

bold "2. A plan: what would change"
show cat "$samples/head.yaml"
show surgery plan "$samples/digits_standard" "$samples/head.yaml"

bold "3. The same plan on three ways to save: StandardCheckpointer, CheckpointManager, Orbax v1"
for sample in digits_standard digits_manager digits_v1; do
  show surgery apply "$samples/$sample" "$edited/$sample" "$samples/head.yaml"
  show_difference surgery diff "$samples/$sample" "$edited/$sample"
  show surgery verify "$edited/$sample"
  bold "The original script resumes, with its own TrainState target:"
  train_on "$edited/$sample" --steps 100
done

bold "4. What the edit changed inside: both checkpoints through the model, on one batch"
show_difference surgery probe "$samples/digits_standard" --against "$edited/digits_standard" \
  --model "$samples/digits.py:CNN" --input "float32[4,8,8,1]" --at "Dense_*"
