#!/usr/bin/env bash
# Prints the pkg-config file of the C library.
#
#     tools/package/pkg_config.sh PREFIX LIBDIR VERSION      LIBDIR below PREFIX
set -euo pipefail
cat <<FILE
prefix=$1
libdir=\${prefix}/$2
includedir=\${prefix}/include

Name: millrace
Description: Large language models on the CPU and on NPUs
URL: https://github.com/millrace/millrace
Version: $3
Libs: -L\${libdir} -lmillrace_c
Libs.private: -lm -lpthread -ldl
Cflags: -I\${includedir}
FILE
