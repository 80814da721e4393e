#!/usr/bin/env bash
# Installs the Debian package in a bare Debian without a network, runs its contents, and removes it.
#
#     tools/package/test_deb.sh PACKAGE [SUITE]        SUITE: default is this machine's if it runs Debian, else bookworm
#
# Run it as root (for chroot), with mmdebstrap (Debian: apt-get install mmdebstrap) and a C compiler on this machine, since the bare Debian
# has none. The C example is linked with the library from the package.
set -euo pipefail
package=$(realpath "$1")
suite=${2:-$(. /etc/os-release && [ "$ID" = debian ] && echo "$VERSION_CODENAME" || echo bookworm)}
cd "$(dirname "$0")/../.."
fail() { echo "test_deb.sh: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "it wants root, for chroot"
command -v mmdebstrap >/dev/null || fail "it wants mmdebstrap (Debian: apt-get install mmdebstrap)"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/debian

# systemd is needed to check the unit.
mmdebstrap --quiet --variant=minbase --include=systemd "$suite" "$root" >"$work/log" 2>&1 || fail "mmdebstrap: $(tail -3 "$work/log")"
inside() { unshare --net --mount --pid --fork --mount-proc="$root/proc" chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp "$@"; }
cp "$package" "$root/tmp/millrace.deb"
install_it() { inside dpkg -i /tmp/millrace.deb >"$work/log" 2>&1 || fail "dpkg -i: $(tail -5 "$work/log")"; }
install_it

inside millrace --version
inside millrace run demo "Once upon a time" --greedy -n 12 --quiet >"$work/said"
grep -q '[[:alpha:]]' "$work/said" || fail "the program writes no text"
inside systemd-analyze verify --man=no /usr/lib/systemd/system/millrace.service >"$work/unit" 2>&1 || fail "the unit: $(cat "$work/unit")"
! grep -q millrace "$work/unit" || fail "the unit: $(cat "$work/unit")"
inside systemd-analyze security --offline=true /usr/lib/systemd/system/millrace.service | tail -1
for file in share/man/man1/millrace-serve.1.gz share/bash-completion/completions/millrace share/zsh/vendor-completions/_millrace \
  share/fish/vendor_completions.d/millrace.fish share/doc/millrace/copyright share/doc/millrace/THIRD-PARTY.txt.gz include/millrace.h; do
  [ -s "$root/usr/$file" ] || fail "no /usr/$file"
done
# The shell loads the completions, and they work.
# shellcheck disable=SC2016 # The shell inside expands it.
inside bash -ec '
  . /usr/share/bash-completion/completions/millrace
  COMP_WORDS=(millrace serve --paral) COMP_CWORD=2
  "$(complete -p millrace | sed "s/.* -F \([^ ]*\) .*/\1/")" millrace --paral serve
  [ "${COMPREPLY[*]}" = --parallel ]' || fail "bash does not complete \`millrace serve --paral\`"
[ "$(head -1 "$root/usr/share/zsh/vendor-completions/_millrace")" = '#compdef millrace' ] || fail "zsh's completions do not begin with #compdef"
# Everybody may read the files.
odd=$(find "$root/usr/share/doc/millrace" "$root/usr/bin/millrace" "$root/usr/include/millrace.h" ! -perm -444)
[ -z "$odd" ] || fail "not for everybody to read: $odd"

# The library is found through the loader's cache, which the package's trigger updated.
libraries=$(dirname "$(find "$root/usr/lib" -name libmillrace_c.so)")
known=$(inside ldconfig -p)
grep -q libmillrace_c.so <<<"$known" || fail "ldconfig does not know the library"
[ "$(PKG_CONFIG_LIBDIR=$libraries/pkgconfig pkg-config --modversion millrace)" = "$(inside millrace --version | awk '{print $2}')" ] ||
  fail "pkg-config says another version than the program"
cc crates/capi/examples/hello.c -I"$root/usr/include" -L"$libraries" -lmillrace_c -lm -o "$root/tmp/hello"
inside /tmp/hello >"$work/said"
grep -q '^7 plus 5 is 12\.$' "$work/said" || fail "the example says: $(tail -3 "$work/said")"

# Changes in the settings stay when the package is installed again, and when it is removed but not purged.
echo '# mine' >>"$root/etc/default/millrace"
install_it
grep -q '^# mine$' "$root/etc/default/millrace" || fail "installing again lost the settings"
inside dpkg -r millrace >/dev/null
grep -q '^# mine$' "$root/etc/default/millrace" || fail "removing lost the settings"
mkdir -p "$root/var/cache/private/millrace"
inside dpkg -P millrace >"$work/log" 2>&1 || fail "dpkg -P: $(cat "$work/log")"
left=$(find "$root/usr" "$root/etc" "$root/var/cache" "$root/var/lib/dpkg/info" -iname '*millrace*')
[ -z "$left" ] || fail "purging left: $left"
echo "ok $package: installed, run, removed in a bare Debian $suite"
