#!/usr/bin/env bash
# Makes a Debian package: the program, the C library with its header, manual pages, completions, systemd unit, licences, SBOM.
#
#     tools/package/deb.sh [BINARY] [OUT]       BINARY: the program (default: builds program and library); OUT: target/package
#
# The library is taken from BINARY's folder. The script needs dpkg-deb, binutils and Python. The same binary gives the same package, byte
# for byte: file times are SOURCE_DATE_EPOCH, or else the time of the last commit. test_deb.sh installs the package in a bare Debian.
set -euo pipefail
umask 022
binary=${1:+$(realpath "$1")}
out=${2:+$(realpath -m "$2")}
cd "$(dirname "$0")/../.."
out=${out:-target/package}
if [ -z "$binary" ]; then
  binary=${CARGO_TARGET_DIR:-target}/release/millrace
  cargo build --release --locked -p millrace-cli -p millrace-capi
fi
library=$(dirname "$binary")/libmillrace_c.so
for file in "$binary" "$library"; do
  [ -f "$file" ] || { echo "deb.sh: no $file (cargo build --release -p millrace-cli -p millrace-capi)" >&2; exit 1; }
done
version=$("$binary" --version | awk '{print $2}')
arch=$(dpkg --print-architecture)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"
put() { install -D -m "$1" "$2" "$tree/$3"; }

put 755 "$binary" usr/bin/millrace
strip "$tree/usr/bin/millrace"
multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || echo "$(uname -m)-linux-gnu")
put 644 "$library" "usr/lib/$multiarch/libmillrace_c.so"
strip --strip-unneeded "$tree/usr/lib/$multiarch/libmillrace_c.so"
put 644 crates/capi/include/millrace.h usr/include/millrace.h
mkdir -p "$tree/usr/lib/$multiarch/pkgconfig"
tools/package/pkg_config.sh /usr "lib/$multiarch" "$version" >"$tree/usr/lib/$multiarch/pkgconfig/millrace.pc"
put 644 tools/package/debian/millrace.service usr/lib/systemd/system/millrace.service
put 644 tools/package/debian/millrace.default etc/default/millrace

tools/package/share.sh "$tree/usr" "$binary"
doc=$tree/usr/share/doc/millrace
{
  echo 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/'
  echo 'Source: https://github.com/millrace/millrace'
  printf '\nFiles: *\nCopyright: the authors of Millrace\nLicense: MIT or Apache-2.0\n'
  printf ' See LICENSE-MIT.gz and /usr/share/common-licenses/Apache-2.0; crates of others: THIRD-PARTY.txt.gz.\n'
} >"$doc/copyright"

# The newest version of glibc whose symbols the program or the library needs. A static program needs none, and objdump complains about it.
symbols=$(objdump -T "$binary" 2>/dev/null || true; objdump -T "$library")
glibc=$(grep -o 'GLIBC_[0-9.]*' <<<"$symbols" | sed s/GLIBC_// | sort -Vu | tail -1 || true)
[ -n "$glibc" ] || { echo "deb.sh: $library names no symbol of glibc, so the package's Depends is not known" >&2; exit 1; }
mkdir "$tree/DEBIAN"
echo /etc/default/millrace >"$tree/DEBIAN/conffiles"
# Sums only files, since the size of folders depends on the file system.
size=$(find "$tree" -path "$tree/DEBIAN" -prune -o -type f -printf '%s\n' | awk '{n += int(($1 + 1023) / 1024)} END {print n}')
cat >"$tree/DEBIAN/control" <<CONTROL
Package: millrace
Version: $version
Architecture: $arch
Section: science
Priority: optional
Maintainer: The authors of Millrace <millrace@users.noreply.github.com>
Homepage: https://github.com/millrace/millrace
Installed-Size: $size
Depends: libc6 (>= $glibc), libgcc-s1
Description: large language models on your CPU, and on NPUs that you need not own
 One program reads GGUF, safetensors and Q4NX files, writes text, chats, and serves
 the APIs of OpenAI, Anthropic and Ollama. A library for C is there too. The service is installed and not started:
 name a model in /etc/default/millrace, then systemctl enable --now millrace.
CONTROL
cat >"$tree/DEBIAN/postinst" <<'SCRIPT'
#!/bin/sh
set -e
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    systemctl try-restart millrace.service || true
fi
SCRIPT
cat >"$tree/DEBIAN/prerm" <<'SCRIPT'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl --no-reload disable --now millrace.service || true
fi
SCRIPT
cat >"$tree/DEBIAN/postrm" <<'SCRIPT'
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
# The cache of the service, whose user existed only while it ran.
if [ "$1" = purge ]; then
    rm -rf /var/cache/private/millrace /var/cache/millrace
fi
SCRIPT
chmod 755 "$tree/DEBIAN/postinst" "$tree/DEBIAN/prerm" "$tree/DEBIAN/postrm"
# Programs that are linked with the library find it immediately.
echo 'activate-noawait ldconfig' >"$tree/DEBIAN/triggers"

find "$tree" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
mkdir -p "$out"
package=$out/millrace_${version}_${arch}.deb
# The number of compressing threads would change the bytes.
export DPKG_DEB_THREADS_MAX=1
dpkg-deb --root-owner-group -Zxz --build "$tree" "$package" >&2
echo "$package"
