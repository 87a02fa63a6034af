# SPDX-License-Identifier: Apache-2.0
"""Every driver function that a toolkit has ever named is there, for the linker and for cuGetProcAddress, and so is
every function of the runtime: it works, or refuses by name."""
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

from lookalike_process import PREAMBLE, environment, skip_if_unfit, succeed

SOURCES = Path(os.environ["TRZ_SOURCE_DIR"])
NAMES = Path(__file__).with_name("driver_names.txt")
TOOLKITS = [Path(folder) for folder in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
            if folder]
RUNTIME_NAMES = NAMES.with_name("runtime_names.txt")
HEADERS = [f"cuda{name}Typedefs.h" for name in ("", "Profiler", "GL", "EGL", "VDPAU")]

BY_THE_LINKER = """
lost = [name for name in names if not hasattr(driver, name)]
assert not lost, lost
"""

NULLS = """
import ctypes, os, signal, sys
driver, runtime = map(ctypes.CDLL, ("libcuda.so.1", "libcudart.so.13"))
older = [ctypes.CDLL("libcudart.so." + suffix) for suffix in ("12", "11.0")]

def ends(function):
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        signal.alarm(60)
        if runtime.cudaFree(None) == 0:
            function(*[ctypes.c_void_p()] * 8)
            os._exit(0)
        os._exit(1)
    return os.waitpid(pid, 0)[1]

for library, known in ((driver, names), *((each, runtime_names) for each in (runtime, *older))):
    found = [name for name in known if hasattr(library, name)]
    assert len(found) > 300
    lost = [name for name in found if ends(getattr(library, name))]
    assert not lost, lost
"""

# Calls that are right but for one missing pointer; functions that get only null pointers stop at the first.
ONE_NULL = """
def ends(name, arguments):
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        if runtime.cudaFree(None) == 0:
            os._exit(getattr(driver, name)(*arguments()))
        os._exit(255)
    return os.waitpid(pid, 0)[1]

def laid():
    handle, address = create(2 * MIB), reserve(2 * MIB)
    lay(address, 2 * MIB, handle)
    return c_uint64(address)

def pool():
    found = c_void_p()
    must(driver.cuDeviceGetDefaultMemPool(byref(found), 0))
    return found

def event():
    made = c_void_p()
    must(driver.cuEventCreate(byref(made), 0))
    must(driver.cuEventRecord(made, None))
    return made

kind, room, size, one = (c_int * 1)(2), ctypes.create_string_buffer(64), c_size_t(2 * MIB), c_size_t(1)
rooms, place = (c_void_p * 1)(ctypes.addressof(room)), byref(Access(1, 0, 3))
calls = [
    ("cuPointerGetAttributes", lambda: (1, None, rooms, laid())),
    ("cuPointerGetAttributes", lambda: (1, kind, None, laid())),
    ("cuPointerGetAttributes", lambda: (1, kind, (c_void_p * 1)(), laid())),
    ("cuPointerGetAttributes", lambda: (0, kind, rooms, laid())),
    ("cuMemPoolSetAccess", lambda: (pool(), None, one)), ("cuMemPoolGetAccess", lambda: (room, pool(), None)),
    ("cuMemSetAccess", lambda: (laid(), size, None, one)), ("cuMemGetAccess", lambda: (None, place, laid())),
    ("cuMemGetAccess", lambda: (room, None, laid())), ("cuMemRetainAllocationHandle", lambda: (None, laid())),
    ("cuMemGetAllocationPropertiesFromHandle", lambda: (None, c_uint64(create(2 * MIB)))),
    ("cuMemExportToShareableHandle", lambda: (None, c_uint64(create(2 * MIB, 1)), 1, c_uint64(0))),
    ("cuEventElapsedTime", lambda: (None, event(), event())), ("cuIpcGetEventHandle", lambda: (None, event())),
    ("cuFuncGetAttribute", lambda: (None, 0, kernel())), ("cuDeviceGetAttribute", lambda: (None, 1, 0)),
    ("cuOccupancyMaxActiveBlocksPerMultiprocessor", lambda: (None, kernel(), 32, c_size_t(0))),
    ("cuOccupancyAvailableDynamicSMemPerBlock", lambda: (None, kernel(), 1, 32)),
    ("cuDeviceGetName", lambda: (None, 9, 0)), ("cuDeviceGetPCIBusId", lambda: (None, 9, 0)),
    ("cuDeviceGetP2PAttribute", lambda: (None, 1, 0, 1)),
]
lost = [name for name, arguments in calls if ends(name, arguments) != 1 << 8]
assert not lost, lost
"""

