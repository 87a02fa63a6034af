# SPDX-License-Identifier: Apache-2.0
#
# A thin front of CMake: what each goal does is in CMakePresets.json and tools/.

.PHONY: demo check check-torch seeds bench format clean deps

demo: deps
	cmake --preset release --log-level=NOTICE
	cmake --build --preset release --target terrazzo_cli
	build/bin/terrazzo replay bench/traces/llama7b_ckpt.pickle.xz

check: deps
	@python3 tools/run_tests.py

# Downloads PyTorch, the newest and the oldest that are supported, once; TORCH_FLAGS=--compile tries torch.compile too,
# TORCH_FLAGS="--torch VERSION" another version.
check-torch: deps
	cmake --preset release --log-level=NOTICE
	cmake --build --preset release
	@python3 tools/check_torch.py $(TORCH_FLAGS)

seeds: deps
	cmake --preset release --log-level=NOTICE
	cmake --build --preset release
	seq 1 50 2000 | xargs -P "$$(nproc)" -I{} env TRZ_FIRST_SEED={} TRZ_SEEDS=50 build/tests/sim/test_seeds

# Real allocators, the same requests, one table (bench/README.md); BENCH=quick takes three minutes.
bench: deps
	cmake --preset release --log-level=NOTICE
	cmake --build --preset release
	build/bench/contest

# The lines that differ from the last commit, and no others.
format:
	git clang-format --force --extensions c,h,cpp,hpp

clean:
	rm -rf build

deps:
	@tools/install_deps.sh
