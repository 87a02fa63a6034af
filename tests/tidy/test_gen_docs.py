# SPDX-License-Identifier: Apache-2.0
"""docs/stats.md, docs/options.md and the picture in docs/design.md match the library: no page is stale, the generator
notices a stale one, and it reads from the lists the same as the built library and command report."""
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["TRZ_SOURCE_DIR"])
LOOKALIKE = Path(os.environ["TRZ_LOOKALIKE_DIR"])
SCRIPT = SOURCE / "tools" / "gen_docs.py"
INPUTS = ("stats/counters.def", "stats/counters.c", "include/terrazzo_driver.h", "alloc/README.md",
          "alloc/ground/types.h", "alloc/ground/sizeclass.h", "alloc/ground/config.h",
          "alloc/ground/config_options.def", "docs/stats.md", "docs/options.md", "docs/design.md")

sys.path.insert(0, str(SCRIPT.parent))
import gen_docs  # noqa: E402


class StatValue(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("unit", ctypes.c_char_p), ("help", ctypes.c_char_p),
                ("value", ctypes.c_uint64), ("ratio", ctypes.c_double)]


def print_statistics():
    """Runs in a process of its own, with the simulated libcuda.so.1 in its library path."""
    library = ctypes.CDLL(os.environ["TERRAZZO_LIB"])
    heap, count, most = ctypes.c_void_p(), ctypes.c_size_t(), 1024
    values = (StatValue * most)()
    assert library.trz_open(None, ctypes.byref(heap)) == 0
    assert library.trz_stats(heap, values, ctypes.c_size_t(most), ctypes.byref(count)) == 0
    rows = [[v.name.decode(), v.unit.decode(), v.help.decode()] for v in values[:count.value]]
    assert library.trz_close(heap) == 0
    print(json.dumps(rows))


def check(root):
    return subprocess.run([sys.executable, SCRIPT, "--check", str(root)], stdout=subprocess.PIPE, text=True)


class GenDocs(unittest.TestCase):
    def changed_tree(self, folder, name, old, new):
        """The inputs and pages in `folder`, with one change."""
        for path in (*INPUTS, *(str(p.relative_to(SOURCE)) for p in (SOURCE / "alloc").rglob("*.[ch]"))):
            Path(folder, path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SOURCE / path, Path(folder, path))
        text = Path(folder, name).read_text(encoding="utf-8")
        self.assertIn(old, text)
        Path(folder, name).write_text(text.replace(old, new, 1), encoding="utf-8")

    def test_pages_are_fresh(self):
        done = check(SOURCE)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_stale_pages_are_found_and_made_fresh(self):
        changes = (("stats/counters.def", "COUNT(waits_inserted,", "COUNT(waits_put,", "docs/stats.md"),
                   ("stats/counters.c", '"fragmentation"', '"waste"', "docs/stats.md"),
                   ("include/terrazzo_driver.h", "X(clock_ns)", "X(clock_us)", "docs/stats.md"),
                   ("alloc/ground/config_options.def", "SWITCH(vmm, true,", "SWITCH(vmm, false,", "docs/options.md"),
                   ("alloc/ground/types.h", "CELL_SHIFT = 15", "CELL_SHIFT = 16", "docs/options.md"),
                   ("alloc/memory/window.h", '#include "memory/tile.h"', '#include "order/lane.h"', "docs/design.md"),
                   ("docs/stats.md", "waits_inserted", "waits_put", "docs/stats.md"))
        for name, old, new, page in changes:
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                self.changed_tree(folder, name, old, new)
                done = check(folder)
                self.assertEqual(done.returncode, 1)
                self.assertEqual(done.stdout, f"{page} is stale: run tools/gen_docs.py\n")
                subprocess.run([sys.executable, SCRIPT, folder], check=True)
                self.assertEqual(check(folder).returncode, 0)

    def test_statistics_are_those_of_the_library(self):
        if not (LOOKALIKE / "libcuda.so.1").exists():
            self.skipTest("this build has no simulated CUDA driver")
        done = subprocess.run([sys.executable, __file__, "--statistics"], stdout=subprocess.PIPE, check=True,
                              env=dict(os.environ, LD_LIBRARY_PATH=str(LOOKALIKE)))
        said = [[name, s.unit, s.help] for s in gen_docs.statistics(SOURCE) for name in s.names]
        self.assertEqual(sorted(said), sorted(json.loads(done.stdout)))

    def test_options_are_those_of_the_command(self):
        command = [os.environ["TERRAZZO_CLI"], "config", "--json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        said = [{"key": o.key, "type": o.type, "choices": o.choices, "default": o.initial, "help": o.help}
                for o in gen_docs.options(SOURCE)]
        self.assertEqual(said, json.loads(done.stdout))


if __name__ == "__main__":
    if sys.argv[1:] == ["--statistics"]:
        print_statistics()
    else:
        unittest.main()
