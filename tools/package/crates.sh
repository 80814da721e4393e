#!/usr/bin/env bash
# Packs every published crate as a registry would get it, and installs the program from these packages, without a network.
#
#   tools/package/crates.sh [--pack-only | --publish-dry-run] [--profile dev]
#
# --profile is that of the installed program. --publish-dry-run only runs cargo's dry run of publishing, which needs the registry's index,
# and fails on a warning. The packages go to target/package/*.crate. Dependencies are vendored into target/package/vendor, beside our packed
# crates: `cargo install --offline millrace-cli` uses that folder in place of a registry.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
# Maximum size of a package on the registry, in bytes.
limit=10485760

step=install profile=release
while [ $# -gt 0 ]; do
    case $1 in
        --pack-only) step=pack ;;
        --publish-dry-run) step=publish ;;
        --profile) profile=$2; shift ;;
        *) echo "crates.sh: unknown argument $1" >&2; exit 2 ;;
    esac
    shift
done

if [ $step = publish ]; then
    # Does not compile: this script does that when it installs the packages.
    said=$(cargo publish --workspace --dry-run --no-verify --locked 2>&1) || { echo "$said" >&2; exit 1; }
    warnings=$(grep '^warning' <<<"$said" | grep -v 'aborting upload due to dry run' || true)
    if [ -n "$warnings" ]; then
        echo "$warnings" >&2
        exit 1
    fi
    echo "cargo publish --dry-run: $(grep -c '^ *Uploading' <<<"$said") crates, no warning"
    exit 0
fi

members=$(cargo metadata --no-deps --format-version 1 --locked | python3 -c '
import json, sys
for package in json.load(sys.stdin)["packages"]:
    if package["publish"] != []:
        print(package["name"], package["version"])')
names=()
while read -r name _; do names+=(-p "$name"); done <<<"$members"

# Packs all together, since crates that are not on a registry yet depend on each other. The packages are compiled below.
cargo package --quiet --locked --no-verify --allow-dirty "${names[@]}"
while read -r name version; do
    crate=$target/package/$name-$version.crate
    size=$(stat -c %s "$crate")
    if [ "$size" -gt "$limit" ]; then
        echo "$name: $size bytes, of which registries take $limit" >&2
        exit 1
    fi
done <<<"$members"
echo "packed $(wc -l <<<"$members") crates"

vendor=$target/package/vendor
rm -rf "$vendor"
cargo vendor --quiet --locked --versioned-dirs "$vendor" >/dev/null
while read -r name version; do
    crate=$target/package/$name-$version.crate
    tar xzf "$crate" -C "$vendor"
    printf '{"files":{},"package":"%s"}' "$(sha256sum "$crate" | cut -d' ' -f1)" >"$vendor/$name-$version/.cargo-checksum.json"
done <<<"$members"
[ $step != pack ] || exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# On the command line, since `cargo install NAME` does not read the configuration in the current folder.
from=(--config 'source.crates-io.replace-with="vendor"' --config "source.vendor.directory=\"$(cd "$vendor" && pwd)\"")
root=$work/root
built=$(cd "$target" && pwd)/package/install
# The lock file comes with the package. In another folder, cargo does not see the workspace.
(cd "$work" && CARGO_TARGET_DIR=$built cargo "${from[@]}" install --quiet --offline --locked --profile "$profile" --root "$root" millrace-cli)
"$root/bin/millrace" --version
"$root/bin/millrace" run demo "Once upon a time" --greedy -n 24 --quiet