BY_NAME = """
must(driver.cuInit(0))
newest = c_int()
must(driver.cuDriverGetVersion(byref(newest)))

def address(name, version, flags):
    found = c_void_p()
    must(driver.cuGetProcAddress_v2(name.encode(), byref(found), version, c_uint64(flags), None))
    other, status = c_void_p(), c_int(-1)
    must(runtime.cudaGetDriverEntryPointByVersion(name.encode(), byref(other), version, c_uint64(flags), byref(status)))
    assert found.value and found.value == other.value and status.value == 0, (name, version)
    return found.value

exported = {ctypes.cast(getattr(driver, name), c_void_p).value: name for name in names}
wholly = {name for name in names if all(form in refused for form in names if form in (name, name + form[-3:]))}
for name, versions in names.items():
    for version in (v for v in versions if v <= newest.value):
        for flags in (0, 1, 2):
            form = exported[address(name, version, flags)]
            plain = form.removesuffix("_ptsz").removesuffix("_ptds")
            assert plain in (name, name + form[len(name):][:3]) or name == "cuGraphInstantiate", (name, version, form)
            of_thread = {plain + "_ptsz", plain + "_ptds"} & names.keys() if flags == 2 else set()
            assert form in (of_thread or {plain}) or plain in refused, (name, version, flags, form)
            assert plain not in refused or version < 3020 or name in wholly, (name, version, form)
"""

OF_OLD_CALLERS = """
must(driver.cuInit(0))
context, event, stream, word = c_void_p(), c_void_p(), c_void_p(), c_uint64()
must(driver.cuCtxCreate(byref(context), 0, 0))
must(driver.cuMemAlloc_v2(byref(word), c_size_t(MIB)))
must(driver.cuStreamCreate(byref(stream), 0))
must(driver.cuStreamWriteValue32(stream, word, 7, 0))
must(driver.cuStreamWriteValue64_ptsz(None, c_uint64(word.value + 8), c_uint64(9), 0))
must(driver.cuStreamSynchronize_ptsz(None))
data = ctypes.create_string_buffer(16)
must(driver.cuMemcpyDtoH_v2_ptds(data, word, c_size_t(16)))
assert struct.unpack("<IIQ", data.raw) == (7, 0, 9), data.raw
must(driver.cuStreamBeginCapture(stream))
graph, instance = c_void_p(), c_void_p()
must(driver.cuStreamEndCapture(stream, byref(graph)))
must(driver.cuGraphInstantiate(byref(instance), graph, None, None, c_size_t(0)))
must(driver.cuEventCreate(byref(event), 0))
must(driver.cuEventDestroy(event))
must(driver.cuStreamDestroy(stream))
assert driver.cuMemAlloc(byref(word), 512) == 801
must(driver.cuCtxDestroy(context))
"""

REFUSALS = """
must(driver.cuInit(0))
for name in refused:
    assert getattr(runtime, name)() == 801, name
    assert runtime.cudaGetLastError() == 801, name
"""

OF_THREADS = """
f, stream, size = kernel(), new_stream(), 4096
a, host, to = malloc(size), bytes(range(256)) * 16, ctypes.create_string_buffer(size)
class Pitched(ctypes.Structure):
    _fields_ = [("address", c_void_p), ("pitch", c_size_t), ("width", c_size_t), ("height", c_size_t)]
class Extent(ctypes.Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("depth", c_size_t)]
must(runtime.cudaMemcpy2D_ptds(c_void_p(a), c_size_t(64), host, c_size_t(64), c_size_t(64), c_size_t(64), 1))
must(runtime.cudaMemset3D_ptds(Pitched(a, 64, 64, 4), 7, Extent(10, 3, 2)))
must(runtime.cudaMemset2D_ptds(c_void_p(a + 1024), c_size_t(64), 9, c_size_t(5), c_size_t(2)))
must(runtime.cudaMemcpy2DAsync_ptsz(to, c_size_t(64), c_void_p(a), c_size_t(64), c_size_t(64), c_size_t(64), 2, None))
must(runtime.cudaStreamSynchronize_ptsz(None))
want = bytearray(host)
for y in (0, 1, 2, 4, 5, 6):
    want[y * 64:y * 64 + 10] = b"\\x07" * 10
for y in (16, 17):
    want[y * 64:y * 64 + 5] = b"\\x09" * 5
assert to.raw == bytes(want)

# the thread's own stream can be captured, the legacy one cannot
graph, status, number = c_void_p(), c_int(), c_uint64()
assert runtime.cudaStreamBeginCapture(None, 2) == 900
must(runtime.cudaStreamBeginCapture_ptsz(None, 2))
must(runtime.cudaMemset2DAsync_ptsz(c_void_p(a), c_size_t(64), 1, c_size_t(3), c_size_t(1), None))
must(runtime.cudaStreamGetCaptureInfo_ptsz(None, byref(status), byref(number), None, None, None, None))
assert status.value == 1
must(runtime.cudaStreamEndCapture_ptsz(None, byref(graph)))
nodes = c_size_t()
must(runtime.cudaGraphGetNodes(graph, None, byref(nodes)))
assert nodes.value == 1
"""

