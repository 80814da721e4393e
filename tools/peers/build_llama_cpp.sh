#!/bin/sh
# Builds the llama.cpp that PyPI's llama-cpp-python brings, with shared libraries, so that it loads plugins:
#
#     tools/peers/build_llama_cpp.sh [DIRECTORY]        (default: target/llama.cpp)
#
# Needs Python 3 with venv, a C++ compiler, and about 20 minutes on two cores. The programs go to DIRECTORY/build/bin: llama-bench,
# llama-completion, llama-perplexity and test-backend-ops, with RPC=1 also ggml-rpc-server. LLAMA_CPP_SOURCE=folder uses sources that are
# already unpacked.
set -eu
version=0.3.36
root=$(cd "$(dirname "$0")/../.." && pwd)
directory=${1:-$root/target/llama.cpp}
jobs=${JOBS:-$(nproc)}
# Both paths may be relative to the folder where the script was started.
source=${LLAMA_CPP_SOURCE:+$(cd "$LLAMA_CPP_SOURCE" && pwd)}
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)
cd "$directory"

if ! command -v cmake >/dev/null || ! command -v ninja >/dev/null; then
    [ -x tools/bin/pip ] || python3 -m venv tools
    tools/bin/pip --quiet install cmake ninja
    PATH=$directory/tools/bin:$PATH
fi

if [ -z "$source" ]; then
    if [ ! -f source/vendor/llama.cpp/CMakeLists.txt ]; then
        [ -x tools/bin/pip ] || python3 -m venv tools
        tools/bin/pip --quiet install scikit-build-core
        tools/bin/pip --quiet download --no-binary llama-cpp-python --no-deps --no-build-isolation \
            "llama-cpp-python==$version" -d download
        mkdir -p source
        tar xzf download/llama_cpp_python-*.tar.gz -C source --strip-components 1
    fi
    source=$directory/source/vendor/llama.cpp
fi

# GGML_NATIVE uses all instructions of this processor, so that llama.cpp is at its best in comparisons.
cmake -S "$source" -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON \
    -DGGML_NATIVE=ON -DLLAMA_BUILD_TOOLS=ON -DLLAMA_BUILD_TESTS=ON -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF \
    -DLLAMA_BUILD_APP=OFF -DLLAMA_OPENSSL=OFF -DGGML_RPC="${RPC:+ON}"
nice ninja -C build -j "$jobs" ggml-cpu llama-bench llama-completion llama-perplexity test-backend-ops ${RPC:+ggml-rpc-server}
echo "$directory/build/bin"
