#!/bin/sh
# Type-checks crates that `millrace export --device tcp` writes, against the vendor's furiosa-opt-std 0.10.0 from
# the crate registry. Not part of the gate: it needs the network and a nightly compiler.
#
#   tools/tcp_export/check.sh [FOLDER ..]      exported folders (default: the demo in bf16 and fp8)
#
# The vendor's build scripts need two closed archives. Here they are empty, unless
# FURIOSA_MAPPING_IMPL_LOCAL_PREBUILT and FURIOSA_OPT_LOWER_IMPL_LOCAL_PREBUILT name the real ones. The check covers
# types, stage order, and the sizes that the vendor asserts at compile time. It does not cover mappings, which the
# archives check when a function runs. At the end the script removes a stage from a function, and the check must fail.
set -eu
cd "$(dirname "$0")/../.."
nightly=${TCP_EXPORT_TOOLCHAIN:-nightly}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CARGO_TARGET_DIR="${TCP_EXPORT_TARGET:-$work/target}"
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0
if ! cargo "+$nightly" --version >/dev/null 2>&1; then
    echo "a nightly compiler is needed: rustup toolchain install $nightly --profile minimal" >&2
    exit 1
fi
printf '!<arch>\n' >"$work/libempty.a"
export FURIOSA_MAPPING_IMPL_LOCAL_PREBUILT="${FURIOSA_MAPPING_IMPL_LOCAL_PREBUILT:-$work/libempty.a}"
export FURIOSA_OPT_LOWER_IMPL_LOCAL_PREBUILT="${FURIOSA_OPT_LOWER_IMPL_LOCAL_PREBUILT:-$work/libempty.a}"

if [ $# -eq 0 ]; then
    millrace=${MILLRACE:-target/debug/millrace}
    [ -x "$millrace" ] || env -u CARGO_TARGET_DIR cargo build -p millrace-cli
    for numerics in bf16 fp8; do
        "$millrace" export demo --device tcp --numerics "$numerics" --out "$work/$numerics"
        "$millrace" export demo --device tcp --numerics "$numerics" --prompt-tokens 64 --out "$work/$numerics-64"
    done
    set -- "$work/bf16" "$work/fp8" "$work/bf16-64" "$work/fp8-64"
fi

check() { # FOLDER: also builds, since sizes are asserted during code generation
    (cd "$1" && cargo "+$nightly" check --quiet && cargo "+$nightly" build --quiet)
}

for folder; do
    check "$folder"
    echo "$folder: type-checks against furiosa-opt-std 0.10.0"
done

# Tests the check itself: without a `collect`, every function is wrong.
cp -r "$1" "$work/mutant"
for file in "$work"/mutant/src/*.rs; do
    sed -i '0,/\.collect::/{/\.collect::/d}' "$file"
done
if check "$work/mutant" 2>/dev/null; then
    echo "a crate whose functions lack a stage was accepted" >&2
    exit 1
fi
echo "a crate whose functions lack a stage is refused"