OF_TWELVE = """
runtime = ctypes.CDLL("libcudart.so.12")
limit, same = c_size_t(), c_size_t()
must(runtime.cudaThreadSetLimit(0, c_size_t(2048)))
must(runtime.cudaThreadGetLimit(byref(limit), 0))
must(runtime.cudaDeviceGetLimit(byref(same), 0))
assert limit.value == same.value == 2048
must(runtime.cudaThreadSynchronize())
must(runtime.cudaThreadExit())
"""

OF_ELEVEN = """
runtime = ctypes.CDLL("libcudart.so.11.0")
version, p, stream, graph, other, instance = c_int(), c_void_p(), c_void_p(), c_void_p(), c_void_p(), c_void_p()
must(runtime.cudaRuntimeGetVersion(byref(version)))
assert version.value == 11080, version.value

# what is behind a structure or an argument of 11 stays as it is
for function, size in (("cudaGetDeviceProperties", 728), ("cudaPointerGetAttributes", 24)):
    room = ctypes.create_string_buffer(b"\\xab" * (size + 64), size + 64)
    must(runtime.cudaMalloc(byref(p), c_size_t(MIB)))
    must(getattr(runtime, function)(room, p if size == 24 else 0))
    assert room.raw[size:] == b"\\xab" * 64 and room.raw[:8] != b"\\xab" * 8, function
assert runtime.cudaGetDeviceProperties(room, 7) == 101
must(runtime.cudaStreamCreate(byref(stream)))
for made in (graph, other):
    must(runtime.cudaStreamBeginCapture(stream, 0))
    must(runtime.cudaMemsetAsync(p, 1, c_size_t(100), stream))
    must(runtime.cudaStreamEndCapture(stream, byref(made)))
node, log, why = c_void_p(5), ctypes.create_string_buffer(b"text", 64), c_int(7)
must(runtime.cudaGraphInstantiate(byref(instance), graph, byref(node), log, c_size_t(64)))
must(runtime.cudaGraphLaunch(instance, stream))
must(runtime.cudaGraphExecUpdate(instance, other, byref(node), byref(why)))
assert why.value == 0, why.value
must(runtime.cudaStreamSynchronize(stream))
entry, untouched = c_void_p(), c_int(-1)
for form in ("cudaGetDriverEntryPoint", "cudaGetDriverEntryPoint_ptsz"):
    must(getattr(runtime, form)(b"cuMemAllocAsync", byref(entry), c_uint64(0), byref(untouched)))
    assert entry.value and untouched.value == -1
assert runtime.cudaBindTexture(None, None, None, None, c_size_t(0)) == 801
"""

CHANNEL = """
class Channel(ctypes.Structure):
    _fields_ = [(name, c_int) for name in ("x", "y", "z", "w", "kind")]
runtime.cudaCreateChannelDesc.restype = Channel
made = runtime.cudaCreateChannelDesc(32, 16, 8, 0, 2)
assert (made.x, made.y, made.z, made.w, made.kind) == (32, 16, 8, 0, 2)
"""


def listed():
    """{name: versions of its forms}"""
    lines = [line.split() for line in NAMES.read_text().splitlines() if not line.startswith("#")]
    return {name: [int(version) for version in versions] for name, *versions in lines}


def of_runtime():
    """{name: majors}"""
    lines = [line.split() for line in RUNTIME_NAMES.read_text().splitlines() if not line.startswith("#")]
    return {name: set(map(int, majors)) for name, *majors in lines}


def of_installed_runtimes():
    """{name: majors} of what is installed here."""
    found = {}
    for toolkit in TOOLKITS:
        for major, suffix in ((11, "11.0"), (12, "12"), (13, "13")):
            library, header = toolkit / "lib64" / f"libcudart.so.{suffix}", toolkit / "include" / "cuda_runtime_api.h"
            if not library.exists():
                continue
            lines = subprocess.run(["nm", "-D", "--defined-only", library], stdout=subprocess.PIPE, text=True,
                                   check=True).stdout.splitlines()
            names = {line.split()[-1].split("@")[0] for line in lines}
            text = header.read_text() if header.exists() else ""
            declared = re.findall(r"^extern .*\bCUDARTAPI (cuda\w+)\(", text, re.M)
            for name in [name for name in names if name.startswith(("cuda", "__cuda"))] + declared:
                found.setdefault(name, set()).add(major)
    return found


