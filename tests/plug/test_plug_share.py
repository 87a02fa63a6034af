# SPDX-License-Identifier: Apache-2.0
"""Memory for other processes, by the functions behind PyTorch's: the process that asks for it is its own here."""
import os
import subprocess
import sys
import unittest
from pathlib import Path

LOOKALIKE = Path(os.environ["TRZ_LOOKALIKE_DIR"])

PROGRAM = r"""
import ctypes, os, pathlib
from ctypes import byref, c_size_t, c_uint64, c_void_p
folder = pathlib.Path(os.environ["TERRAZZO_LIB"]).parent
terrazzo, plug = ctypes.CDLL(folder / "libterrazzo.so"), ctypes.CDLL(folder / "libterrazzo_torch.so")
runtime = ctypes.CDLL("libcudart.so.13")
plug.trz_torch_last_error.restype = ctypes.c_char_p

def must(status):
    assert status == 0, (status, plug.trz_torch_last_error())

heap = c_void_p()
must(plug.trz_torch_heap(0, True, byref(heap)))

def exported():
    value = c_uint64()
    must(terrazzo.trz_stat(heap, b"exported_bytes.current", byref(value)))
    return value.value

def unused():
    free, total = c_size_t(), c_size_t()
    must(runtime.cudaMemGetInfo(byref(free), byref(total)))
    return free.value

def share_and_receive():
    p, q, offset, handle = c_void_p(), c_void_p(), c_size_t(), ctypes.create_string_buffer(48)
    plug.trz_torch_shareable(True)
    must(plug.trz_torch_try_alloc(c_size_t(1000), 0, None, byref(p)))
    plug.trz_torch_shareable(False)
    must(plug.trz_torch_share(p, byref(offset), handle))
    must(plug.trz_torch_receive(handle, c_size_t(len(handle)), 0, None, byref(q)))
    assert exported() == 2 << 20, exported()
    must(plug.trz_torch_try_free(q, 0))
    must(plug.trz_torch_try_free(p, 0))
"""


def run(program):
    environment = dict(os.environ, LD_LIBRARY_PATH=str(LOOKALIKE))
    subprocess.run([sys.executable, "-c", PROGRAM + program], check=True, env=environment)


@unittest.skipUnless((LOOKALIKE / "libcuda.so.1").exists(), "this build has no simulated CUDA driver")
class Share(unittest.TestCase):
    def test_what_both_have_freed_is_free_at_once(self):
        """Whoever answers is done with the question before the answer counts. A thread that is not done shows in some
        of so many rounds."""
        run("""
terrazzo.trz_trim(heap, c_size_t(0), None)
before = unused()
for _ in range(3000):
    share_and_receive()
    assert exported() == 0, exported()
for _ in range(1000):
    share_and_receive()
    must(terrazzo.trz_trim(heap, c_size_t(0), None))
    assert unused() == before, (unused(), before)
""")


if __name__ == "__main__":
    unittest.main()
