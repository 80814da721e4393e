#!/usr/bin/env bash
# Builds the Python wheel and the sdist, and tests the wheel like a user: in a fresh environment, without compiler or network.
#
#     tools/package/wheel.sh [--profile dev] [--zig] [--arch x86_64|aarch64] [--program FILE] [--from-sdist] [--no-sdist] [--out DIR]
#     tools/package/wheel.sh --wheel FILE [--bare] [--with-frameworks]
#
# --profile dev       reuses the results of `cargo build`
# --zig               links for glibc 2.17 (manylinux2014), with `ziglang` and `cargo-zigbuild` from the package index; without it, the
#                     wheel needs the glibc of this machine
# --arch              another architecture implies --zig; qemu (Debian: qemu-user) runs its program, if qemu and the architecture's
#                     libraries (Debian: libc6-arm64-cross) are installed
# --program FILE      puts this existing program into the wheel
# --from-sdist        builds the wheel from the sdist, outside the repository, with packages that pip fetches, like a user with only the
#                     sdist
# --bare              also tests in a bare Debian with only python3-venv, without a network (as root; Debian: mmdebstrap); a wheel of
#                     another architecture is tested in a Python of that architecture, by qemu
# --with-frameworks   runs the tests of Ray, LangChain, LlamaIndex and numpy, installed from the package index; a skipped test is a failure
# --wheel FILE        tests this wheel, and builds none
#
# A wheel of another architecture runs in qemu. If qemu is installed, the program also runs on the most basic processor of its architecture,
# and must write the same text there. pip reads PIP_FIND_LINKS and similar variables.
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
    # maturin chooses the tag by the symbols of this machine's glibc.
    export MATURIN_PEP517_ARGS='--compatibility pypi'
  fi
  # Files in the wheel have the time of the commit.
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
    # zig is only in the environment above.
    [ -n "$zig" ] || isolation=()
    # Reuses the builds of third-party crates.
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

# Checks for the program, the module, its types, licences of linked code, and the SBOM.
check_contents() {
  local names
  names=$("$python" -m zipfile -l "$wheel")
  for name in scripts/millrace millrace/_native.abi3.so millrace/py.typed THIRD-PARTY.txt LICENSE-MIT sboms/millrace.cdx.json; do
    grep -q "$name" <<<"$names" || fail "$(basename "$wheel") has no $name"
  done
}

# Prints the demo's first word. It is timed from `pip install` on, and goes to $work/first. Run it where there is no folder `millrace`.
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
# qemu's name of the most basic processor of an architecture: with SSE2 only, or NEON only.
least_processor() {
  case $arch in
    x86_64) echo qemu64 ;;
    aarch64) echo cortex-a53 ;;
  esac
}
# One wheel serves every processor. On the most basic one, the program must write the same text.
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

# Runs all tests, including those with other packages. Only one may be skipped: it needs a file that no package has.
test_with_frameworks() {
  "$work/user/bin/pip" install "${pip[@]}" numpy 'ray[data,serve]' langchain-core langchain-community llama-index-core
  # It depends on llama-cpp-python, which Millrace replaces in the tests.
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

# Tests in the smallest variant of Debian with Python, without compiler or network.
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

# Tests a program of another architecture in an emulator.
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

# Tests the module in a Python of that architecture, whose packages are unpacked but not installed.
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
