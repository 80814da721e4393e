#!/usr/bin/env bash
# Builds the Python wheel and the sdist, and tests the wheel as a user has it: a fresh environment, no compiler, no network.
#
#     tools/package/wheel.sh [--profile dev] [--zig] [--arch x86_64|aarch64] [--program FILE] [--from-sdist] [--no-sdist] [--out DIR]
#     tools/package/wheel.sh --wheel FILE [--bare] [--with-frameworks]
#
# --profile dev       reuses what `cargo build` built
# --zig               links for glibc 2.17 (manylinux2014), with `ziglang` and `cargo-zigbuild` of the package index; without it the
#                     wheel asks for the glibc of this machine
# --arch              another architecture than this machine's implies --zig; its program is run by qemu (Debian: qemu-user), if that and
#                     the architecture's libraries (Debian: libc6-arm64-cross) are here
# --program FILE      takes this program, which was built already, for the one in the wheel
# --from-sdist        makes the wheel of the sdist, outside the repository and with what pip fetches for it, as somebody does who has nothing else
# --bare              tests in a bare Debian too, of python3-venv and nothing else, without a network (as root; Debian: mmdebstrap); a wheel of
#                     another architecture in that one's Python, by qemu
# --with-frameworks   runs the tests of Ray, LangChain, LlamaIndex and numpy, installed from the package index; one that is skipped fails
# --wheel FILE        tests this one, and builds none
#
# A wheel of another architecture than this machine's is run by qemu. With qemu the program also runs on the least processor of its architecture,
# and must write the same there. PIP_FIND_LINKS and its like are pip's.
set -euo pipefail
profile=release zig='' out=target/package/wheels sdist=1 arch=$(uname -m) bare='' frameworks='' wheel='' from_sdist=''
while [ $# -gt 0 ]; do
  case $1 in
    --profile) profile=$2; shift ;;
    --zig) zig=1 ;;
    --arch) arch=$2; shift ;;
    --program) MILLRACE_WHEEL_PROGRAM=$(realpath "$2"); export MILLRACE_WHEEL_PROGRAM; shift ;;
    --out) out=$(realpath -m "$2"); shift ;;
    --no-sdist) sdist='' ;;
    --from-sdist) from_sdist=1 ;;
    --bare) bare=1 ;;
    --with-frameworks) frameworks=1 ;;
    --wheel) wheel=$(realpath "$2"); shift ;;
    *) echo "wheel.sh: unknown argument $1" >&2; exit 2 ;;
  esac
  shift
done
cd "$(dirname "$0")/../.."
[ "$arch" = "$(uname -m)" ] || zig=1
python=${PYTHON:-python3}
tests=$PWD/crates/python/tests
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pip=(--quiet --disable-pip-version-check)
fail() { echo "wheel.sh: $*" >&2; exit 1; }