def of_toolkits():
    """{name: versions} of what is installed here."""
    found = {}
    for toolkit in TOOLKITS:
        for header in (toolkit / "include" / name for name in HEADERS):
            text = header.read_text() if header.exists() else ""
            for name, version in re.findall(r"PFN_(cu\w+?)_v(\d+)\)", text):
                found.setdefault(name, set()).add(int(version))
        for stub in (toolkit / "lib64" / "stubs" / "libcuda.so", toolkit / "lib" / "stubs" / "libcuda.so"):
            if stub.exists():
                lines = subprocess.run(["nm", "-D", "--defined-only", stub], stdout=subprocess.PIPE, text=True,
                                       check=True).stdout.splitlines()
                for name in (line.split()[-1].split("@")[0] for line in lines):
                    found.setdefault(name, set())
    return {name: versions for name, versions in found.items() if name.startswith("cu") and "WGL" not in name}


class Names(unittest.TestCase):
    def test_the_linker_finds_each(self):
        succeed(self, f"names = {listed()!r}\n" + BY_THE_LINKER)

    def test_each_form_is_found_by_name_and_version(self):
        rows = (SOURCES / "lookalike" / "driver" / "driver_missing.def").read_text()
        refused = set(re.findall(r"^X\(\w+, (\w+)\)", rows, re.M))
        succeed(self, f"names = {listed()!r}\nrefused = {refused!r}\n" + BY_NAME)

    def test_one_null_pointer_is_an_invalid_value(self):
        before_any_call = PREAMBLE[:PREAMBLE.index("must(runtime.cudaFree(None))")]
        done = subprocess.run([sys.executable, "-c", before_any_call + ONE_NULL], env=environment(devices=2),
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_no_form_needs_its_arguments(self):
        """But for cudaCreateChannelDesc, which is given a place for the structure that it returns."""
        of_the_runtime = [name for name in of_runtime() if name.startswith("cuda") and name != "cudaCreateChannelDesc"]
        names = f"names, runtime_names = {list(listed())!r}, {of_the_runtime!r}\n"
        done = subprocess.run([sys.executable, "-c", names + NULLS], env=environment(), capture_output=True, text=True,
                              timeout=300, check=False)
        self.assertEqual((done.returncode, done.stderr[-2000:]), (0, ""))

    def test_forms_of_old_callers_work(self):
        succeed(self, OF_OLD_CALLERS, scalars="real")

    def test_the_list_has_what_is_installed(self):
        known, new = listed(), {}
        for name, versions in of_toolkits().items():
            more = sorted(versions - set(known.get(name, ())))
            if name not in known or more:
                new[name] = more
        self.assertEqual(new, {}, f"to be added to {NAMES.name}, and to the driver's look-alike")

    def test_the_linker_finds_each_of_the_runtimes(self):
        for major, suffix in ((11, "11.0"), (12, "12"), (13, "13")):
            names = sorted(name for name, majors in of_runtime().items() if major in majors)
            self.assertGreater(len(names), 390)
            lost = f"[name for name in {names!r} if not hasattr(runtime, name)]"
            succeed(self, f"runtime = ctypes.CDLL('libcudart.so.{suffix}')\nlost = {lost}\nassert not lost, lost")

    def test_what_the_runtime_lacks_is_refused_by_name(self):
        rows = (SOURCES / "lookalike" / "runtime" / "runtime_missing.def").read_text().partition("#if")[0]
        refused = re.findall(r"^X\((\w+)\)", rows, re.M)
        done = succeed(self, f"refused = {refused!r}\n" + REFUSALS)
        for name in refused:
            self.assertRegex(done.stderr, rf"\b{name}\b")

    def test_forms_of_threads_use_the_threads_stream(self):
        for work in ("now", "late"):
            succeed(self, OF_THREADS, work=work, violations="count")

    def test_forms_that_only_the_runtime_of_cuda_11_has(self):
        succeed(self, OF_ELEVEN)

    def test_forms_that_only_the_runtime_of_cuda_12_has(self):
        succeed(self, OF_TWELVE)

    def test_a_channel_is_described(self):
        succeed(self, CHANNEL)

    def test_the_list_of_the_runtime_has_what_is_installed(self):
        known = of_runtime()
        new = {name: majors for name, majors in of_installed_runtimes().items() if majors - known.get(name, set())}
        self.assertEqual(new, {}, f"to be added to {RUNTIME_NAMES.name}, and to the runtime's look-alike")


if __name__ == "__main__":
    skip_if_unfit()
    unittest.main()
