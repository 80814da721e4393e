#!/usr/bin/env bash
# Builds the Python wheel and the sdist, and tests the wheel as a user has it: a fresh environment, no compiler, no network.
#
#     tools/package/wheel.sh [--profile dev] [--zig] [--out DIR] [--no-sdist]
#
# --profile dev reuses what `cargo build` built. --zig links for glibc 2.17 (manylinux2014), with `ziglang` and `cargo-zigbuild` of
# the package index; without it the wheel asks for the glibc of this machine. PIP_FIND_LINKS and its like are pip's.
set -euo pipefail
cd "$(dirname "$0")/../.."

profile=release zig='' out=target/package/wheels sdist=1
while [ $# -gt 0 ]; do
  case $1 in
    --profile) profile=$2; shift ;;
    --zig) zig=1 ;;
    --out) out=$2; shift ;;
    --no-sdist) sdist='' ;;
    *) echo "wheel.sh: unknown argument $1" >&2; exit 2 ;;
  esac
  shift
done
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m venv "$work/build"
"$work/build/bin/pip" install --quiet --disable-pip-version-check 'maturin>=1.9,<2' ${zig:+ziglang cargo-zigbuild}
export PATH=$work/build/bin:$PATH MILLRACE_WHEEL_PROFILE=$profile
if [ -n "$zig" ]; then
  export MILLRACE_WHEEL_TARGET=$(uname -m)-unknown-linux-gnu.2.17
else
  # The tag that the symbols of this machine's glibc allow; maturin looks at them.
  export MATURIN_PEP517_ARGS='--compatibility pypi'
fi
mkdir -p "$out" "$work/made"
"$work/build/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w "$work/made" .
if [ -n "$sdist" ]; then
  env -u MATURIN_PEP517_ARGS PYTHONPATH=tools/package "$work/build/bin/python" -c \
    'import build_backend, sys; build_backend.build_sdist(sys.argv[1])' "$work/made" >/dev/null
fi
cp "$work"/made/* "$out"
wheel=$(ls "$work"/made/*.whl)
ls -l "$out" | awk 'NR > 1 {print $5, $9}'

# From `pip install` of the file to the demo's first word.
"$python" -m venv "$work/user"
mkdir "$work/elsewhere"
began=$(date +%s.%N)
"$work/user/bin/pip" install --quiet --disable-pip-version-check --no-index "$wheel"
(cd "$work/elsewhere" && "$work/user/bin/python" - <<'CODE') >"$work/first"
import millrace
text = ""
for piece in millrace.Model("demo").generate("Once upon a time", stream=True, temperature=0):
    text += piece
    if any(c.isalpha() for c in text):
        break
print(text)
CODE
ended=$(date +%s.%N)
[ -s "$work/first" ] || { echo "no first word" >&2; exit 1; }
seconds=$(echo "$began $ended" | awk '{printf "%.1f", $2 - $1}')
echo "pip install to the first word, $(tr -d '\n' <"$work/first"): $seconds s (asked: at most 15)"

(
  cd "$work/elsewhere"
  env -i HOME="$work/elsewhere" PATH="$work/user/bin" millrace run demo "Once upon a time" --greedy -n 8
)
tests=$PWD/crates/python/tests
(cd "$work/elsewhere" && "$work/user/bin/python" -m unittest discover -s "$tests")
if "$work/user/bin/pip" install --quiet --disable-pip-version-check numpy; then
  (cd "$work/elsewhere" && "$work/user/bin/python" -m unittest discover -s "$tests" -k numpy -k logits)
fi
awk -v s="$seconds" 'BEGIN {exit !(s <= 15)}' || { echo "more than 15 s" >&2; exit 1; }
echo "ok $wheel" | sed "s|$work/made|$out|"
