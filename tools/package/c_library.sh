#!/usr/bin/env bash
# Packs the C library: header, shared and static library, a file for pkg-config, an example, licences, SBOM.
#
#     tools/package/c_library.sh [BUILT] [OUT]     BUILT: target/release, built if the library is missing; OUT: target/package
#
# The archive is the same, byte for byte, of the same libraries. Out of it the example is compiled, linked by pkg-config, and run.
set -euo pipefail
cd "$(dirname "$0")/../.."

built=${1:-target/release}
out=${2:-target/package}
[ -f "$built/libmillrace_c.so" ] || cargo build --release --locked -p millrace-capi
version=$(cargo metadata --no-deps --format-version 1 --locked |
  python3 -c 'import json, sys; print(next(p["version"] for p in json.load(sys.stdin)["packages"] if p["name"] == "millrace-capi"))')
name=millrace-c-$version-$(uname -m)-linux-gnu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/$name

install -D -m 644 crates/capi/include/millrace.h "$tree/include/millrace.h"
install -D -m 644 "$built/libmillrace_c.so" "$tree/lib/libmillrace_c.so"
install -D -m 644 "$built/libmillrace_c.a" "$tree/lib/libmillrace_c.a"
strip --strip-unneeded "$tree/lib/libmillrace_c.so"
strip --strip-debug "$tree/lib/libmillrace_c.a"
install -D -m 644 crates/capi/examples/hello.c "$tree/examples/hello.c"
tools/package/pkg_config.sh '${pcfiledir}/../..' lib "$version" >"$work/millrace.pc"
install -D -m 644 "$work/millrace.pc" "$tree/lib/pkgconfig/millrace.pc"
cp LICENSE-MIT LICENSE-APACHE docs/c.md "$tree"
python3 tools/package/licenses.py texts >"$tree/THIRD-PARTY.txt"
python3 tools/package/licenses.py sbom >"$tree/millrace.cdx.json"
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
mkdir -p "$out"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" -c "$name" | gzip -9n >"$out/$name.tar.gz"

# As a user has it.
mkdir "$work/user"
tar -C "$work/user" -xzf "$out/$name.tar.gz"
root=$work/user/$name
if command -v pkg-config >/dev/null; then
  flags=$(PKG_CONFIG_PATH=$root/lib/pkgconfig pkg-config --cflags --libs millrace)
else
  flags="-I$root/include -L$root/lib -lmillrace_c"
fi
# The example takes a square root itself.
# shellcheck disable=SC2086 # Several flags.
cc "$root/examples/hello.c" $flags -lm -o "$work/hello"
LD_LIBRARY_PATH=$root/lib "$work/hello" | tail -3
stat -c '%s %n' "$out/$name.tar.gz"
