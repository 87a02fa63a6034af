# SPDX-License-Identifier: Apache-2.0
"""Runs small Python programs over the look-alike libraries, each in a process of its own."""
import os
import subprocess
import sys
from pathlib import Path

LIBRARIES = Path(os.environ["TRZ_LOOKALIKE_DIR"])
SKIPPED = 77

# The beginning of every program: the two libraries, and calls that must succeed.
PREAMBLE = r'''
import ctypes, os, struct, sys
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p
MIB = 1 << 20
driver = ctypes.CDLL("libcuda.so.1")
runtime = ctypes.CDLL("libcudart.so.13")

def must(result):
    assert result == 0, result

def malloc(size):
    p = c_void_p()
    must(runtime.cudaMalloc(byref(p), c_size_t(size)))
    return p.value

def upload(to, data):
    must(runtime.cudaMemcpy(c_void_p(to), data, c_size_t(len(data)), 1))

def download(address, size):
    data = ctypes.create_string_buffer(size)
    must(runtime.cudaMemcpy(data, c_void_p(address), c_size_t(size), 2))
    return data.raw

class Prop(ctypes.Structure):
    _fields_ = [("type", c_int), ("handles", c_int), ("location", c_int), ("device", c_int), ("win32", c_void_p),
                ("flags", c_uint64)]

class Access(ctypes.Structure):
    _fields_ = [("location", c_int), ("device", c_int), ("flags", c_int)]

def create(size, handles=0):
    handle = c_uint64()
    must(driver.cuMemCreate(byref(handle), c_size_t(size), byref(Prop(1, handles, 1, 0)), c_uint64(0)))
    return handle.value

def reserve(size):
    address = c_uint64()
    must(driver.cuMemAddressReserve(byref(address), c_size_t(size), c_size_t(0), c_uint64(0), c_uint64(0)))
    return address.value

def lay(address, size, handle):
    must(driver.cuMemMap(c_uint64(address), c_size_t(size), c_size_t(0), c_uint64(handle), c_uint64(0)))
    must(driver.cuMemSetAccess(c_uint64(address), c_size_t(size), byref(Access(1, 0, 3)), c_size_t(1)))

def unmap(address, size):
    must(driver.cuMemUnmap(c_uint64(address), c_size_t(size)))

PTX = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry touch_it(.param .u64 p)\n{\nret;\n}\n\0"

def kernel():
    module, function = c_void_p(), c_void_p()
    must(driver.cuModuleLoadData(byref(module), PTX))
    must(driver.cuModuleGetFunction(byref(function), module, b"touch_it"))
    return function

def launch(function, address, stream=None):
    value = c_uint64(address)
    arguments = (c_void_p * 1)(ctypes.addressof(value))
    return driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, None)

def new_stream():
    stream = c_void_p()
    must(runtime.cudaStreamCreateWithFlags(byref(stream), 1))
    return stream

must(runtime.cudaFree(None))
'''


# What a Python needs that loads libraries with AddressSanitizer.
sanitizers = {}


def find_sanitizers():
    """gcc's; another compiler's runtime lies elsewhere."""
    for name in ("libasan.so", "libubsan.so"):
        path = subprocess.run(["gcc", f"-print-file-name={name}"], stdout=subprocess.PIPE, text=True).stdout.strip()
        if os.path.isabs(path):
            yield path


def skip_if_unfit(may_preload=True):
    """Ends the test where the libraries cannot be loaded: they are not there, or are instrumented. `may_preload`: the
    programs are Python's, which can be given AddressSanitizer."""
    library = LIBRARIES / "libcuda.so.1"
    if not library.exists():
        print("skipped: this build has no look-alike libraries")
        sys.exit(SKIPPED)
    content = library.read_bytes()
    found = list(find_sanitizers()) if may_preload and b"__asan_init" in content else []
    if len(found) == 2:
        sanitizers.update(LD_PRELOAD=" ".join(found), ASAN_OPTIONS="detect_leaks=0")
    elif b"__asan_init" in content or b"__tsan_init" in content:
        print("skipped: instrumented libraries do not load into these programs")
        sys.exit(SKIPPED)


def environment(**variables):
    """The test's own environment without our variables, then those given: work="late" is TERRAZZO_SIM_WORK."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TERRAZZO_SIM_") and
            name != "CUDA_VISIBLE_DEVICES"}
    kept["LD_LIBRARY_PATH"] = str(LIBRARIES)
    kept.update(sanitizers)
    kept.update({f"TERRAZZO_SIM_{name.upper()}": str(value) for name, value in variables.items()})
    return kept


def run(program, fds=(), **variables):
    """The finished process; stdout and stderr are text."""
    return subprocess.run([sys.executable, "-c", PREAMBLE + program], env=environment(**variables), pass_fds=fds,
                          capture_output=True, text=True, timeout=120, check=False)


def succeed(test, program, **variables):
    done = run(program, **variables)
    test.assertEqual(done.returncode, 0, done.stderr)
    return done
