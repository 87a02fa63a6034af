#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Gathers what native_all.py needs and a GPU machine without a network cannot get: NVIDIA's samples (sources), this
# build's benchmark programs, and programs over RMM, compiled here against the headers of tools/fetch_rmm.sh.
#
#     native_prepare.sh SAMPLES FOLDER
#
# SAMPLES: a git directory or clone of github.com/NVIDIA/cuda-samples. FOLDER (not to be committed) takes some 3 MB.
# Needs g++, a CUDA toolkit's headers and shared runtime, and build/lib of this tree. Without RMM's headers its part is
# left out.
set -eu

samples=$1
folder=$2
source=$(cd "$(dirname "$0")/../.." && pwd)
toolkit=${CUDA_HOME:-/usr/local/cuda}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/terrazzo/rmm
rmm=$cache/24.12.1/librmm/include
mkdir -p "$folder/samples" "$folder/built"

[ -d "$samples/.git" ] && samples=$samples/.git
names='Common/[^/]*\.(h|cpp)|Samples/(0_Introduction|2_Concepts_and_Techniques|3_CUDA_Features|4_CUDA_Libraries)/('
for name in $(sed -n 's/^    Sample("\([A-Za-z0-9]*\)".*/\1/p' "$source/bench/gpu/native_programs.py"); do
	names="$names$name|"
done
names="${names%|})/[^/]*\.(cu|cuh|cpp|hpp|c|h)"
git --git-dir="$samples" ls-tree -r HEAD | tr '\t' ' ' | grep -E " $names\$" | while read -r _ _ blob path; do
	mkdir -p "$folder/samples/$(dirname "$path")"
	git --git-dir="$samples" cat-file blob "$blob" >"$folder/samples/$path"
done
git --git-dir="$samples" rev-parse HEAD >"$folder/samples/commit"

cp -p "$source/build/bench/gpu_replay" "$source/build/bench/native" "$folder/built/"

"$source/tools/fetch_rmm.sh" "$cache" || exit 0
compile()
{
	g++ -std=c++17 -O2 -DRMM_NO_LOGGING -DFMT_HEADER_ONLY -DSPDLOG_FMT_EXTERNAL \
		-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE -I"$source/include" \
		-isystem "$rmm" -isystem "$rmm/rapids/libcudacxx" -isystem "$rmm/rapids" -isystem "$rmm/nvtx3" \
		-isystem "$toolkit/include" "$@" -L"$source/build/lib" -lterrazzo -l:libcudart.so.13
}
compile -L"$toolkit/lib64" -fPIC -shared -fvisibility=hidden "$source/bench/peers/peer_rmm.cpp" \
	-o "$folder/built/peer_rmm.so"
compile -L"$toolkit/lib64" -DWITH_RMM "$source/tests/cxx/programs/resource.cpp" -o "$folder/built/resource_rmm"
du -sh "$folder"