build() {
  "$python" -m venv "$work/build"
  "$work/build/bin/pip" install "${pip[@]}" 'maturin>=1.12,<2' ${zig:+ziglang cargo-zigbuild}
  export PATH=$work/build/bin:$PATH MILLRACE_WHEEL_PROFILE=$profile
  if [ -n "$zig" ]; then
    local triple=$arch-unknown-linux-gnu
    rustup target list --installed | grep -qx "$triple" || rustup target add "$triple"
    export MILLRACE_WHEEL_TARGET=$triple.2.17
  else
    # The tag that the symbols of this machine's glibc allow; maturin looks at them.
    export MATURIN_PEP517_ARGS='--compatibility pypi'
  fi
  # Times of files in the wheel are those of the commit.
  SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 315532800)}
  export SOURCE_DATE_EPOCH
  mkdir -p "$out" "$work/made"
  if [ -n "$sdist$from_sdist" ]; then
    env -u MATURIN_PEP517_ARGS PYTHONPATH=tools/package "$work/build/bin/python" -c \
      'import build_backend, sys; build_backend.build_sdist(sys.argv[1])' "$work/made" >/dev/null
  fi
  local source=. isolation=(--no-build-isolation)
  if [ -n "$from_sdist" ]; then
    source=$(ls "$work"/made/*.tar.gz)
    # zig is in the environment above, and in no other.
    [ -n "$zig" ] || isolation=()
    # What is built of crates of others is the same.
    CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")
    export CARGO_TARGET_DIR
  fi
  (
    [ "$source" = . ] || cd "$work"
    "$work/build/bin/pip" wheel "${pip[@]}" --no-deps "${isolation[@]}" -w "$work/made" "$source"
  )
  cp "$work"/made/* "$out"
  ls -l "$out" | awk 'NR > 1 {print $5, $9}'
  wheel=$(realpath "$out/$(basename "$work"/made/*.whl)")
}

# The program, the module, their types, licences of all that is linked, and the SBOM.
check_contents() {
  local names
  names=$("$python" -m zipfile -l "$wheel")
  for name in scripts/millrace millrace/_native.abi3.so millrace/py.typed THIRD-PARTY.txt LICENSE-MIT sboms/millrace.cdx.json; do
    grep -q "$name" <<<"$names" || fail "$(basename "$wheel") has no $name"
  done
}

# From `pip install` of the file to the demo's first word, in seconds; the word goes to $work/first. Run where `millrace` is no folder.
FIRST='
import millrace
text = ""
for piece in millrace.Model("demo").generate("Once upon a time", stream=True, temperature=0):
    text += piece
    if any(c.isalpha() for c in text):
        break
print(text)
'
check_first() { # FILE SECONDS WHERE
  grep -q '[[:alpha:]]' "$1" || fail "$3: no first word"
  echo "$3: $2 s from pip install to the first word, '$(tr -d '\n' <"$1")' (asked: at most 15)"
  awk -v s="$2" 'BEGIN {exit !(s <= 15)}' || fail "$3: more than 15 s"
}
# The least processor of an architecture, as qemu calls it: SSE2 alone, and NEON alone.
least_processor() {
  case $arch in
    x86_64) echo qemu64 ;;
    aarch64) echo cortex-a53 ;;
  esac
}
# One wheel serves every processor: on the least one the program must write what it wrote elsewhere.
check_least() { # TEXT EMULATOR-AND-PROGRAM...
  local text=$1 said
  shift
  said=$("$@" run demo "Once upon a time" --greedy -n 8 --quiet)
  [ "$said" = "$text" ] || fail "on $(least_processor) the program writes '$said' in place of '$text'"
  echo "on $(least_processor), by qemu, the program writes the same"
}
since() { echo "$1 $(date +%s.%N)" | awk '{printf "%.1f", $2 - $1}'; }

test_here() {
  "$python" -m venv "$work/user"
  mkdir "$work/elsewhere"
  local began
  began=$(date +%s.%N)
  "$work/user/bin/pip" install "${pip[@]}" --no-index "$wheel"
  (cd "$work/elsewhere" && "$work/user/bin/python" -c "$FIRST") >"$work/first"
  check_first "$work/first" "$(since "$began")" "here"
  cd "$work/elsewhere"
  env -i HOME="$work/elsewhere" PATH="$work/user/bin" millrace run demo "Once upon a time" --greedy -n 8 --quiet >"$work/said"
  cat "$work/said"
  local emulator
  emulator=$(command -v "qemu-$arch" || command -v "qemu-$arch-static" || true)
  if [ -n "$emulator" ]; then
    check_least "$(cat "$work/said")" "$emulator" -cpu "$(least_processor)" "$work/user/bin/millrace"
  else
    echo "not run on the least processor: no qemu-$arch here (Debian: qemu-user)" >&2
  fi
  "$work/user/bin/python" -m unittest discover -s "$tests"
  if "$work/user/bin/pip" install "${pip[@]}" numpy; then
    "$work/user/bin/python" -m unittest discover -s "$tests" -k numpy -k logits
  else
    echo "not run with numpy: pip could not install it" >&2
  fi
}

# Every test, those of other packages too; only one asks for a file that no package brings.
test_with_frameworks() {
  "$work/user/bin/pip" install "${pip[@]}" numpy 'ray[data,serve]' langchain-core langchain-community llama-index-core
  # It asks for llama-cpp-python, in whose place Millrace is tested.
  "$work/user/bin/pip" install "${pip[@]}" --no-deps llama-index-llms-llama-cpp
  (cd "$work/elsewhere" && "$work/user/bin/python" - "$tests") <<'CODE'
import sys
import unittest

result = unittest.TextTestRunner(verbosity=1).run(unittest.defaultTestLoader.discover(sys.argv[1]))
skipped = [(test, why) for test, why in result.skipped if not why.startswith("LLAMA_CPP_PYTHON")]
for test, why in skipped:
    print(f"skipped: {test}: {why}", file=sys.stderr)
sys.exit(not result.wasSuccessful() or bool(skipped))
CODE
}

debian() { # ROOT OPTIONS-OF-MMDEBSTRAP...
  local root=$1 suite
  shift
  [ "$(id -u)" = 0 ] || fail "--bare wants root, for chroot"
  command -v mmdebstrap >/dev/null || fail "--bare wants mmdebstrap (Debian: apt-get install mmdebstrap)"
  suite=$(. /etc/os-release && [ "$ID" = debian ] && echo "$VERSION_CODENAME" || echo bookworm)
  mmdebstrap --quiet "$@" "$suite" "$root" >"$work/debian.log" 2>&1 || fail "mmdebstrap: $(tail -3 "$work/debian.log")"
}

# A Debian of its smallest variant and Python: no compiler, no network.
test_bare() {
  local root=$work/bare began
  debian "$root" --variant=minbase --include=python3-venv
  for tool in cc gcc clang ld rustc cargo; do
    ! chroot "$root" sh -c "command -v $tool" >/dev/null || fail "the bare Debian has $tool"
  done
  cp "$wheel" "$root/tmp"
  echo "$FIRST" >"$root/tmp/first.py"
  inside() { unshare --net --mount --pid --fork --mount-proc="$root/proc" chroot "$root" env -i PATH=/usr/bin:/bin HOME=/tmp "$@"; }
  inside python3 -m venv /tmp/user
  began=$(date +%s.%N)
  inside /tmp/user/bin/pip install "${pip[@]}" --no-index "/tmp/$(basename "$wheel")"
  inside /tmp/user/bin/python /tmp/first.py >"$work/first"
  check_first "$work/first" "$(since "$began")" "bare Debian, $(inside python3 --version)"
  inside /tmp/user/bin/millrace run demo "Once upon a time" --greedy -n 8 --quiet
}

# A program of another architecture, by an emulator.
test_emulated() {
  "$python" -m zipfile -e "$wheel" "$work/other"
  local program emulator libraries=/usr/$arch-linux-gnu
  program=$(ls "$work"/other/*.data/scripts/millrace)
  # readelf writes `X86-64`.
  readelf -h "$program" "$work"/other/millrace/_native.abi3.so | grep -c -i "machine:.*${arch/_/-}" | grep -qx 2 || fail "not of $arch"
  emulator=$(command -v "qemu-$arch" || command -v "qemu-$arch-static" || true)
  if [ -z "$emulator" ] || [ ! -d "$libraries/lib" ]; then
    echo "not run: no qemu-$arch or no $libraries here (Debian: qemu-user, libc6-arm64-cross, libgcc-s1-arm64-cross)" >&2
    return
  fi
  chmod +x "$program"
  "$emulator" -L "$libraries" "$program" run demo "Once upon a time" --greedy -n 8 --quiet >"$work/first"
  grep -q '[[:alpha:]]' "$work/first" || fail "the program of $arch writes no text"
  echo "$arch by qemu: $(tr -d '\n' <"$work/first")"
  check_least "$(cat "$work/first")" "$emulator" -L "$libraries" -cpu "$(least_processor)" "$program"
  [ -z "$bare" ] || test_emulated_module "$emulator"
}

# The module, in a Python of that architecture whose packages are unpacked and not installed.
test_emulated_module() { # EMULATOR
  local root=$work/emulated name=$arch
  [ "$arch" != aarch64 ] || name=arm64
  debian "$root" --variant=extract --architectures="$name" --include=python3
  echo "$FIRST" >"$work/first.py"
  "$1" -L "$root" -E "PYTHONHOME=$root/usr" -E "PYTHONPATH=$work/other" "$(ls "$root"/usr/bin/python3.?*)" "$work/first.py" >"$work/first"
  grep -q '[[:alpha:]]' "$work/first" || fail "the module of $arch writes no text"
  echo "$arch by qemu, in Python: $(tr -d '\n' <"$work/first")"
}

[ -n "$wheel" ] || build
check_contents
case $wheel in
  *_aarch64.whl) arch=aarch64 ;;
  *_x86_64.whl) arch=x86_64 ;;
  *) fail "$(basename "$wheel") does not end with an architecture" ;;
esac
if [ "$arch" = "$(uname -m)" ]; then
  (test_here)
  [ -z "$frameworks" ] || (test_with_frameworks)
  [ -z "$bare" ] || (test_bare)
else
  test_emulated
fi
echo "ok $wheel"
