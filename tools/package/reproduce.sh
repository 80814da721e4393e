#!/usr/bin/env bash
# Builds the program twice, in two folders, and compares what came out byte for byte.
#
#     tools/package/reproduce.sh [--package NAME]... [--profile dev] [--commit REV] [--keep DIR]
#
# Sources are those of REV (HEAD), so what is not committed takes no part. Each build has a folder of its own for sources and for results,
# of names of different lengths. Paths of both, of cargo's folder and of the toolchain are remapped: nothing in the result says where it
# was built, and a result that names one of these folders fails. --package builds other packages than the program's (libraries are
# compared); --keep puts the first result into DIR. Whoever has the same toolchain, commit and C compiler gets the same sums.
set -euo pipefail
cd "$(dirname "$0")/../.."

packages=() profile=release commit=HEAD keep=''
while [ $# -gt 0 ]; do
  case $1 in
    --package) packages+=("$2"); shift ;;
    --profile) profile=$2; shift ;;
    --commit) commit=$2; shift ;;
    --keep) keep=$(realpath -m "$2"); shift ;;
    *) echo "reproduce.sh: unknown argument $1" >&2; exit 2 ;;
  esac
  shift
done
[ "${#packages[@]}" -gt 0 ] || packages=(millrace-cli)
commit=$(git rev-parse --verify "$commit^{commit}")
# Compilers write the folder's true name where its name is a link.
work=$(realpath "$(mktemp -d)")
trap 'rm -rf "$work"' EXIT
cargo_home=${CARGO_HOME:-$HOME/.cargo}
sysroot=$(rustc --print sysroot)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "$commit")
export SOURCE_DATE_EPOCH LC_ALL=C.UTF-8 TZ=UTC CARGO_INCREMENTAL=0
# It would go before RUSTFLAGS.
unset CARGO_ENCODED_RUSTFLAGS
folder=$profile
[ "$profile" != dev ] || folder=debug

# Sums of what a package gives: programs and libraries that a user takes, not what cargo keeps for itself.
sums() { # RESULTS
  (cd "$1" && find . -maxdepth 1 -type f \( -executable -o -name 'lib*.rlib' -o -name 'lib*.a' -o -name 'lib*.so' \) -print0 |
    sort -z | xargs -0 -r sha256sum)
}
build() { # FOLDER
  local sources=$1/sources results=$1/results remap="$1/sources=/millrace"
  mkdir -p "$sources"
  git archive "$commit" | tar -x -C "$sources"
  (
    cd "$sources"
    # Of C too: `ring` is half of it.
    export CFLAGS="-ffile-prefix-map=$remap -ffile-prefix-map=$results=/results -ffile-prefix-map=$cargo_home=/cargo"
    RUSTFLAGS="--remap-path-prefix=$remap --remap-path-prefix=$results=/results --remap-path-prefix=$cargo_home=/cargo"
    export RUSTFLAGS="$RUSTFLAGS --remap-path-prefix=$sysroot=/rust"
    CARGO_TARGET_DIR=$results cargo build --quiet --locked --profile "$profile" "${packages[@]/#/--package=}"
  )
  sums "$results/$folder" >"$1/sums"
  [ -s "$1/sums" ] || { echo "reproduce.sh: ${packages[*]} give no file" >&2; exit 1; }
  # A path of this build would be another elsewhere.
  local at named
  for at in "$work/" "$cargo_home/" "$sysroot/"; do
    named=$(find "$results/$folder" -maxdepth 1 -type f ! -name '*.d' -exec grep -l -a -F "$at" {} + || true)
    [ -z "$named" ] || { echo "reproduce.sh: the folder $at stands in $named" >&2; exit 1; }
  done
}

build "$work/a"
if [ -n "$keep" ]; then
  mkdir -p "$keep"
  find "$work/a/results/$folder" -maxdepth 1 -type f ! -name '*.d' ! -name '.*' -exec cp -t "$keep" {} +
fi
# Two times everything takes room: of the first the sums are enough.
rm -rf "$work/a/results"
build "$work/another-folder"
if ! diff -u "$work/a/sums" "$work/another-folder/sums"; then
  echo "reproduce.sh: two builds of $commit differ" >&2
  exit 1
fi
cat "$work/a/sums"
echo "the same twice: ${packages[*]} of $commit, profile $profile, $(rustc --version)"
