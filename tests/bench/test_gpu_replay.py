#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What measures allocators on a real GPU, over the look-alike driver: every allocator that needs nothing but the driver
serves a trace and the micros, and a wrong one is found."""
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["TRZ_SOURCE_DIR"])
BUILD = Path(os.environ["TRZ_BUILD_DIR"])
REPLAY = BUILD / "bench" / "gpu_replay"
TRACE = SOURCE / "bench" / "traces" / "fsdp_like.pickle.xz"   # four streams

# Freed memory serves the next request of its size at once, whichever stream still works on it.
EARLY = r"""
#include "../../peers/bench_peer.h"
#include <map>
extern "C" int cuMemAlloc_v2(uint64_t *address, size_t size);
static std::map<void *, size_t> sizes;
static std::multimap<size_t, void *> freed;
static int begin(const char *) { return 0; }
static void end() {}
static void *take(size_t size, void *)
{
	auto found = freed.find(size);
	uint64_t address;
	if (found != freed.end()) {
		void *pointer = found->second;
		freed.erase(found);
		return pointer;
	}
	if (cuMemAlloc_v2(&address, size) != 0)
		return nullptr;
	sizes[(void *)address] = size;
	return (void *)address;
}
static void give(void *pointer, size_t, void *, void *) { freed.emplace(sizes[pointer], pointer); }
static peer make() { peer p = {}; p.open = begin; p.close = end; p.alloc = take; p.free = give; return p; }
const struct peer bench_peer = make();
"""
# The same memory for two requests.
TWICE = EARLY.replace("freed.erase(found);", "if (size % 3) freed.erase(found);")


class Replay(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)

    def compiled(self, name, *flags, text=None):
        if text:
            source = self.folder / f"{name}.cpp"
            source.write_text(text)
        else:
            source = next(path for path in SOURCE.glob(f"bench/**/peer_{name}.c*"))
        made = self.folder / f"{name}.so"
        cxx = source.suffix == ".cpp"
        done = subprocess.run(["c++" if cxx else "cc", "-std=c++17" if cxx else "-std=gnu11", "-O1", "-fPIC", "-shared",
                               "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", f"-I{SOURCE / 'include'}",
                               f"-I{SOURCE / 'bench' / 'gpu' / 'peers'}", source, "-o", made, *flags],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[:4000])
        return made

    def measure(self, *arguments, **variables):
        environment = {**os.environ, "LD_LIBRARY_PATH": f"{BUILD}/lib/sim:{BUILD}/lib", "TERRAZZO_SIM_SCALARS": "real",
                       **variables}
        done = subprocess.run([REPLAY, *arguments], env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        return [json.loads(line) for line in done.stdout.splitlines()]

    def peers(self):
        yield self.compiled("terrazzo", f"-L{BUILD}/lib", "-lterrazzo"), ""
        yield self.compiled("naive"), ""
        yield self.compiled("async"), "keep"

    def test_right_allocators(self):
        rows = []
        for peer, options in self.peers():
            for work in ({}, {"TERRAZZO_SIM_WORK": "late"}):
                with self.subTest(peer.stem, **work):
                    row, = self.measure(peer, options, "trace", TRACE, "60", **work)
                    self.assertEqual((row["wrong"], row["first_ooms"], row["bytes_after_close"]), (0, 0, 0))
                    self.assertGreaterEqual(row["peak_device_bytes"], row["peak_allocated_bytes"])
                    self.assertFalse(row["first_ended_early"])
                    rows.append((row["events"], row["first_ops"], row["later_ops"], row["peak_allocated_bytes"]))
        self.assertEqual(len(set(rows)), 1, "the same requests for each")

    def test_wrong_ones_are_found(self):
        late = {"TERRAZZO_SIM_WORK": "late", "TERRAZZO_SIM_SCHEDULE": "starve"}
        for name, text, work in (("early", EARLY, late), ("twice", TWICE, {})):
            with self.subTest(name):
                row, = self.measure(self.compiled(name, text=text), "", "trace", TRACE, "60", **work)
                self.assertGreater(row["wrong"], 0)

    def test_pools_take_about_what_a_gpus_take(self):
        """The most memory on an H200 (docs/bench/gpu/h200/peers_1.md), in GiB."""
        peer = self.compiled("async")
        for name, measured in (("resnet50", 22.72), ("gpt1b3_offload", 17.75), ("lora7b", 40.03)):
            cut = self.folder / f"{name}.trace"
            self.measure("cut", "40000", SOURCE / "bench" / "traces" / f"{name}.pickle.xz", cut)
            row, = self.measure(peer, "keep", "trace", cut, "60")
            self.assertEqual(row["wrong"], 0)
            self.assertAlmostEqual(row["peak_device_bytes"] / (measured * 2**30), 1, delta=0.035, msg=name)

    def test_micros(self):
        rows = self.measure(self.compiled("terrazzo", f"-L{BUILD}/lib", "-lterrazzo"), "", "micros", "0.001")
        self.assertGreater(len(rows), 5)
        for row in rows:
            self.assertGreater(row["pairs"], 0)

    def test_cut(self):
        short = self.folder / "short.trace"
        self.measure("cut", "500", TRACE, short)
        row, = self.measure(self.compiled("naive"), "", "trace", short, "60")
        self.assertEqual((row["events"], row["wrong"]), (500, 0))


if __name__ == "__main__":
    unittest.main()
