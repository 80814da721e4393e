#!/usr/bin/env bash
# Writes the files beside the program in every package: manual pages, completions, changelog, licences, SBOM. File times are not set.
#
#     tools/package/share.sh [--static] TREE PROGRAM...
#
# --static adds the libraries in a musl program to the licences. PROGRAM is the command for `millrace` here, with an emulator before it if needed.
# TREE gets a folder `share`.
set -euo pipefail
umask 022
static=()
if [ "$1" = --static ]; then
  static=(--static)
  shift
fi
tree=$(realpath "$1")
shift
program=("$@")
for at in "${!program[@]}"; do
  [ ! -e "${program[at]}" ] || program[at]=$(realpath "${program[at]}")
done
cd "$(dirname "$0")/../.."

share=$tree/share
mkdir -p "$share"/{man/man1,bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d,doc/millrace}
"${program[@]}" --quiet man "$share/man/man1"
gzip -9n "$share"/man/man1/*.1
"${program[@]}" completions bash >"$share/bash-completion/completions/millrace"
"${program[@]}" completions zsh >"$share/zsh/vendor-completions/_millrace"
"${program[@]}" completions fish >"$share/fish/vendor_completions.d/millrace.fish"
doc=$share/doc/millrace
gzip -9nc LICENSE-MIT >"$doc/LICENSE-MIT.gz"
gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
python3 tools/package/licenses.py texts "${static[@]}" | gzip -9n >"$doc/THIRD-PARTY.txt.gz"
python3 tools/package/licenses.py sbom "${static[@]}" | gzip -9n >"$doc/millrace.cdx.json.gz"
