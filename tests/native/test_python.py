# SPDX-License-Identifier: Apache-2.0
"""Programs of Python other than PyTorch's, with libterrazzo_preload preloaded: terrazzo counts their memory by their
lines."""
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import unittest
from pathlib import Path

from native_process import PRELOAD, environment

PACKAGE = Path(os.environ["TRZ_SOURCE_DIR"], "python")
HEADERS = Path(sysconfig.get_path("include"))
PROGRAM = """
import ctypes, threading
runtime = ctypes.CDLL("libcudart.so.12")
def weights():
    for i in range(2):
        runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(64 << 20))
def worker():
    runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(96 << 20))
runtime.cudaMemGetInfo(ctypes.byref(ctypes.c_size_t()), ctypes.byref(ctypes.c_size_t()))
weights()
thread = threading.Thread(target=worker)
thread.start()
thread.join()
while runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(100 << 20)) == 0:
    pass
"""


def run(package, **variables):
    """The program's status, and what it says once it has run out of memory."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "app.py")
        program.write_text(PROGRAM)
        variables = {"LD_PRELOAD": PRELOAD, "TERRAZZO_CACHE": folder, "PYTHONPATH": str(package), **variables}
        done = subprocess.run([sys.executable, program], env=environment(variables, memory="1GiB"),
                              capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stderr


class Lines(unittest.TestCase):
    @unittest.skipIf(sys.version_info < (3, 11), "frames need Python 3.11")
    @unittest.skipUnless((HEADERS / "internal" / "pycore_frame.h").exists(), "Python's headers are not installed")
    def test_memory_is_counted_by_lines(self):
        status, said = run(PACKAGE)
        self.assertEqual(status, 0, said)
        held = re.findall(r"(?m)^ +(\S+) MiB +\S+ %  \S*/app.py:(\d+) (\S+) \((\d) live", said)
        self.assertEqual(held, [("800.00", "14", "<module>", "8"), ("128.00", "6", "weights", "2"),
                                ("96.00", "8", "worker", "1")], said)
        self.assertRegex(said, r"(?m)^asked for by \S*/app.py:14 <module>$")

    def test_a_python_that_cannot_tell_goes_on(self):
        """Without terrazzo's package, without a compiler."""
        with tempfile.TemporaryDirectory() as nothing:
            for package, variables in ((nothing, {}), (PACKAGE, {"PATH": nothing, "CC": "none"})):
                with self.subTest(package):
                    status, said = run(package, **variables)
                    self.assertEqual(status, 0, said)
                    self.assertIn("verdict: full", said)
                    self.assertNotIn("app.py", said)
                    self.assertNotIn("Error", said)


if __name__ == "__main__":
    unittest.main()
