#!/usr/bin/env bash
# Packs the C library: header, shared and static library, a file for pkg-config, examples in C, Go and Python, licences, SBOM.
#
#     tools/package/c_library.sh [BUILT] [OUT]     BUILT: a folder with both libraries (default: builds them); OUT: target/package
#
# The same libraries give the same archive, byte for byte. From the archive, the script compiles the C example, links it by pkg-config and
# with the static library, and runs it. Both must print the answer in the documentation. If Go or Python is installed, its example must give
# the same answer. The last line is the glibc version that the shared library needs.
set -euo pipefail
umask 022
built=${1:+$(realpath "$1")}
out=${2:+$(realpath -m "$2")}
cd "$(dirname "$0")/../.."
out=${out:-target/package}

fail() { echo "c_library.sh: $*" >&2; exit 1; }
if [ -z "$built" ]; then
  built=${CARGO_TARGET_DIR:-target}/release
  cargo build --release --locked -p millrace-capi
fi
for library in libmillrace_c.so libmillrace_c.a; do
  [ -f "$built/$library" ] || fail "no $library in $built (cargo build --release -p millrace-capi)"
done
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
for example in hello.c hello.go hello.py; do install -D -m 644 "crates/capi/examples/$example" "$tree/examples/$example"; done
tools/package/pkg_config.sh '${pcfiledir}/../..' lib "$version" >"$work/millrace.pc"
install -D -m 644 "$work/millrace.pc" "$tree/lib/pkgconfig/millrace.pc"
cp LICENSE-MIT LICENSE-APACHE docs/c.md "$tree"
python3 tools/package/licenses.py texts >"$tree/THIRD-PARTY.txt"
python3 tools/package/licenses.py sbom >"$tree/millrace.cdx.json"
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
mkdir -p "$out"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" -c "$name" | gzip -9n >"$out/$name.tar.gz"

# Unpacks the archive, like a user.
mkdir "$work/user"
tar -C "$work/user" -xzf "$out/$name.tar.gz"
root=$work/user/$name
if command -v pkg-config >/dev/null; then
  flags=$(PKG_CONFIG_PATH=$root/lib/pkgconfig pkg-config --cflags --libs millrace)
else
  flags="-I$root/include -L$root/lib -lmillrace_c"
fi
# The example itself calls `sqrt`.
# shellcheck disable=SC2086 # Several flags.
cc "$root/examples/hello.c" $flags -lm -o "$work/hello"
LD_LIBRARY_PATH=$root/lib "$work/hello" >"$work/said"
cc "$root/examples/hello.c" "-I$root/include" "$root/lib/libmillrace_c.a" -lm -lpthread -ldl -o "$work/hello-static"
"$work/hello-static" | cmp - "$work/said" || fail "the static library says something else"
grep -q '^7 plus 5 is 12\.$' "$work/said" || fail "the example says: $(tail -3 "$work/said")"
answers() { # LANGUAGE PROGRAM...
  local language=$1 said
  shift
  said=$("$@") || fail "the example in $language ended with $?"
  grep -q '^7 plus 5 is 12\.' <<<"$said" || fail "the example in $language says: $(tail -3 <<<"$said")"
  echo "$language: the same answer"
}
if command -v go >/dev/null; then
  CGO_CFLAGS="-I$root/include" CGO_LDFLAGS="-L$root/lib -lmillrace_c -lm" GOCACHE=$work/go go build -o "$work/hello-go" "$root/examples/hello.go"
  answers Go env "LD_LIBRARY_PATH=$root/lib" "$work/hello-go"
else
  echo "c_library.sh: no Go here: examples/hello.go was not built" >&2
fi
answers Python python3 "$root/examples/hello.py" "$root/lib/libmillrace_c.so"
tail -3 "$work/said"
stat -c '%s %n' "$out/$name.tar.gz"
symbols=$(objdump -T "$root/lib/libmillrace_c.so")
echo "glibc $(grep -o 'GLIBC_[0-9.]*' <<<"$symbols" | sed s/GLIBC_// | sort -Vu | tail -1) or newer"
