# SPDX-License-Identifier: Apache-2.0
"""The library loads into a running program (Python), works there, and leaves that program's malloc alone."""
import ctypes
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

LIBRARY = os.environ["TERRAZZO_LIB"]
HEADER = Path(os.environ["TRZ_SOURCE_DIR"]) / "include" / "terrazzo.h"
LOOKALIKE = Path(os.environ["TRZ_LOOKALIKE_DIR"])


def status_value(name):
    return int(re.search(rf"X\({name}, (\d+),", HEADER.read_text()).group(1))


def load():
    library = ctypes.CDLL(LIBRARY)
    library.trz_version.restype = ctypes.c_char_p
    library.trz_last_error.restype = ctypes.c_char_p
    library.trz_status_name.restype = ctypes.c_char_p
    return library


def malloc_address(handle):
    return ctypes.cast(handle.malloc, ctypes.c_void_p).value


class Dlopen(unittest.TestCase):
    def test_version_is_the_headers(self):
        parts = re.findall(r"#define TRZ_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", HEADER.read_text())
        self.assertEqual(load().trz_version().decode(), ".".join(parts))

    def test_opening_without_a_gpu_fails_clearly(self):
        try:
            ctypes.CDLL("libcuda.so.1")
            self.skipTest("this machine has a CUDA driver")
        except OSError:
            pass
        library = load()
        heap = ctypes.c_void_p()
        status = library.trz_open(None, ctypes.byref(heap))
        self.assertEqual(library.trz_status_name(status), b"TRZ_ERROR_NO_DRIVER")
        self.assertIsNone(heap.value)
        self.assertIn(b"libcuda.so.1", library.trz_last_error())

    def test_malloc_of_the_process_stays(self):
        """In a Python that is no PIE, as Debian's, the process's malloc is a jump to libc's."""
        process, libc = ctypes.CDLL(None), ctypes.CDLL("libc.so.6")
        before = malloc_address(process), malloc_address(libc)
        load()
        self.assertEqual((malloc_address(process), malloc_address(libc)), before)

    def test_exports_nothing_foreign(self):
        text = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], check=True, capture_output=True,
                              text=True).stdout
        names = [line.split()[-1] for line in text.splitlines()]
        self.assertTrue(names)
        self.assertEqual([name for name in names if not name.startswith(("trz_", "TERRAZZO_"))], [])

    def test_closing_the_handle_keeps_the_code(self):
        program = ("import ctypes, _ctypes, os\n"
                   "library = ctypes.CDLL(os.environ['TERRAZZO_LIB'])\n"
                   "version = library.trz_version\n"
                   "version.restype = ctypes.c_char_p\n"
                   "_ctypes.dlclose(library._handle)\n"
                   "assert version()\n")
        subprocess.run([sys.executable, "-c", program], check=True)

    def test_allocates_on_a_driver_it_finds(self):
        if not (LOOKALIKE / "libcuda.so.1").exists():
            self.skipTest("this build has no simulated CUDA driver")
        program = ("import ctypes, os\n"
                   "library = ctypes.CDLL(os.environ['TERRAZZO_LIB'])\n"
                   "library.trz_last_error.restype = ctypes.c_char_p\n"
                   "heap, block = ctypes.c_void_p(), ctypes.c_void_p()\n"
                   "def must(status):\n"
                   "    assert status == 0, library.trz_last_error()\n"
                   "must(library.trz_open(None, ctypes.byref(heap)))\n"
                   "must(library.trz_alloc(heap, ctypes.c_size_t(1 << 20), ctypes.c_size_t(0), None,\n"
                   "                       ctypes.byref(block)))\n"
                   "assert block.value\n"
                   "must(library.trz_free(heap, block))\n"
                   "must(library.trz_check(heap))\n"
                   "must(library.trz_close(heap))\n")
        environment = dict(os.environ, LD_LIBRARY_PATH=str(LOOKALIKE))
        subprocess.run([sys.executable, "-c", program], check=True, env=environment)


if __name__ == "__main__":
    unittest.main()
