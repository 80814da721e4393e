#!/usr/bin/env bash
# Builds the program as one static file for any Linux of an architecture, packs it with manual pages, completions, the systemd unit,
# licences and the SBOM, and runs it.
#
#     tools/package/static.sh [--arch x86_64|aarch64] [--profile dev] [--zig] [--out DIR]
#
# --arch defaults to this machine's architecture. For that architecture, Debian's musl-gcc compiles the C code, if it is installed. With --zig,
# or otherwise, `ziglang` and `cargo-zigbuild` from the package index do. A program of another architecture runs under qemu (Debian's
# qemu-user); without qemu, the script reports that nothing ran. The same program gives the same archive, byte for byte.
set -euo pipefail
umask 022
arch=$(uname -m) profile=release out=target/package zig=''
while [ $# -gt 0 ]; do
  case $1 in
    --arch) arch=$2; shift ;;
    --profile) profile=$2; shift ;;
    --zig) zig=1 ;;
    --out) out=$(realpath -m "$2"); shift ;;
    *) echo "static.sh: unknown argument $1" >&2; exit 2 ;;
  esac
  shift
done
cd "$(dirname "$0")/../.."
triple=$arch-unknown-linux-musl
[ "$arch" = "$(uname -m)" ] && command -v musl-gcc >/dev/null || zig=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

rustup target list --installed | grep -qx "$triple" || rustup target add "$triple"
build=(cargo build)
if [ -n "$zig" ]; then
  "${PYTHON:-python3}" -m venv "$work/build"
  "$work/build/bin/pip" install --quiet --disable-pip-version-check ziglang cargo-zigbuild
  export PATH=$work/build/bin:$PATH
  build=(cargo zigbuild)
fi
"${build[@]}" --locked --profile "$profile" --target "$triple" --package millrace-cli --bin millrace
folder=$profile
[ "$profile" != dev ] || folder=debug
program=${CARGO_TARGET_DIR:-target}/$triple/$folder/millrace

# A static program needs no loader and no library. The output is read before it is searched, so that a missing readelf fails the script.
asked=$(readelf -lW "$program"; readelf -dW "$program")
if grep -qE 'INTERP|\(NEEDED\)' <<<"$asked"; then
  echo "static.sh: $program is not static" >&2
  exit 1
fi

# A program of another architecture runs in an emulator, if it is installed.
run=(env -i "HOME=$work")
runs=1
if [ "$arch" != "$(uname -m)" ]; then
  emulator=$(command -v "qemu-$arch" || command -v "qemu-$arch-static" || true)
  run+=("$emulator")
  [ -n "$emulator" ] || runs=''
fi
name=millrace-$(cargo metadata --no-deps --format-version 1 --locked |
  python3 -c 'import json, sys; print(next(p["version"] for p in json.load(sys.stdin)["packages"] if p["name"] == "millrace-cli"))')-$arch-linux
tree=$work/$name
mkdir "$tree"
cp "$program" LICENSE-MIT LICENSE-APACHE README.md "$tree"
strip='strip'
[ "$arch" = "$(uname -m)" ] || strip=$(command -v "$arch-linux-gnu-strip" || command -v llvm-strip || true)
if [ -n "$strip" ]; then
  "$strip" "$tree/millrace"
else
  echo "not stripped: no program here strips for $arch (Debian: llvm, or binutils-${arch/_/-}-linux-gnu)" >&2
fi
if [ -n "$runs" ]; then
  tools/package/share.sh --static "$tree" "${run[@]}" "$tree/millrace"
  install -D -m 644 tools/package/debian/millrace.service "$tree/share/systemd/millrace.service"
  install -D -m 644 tools/package/debian/millrace.default "$tree/share/systemd/millrace.default"
fi
python3 tools/package/licenses.py texts --static >"$tree/THIRD-PARTY.txt"
python3 tools/package/licenses.py sbom --static >"$tree/millrace.cdx.json"
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
mkdir -p "$out"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" -c "$name" | gzip -9n >"$out/$name.tar.gz"

# Runs the program like a user: from the archive, in an empty environment.
mkdir "$work/user"
tar -C "$work/user" -xzf "$out/$name.tar.gz"
if [ -z "$runs" ]; then
  echo "not run, and so without manual pages and completions: no qemu-$arch here (Debian: qemu-user)" >&2
  stat -c '%s %n' "$out/$name.tar.gz"
  exit 0
fi
"${run[@]}" "$work/user/$name/millrace" --version
text=$("${run[@]}" "$work/user/$name/millrace" run demo "Once upon a time" --greedy -n 16 --quiet)
grep -q '[[:alpha:]]' <<<"$text" || { echo "the program writes no text" >&2; exit 1; }
for file in share/man/man1/millrace-serve.1.gz share/bash-completion/completions/millrace share/systemd/millrace.service millrace.cdx.json; do
  [ -s "$work/user/$name/$file" ] || { echo "the archive has no $file" >&2; exit 1; }
done
echo "$text"
stat -c '%s %n' "$out/$name.tar.gz"
