#!/usr/bin/env bash
# Builds the program twice, in two folders, and compares the results byte for byte.
#
#     tools/package/reproduce.sh [--package NAME]... [--profile dev] [--commit REV] [--keep DIR]
#
# The sources are those of REV (default: HEAD), without uncommitted changes. Each build has its own folders for sources and results, with
# names of different lengths. Their paths, and those of cargo's folder and the toolchain, are remapped. If a result still contains one of
# these paths, the script fails. --package builds packages other than the program's (libraries are compared); --keep copies the first result
# to DIR. The same toolchain, commit and C compiler give the same checksums everywhere.
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
# Resolves links, because compilers write the real path of a folder.
work=$(realpath "$(mktemp -d)")
trap 'rm -rf "$work"' EXIT
cargo_home=${CARGO_HOME:-$HOME/.cargo}
sysroot=$(rustc --print sysroot)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "$commit")
export SOURCE_DATE_EPOCH LC_ALL=C.UTF-8 TZ=UTC CARGO_INCREMENTAL=0
# It would take precedence over RUSTFLAGS.
unset CARGO_ENCODED_RUSTFLAGS
folder=$profile
[ "$profile" != dev ] || folder=debug

# Checksums of the results of a package: programs and libraries for users, without cargo's internal files.
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
    # For C as well: half of `ring` is C.
    export CFLAGS="-ffile-prefix-map=$remap -ffile-prefix-map=$results=/results -ffile-prefix-map=$cargo_home=/cargo"
    RUSTFLAGS="--remap-path-prefix=$remap --remap-path-prefix=$results=/results --remap-path-prefix=$cargo_home=/cargo"
    export RUSTFLAGS="$RUSTFLAGS --remap-path-prefix=$sysroot=/rust"
    CARGO_TARGET_DIR=$results cargo build --quiet --locked --profile "$profile" "${packages[@]/#/--package=}"
  )
  sums "$results/$folder" >"$1/sums"
  [ -s "$1/sums" ] || { echo "reproduce.sh: ${packages[*]} give no file" >&2; exit 1; }
  # A path of this build would differ elsewhere.
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
# Saves disk space: of the first build, the checksums are enough.
rm -rf "$work/a/results"
build "$work/another-folder"
if ! diff -u "$work/a/sums" "$work/another-folder/sums"; then
  echo "reproduce.sh: two builds of $commit differ" >&2
  exit 1
fi
cat "$work/a/sums"
echo "the same twice: ${packages[*]} of $commit, profile $profile, $(rustc --version)"
