#!/bin/sh
# Fetches kernel headers from the system's package archive, to compare drivers' structures with them.
#
#   tools/drm_headers.sh FOLDER [RELEASE]
#
# RELEASE is a release that apt knows (`trixie-backports`, `sid`), if the default one is too old: amdxdna, rocket
# and others are in linux-libc-dev from 6.18 on.
set -eu
folder=${1:?say a folder for the headers}
release=${2:-}
mkdir -p "$folder"
cd "$folder"
apt-get download "linux-libc-dev${release:+/$release}"
for package in linux-libc-dev_*.deb; do
    dpkg-deb -x "$package" .
    rm "$package"
done
headers=$(pwd)/usr/include
if [ ! -e "$headers/drm/amdxdna_accel.h" ]; then
    echo "linux-libc-dev of ${release:-this release} has no drm/amdxdna_accel.h: say a newer release" >&2
    exit 1
fi
echo "MILLRACE_LINUX_HEADERS=$headers cargo test -p millrace-accel -p millrace-rk3588 -p millrace-xdna2-silicon --lib"
