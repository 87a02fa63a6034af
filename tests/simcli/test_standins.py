#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the stand-ins' generator, on a folder of handmade libraries like PyTorch's."""
import ctypes
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["TRZ_SOURCE_DIR"])
SOURCES = SOURCE / "lookalike" / "standin"
LIBRARIES = Path(os.environ["TRZ_BUILD_DIR"]) / "lib" / "sim"
CC = os.environ.get("CC") or shutil.which("cc") or "gcc"

sys.path.insert(0, str(SOURCE / "python"))
sys.path.append("/usr/lib/python3/dist-packages")  # pyelftools, where this is another Python than Debian's
from terrazzo.sim import standins  # noqa: E402

USES = """
int cublasCreate_v2(), cublasDestroy_v2(), cublasSetStream_v2(), cublasGemmEx(), cublasGetNewThing(), cublasZaxpy_v2();
int cusolverDnSgetrf_bufferSize(), ncclCommInitRank(), ncclGetUniqueId(), cuMemAlloc_v2(), cudaMalloc();
int cublasLtMatmulDescCreate(), nvrtcVersion(), curandCreateGenerator();
void *uses[] = { cublasCreate_v2, cublasDestroy_v2, cublasSetStream_v2, cublasGemmEx, cublasGetNewThing,
                 cublasZaxpy_v2, cusolverDnSgetrf_bufferSize, ncclCommInitRank, ncclGetUniqueId, cuMemAlloc_v2,
                 cudaMalloc, cublasLtMatmulDescCreate, nvrtcVersion, curandCreateGenerator };
"""


class Standins(unittest.TestCase):
    """One folder: torch/lib with a library that needs others, which lie in nvidia/all/lib as it says."""

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.root = Path(cls.temporary.name)
        cls.torch, cls.target = cls.root / "torch", cls.root / "nvidia" / "all" / "lib"
        (cls.torch / "lib").mkdir(parents=True)
        (cls.torch / "version.py").write_text("cuda: Optional[str] = '13.2'\n")
        (cls.root / "torch-9.dist-info").mkdir()
        (cls.root / "torch-9.dist-info" / "METADATA").write_text("Requires-Dist: nvidia-nccl-cu13==2.30.7\n")
        cls.make_user()
        cls.make_extension()
        cls.where, cls.made = standins.make(cls.torch, LIBRARIES, SOURCES, cc=CC)

    @classmethod
    def make_extension(cls):
        """A package beside torch: an extension that needs a function of cuBLAS that PyTorch does not."""
        package = cls.root / "serving"
        package.mkdir()
        (package / "e.c").write_text("int cublasHgemm(), cublasOfOthers(); void *uses[] = { cublasHgemm };")
        cls.compile(package / "e.c", "-o", package / "_C.so", "-Wl,--no-as-needed", f"-L{cls.torch / 'lib'}",
                    "-l:libtorch_cuda.so", f"-Wl,-rpath,{cls.torch / 'lib'}", "-Wl,--allow-shlib-undefined")
        (package / "e.c").write_text("int cublasOfOthers(); void *uses[] = { cublasOfOthers };")
        cls.compile(package / "e.c", "-o", package / "apart.so")
        (package / "text.so").write_text("INPUT(_C.so)")

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def compile(cls, *args):
        subprocess.run([CC, "-shared", "-fPIC", "-w", *map(str, args)], check=True)

    @classmethod
    def make_user(cls):
        """torch/lib/libtorch_cuda.so, linked against libraries that are then thrown away."""
        real = cls.root / "real"
        real.mkdir()
        names = {"libcublas.so.13": "cublasCreate_v2 cublasDestroy_v2 cublasSetStream_v2 cublasGemmEx "
                                    "cublasGetNewThing cublasZaxpy_v2",
                 "libcublasLt.so.13": "cublasLtMatmulDescCreate", "libnvrtc.so.13": "nvrtcVersion",
                 "libcurand.so.10": "curandCreateGenerator",
                 "libcusolver.so.12": "cusolverDnSgetrf_bufferSize", "libnccl.so.2": "ncclCommInitRank ncclGetUniqueId"}
        for soname, functions in names.items():
            (real / "f.c").write_text("".join(f"void {name}() {{}}" for name in functions.split()))
            (real / "f.ver").write_text(f"{soname} {{ global: *; }};")
            versions = [] if "nccl" in soname else [f"-Wl,--version-script={real / 'f.ver'}"]
            cls.compile(real / "f.c", f"-Wl,-soname,{soname}", "-o", real / soname, *versions)
        (real / "uses.c").write_text(USES)
        cls.compile(real / "uses.c", "-o", cls.torch / "lib" / "libtorch_cuda.so",
                    "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../../nvidia/all/lib:$ORIGIN",
                    *(real / soname for soname in names), f"-L{LIBRARIES}", "-l:libcuda.so.1", "-l:libcudart.so.13")
        shutil.rmtree(real)

    def load(self, soname):
        return ctypes.CDLL(str(self.target / soname))

    def test_lie_where_they_are_looked_for(self):
        self.assertEqual(self.where, self.target.resolve())
        for name in (*self.made, "libcuda.so.1", "libcudart.so.13", "libnvidia-ml.so.1"):
            self.assertTrue((self.target / name).exists(), name)
        self.assertEqual(self.made["libcublas.so.13"], 7)

    def test_a_library_cannot_call_the_functions_that_another_has_for_itself(self):
        for library in self.target.glob("*.so*"):
            with self.subTest(library.name):
                symbols = subprocess.check_output(["nm", "-D", "--defined-only", library], text=True)
                self.assertNotIn(" standin_", symbols)

    def test_an_extension_finds_what_pytorch_does_not_need(self):
        code = "import ctypes, os, sys; ctypes.CDLL(sys.argv[1], os.RTLD_NOW)"
        subprocess.run([sys.executable, "-c", code, self.root / "serving" / "_C.so"], check=True)
        self.assertFalse(hasattr(self.load("libcublas.so.13"), "cublasOfOthers"))

    def test_a_program_gets_those_that_it_needs(self):
        folder = self.root / "of-program"
        made = standins.make_for_program(self.torch / "lib" / "libtorch_cuda.so", LIBRARIES, folder, SOURCES, cc=CC)
        self.assertEqual(made, dict(self.made, **{"libcublas.so.13": 6}))
        self.assertTrue((folder / "libcudart.so.13").exists())
        with self.assertRaisesRegex(standins.Failure, "no such file"):
            standins.make_for_program(self.root / "nothing", LIBRARIES, folder, SOURCES, cc=CC)
        with self.assertRaisesRegex(standins.Failure, "needs no library"):
            standins.make_for_program(folder / "libcuda.so.1", LIBRARIES, folder, SOURCES, cc=CC)

    def test_a_program_gets_those_that_it_opens(self):
        folder, program = self.root / "of-opener", self.root / "opener.so"
        source = self.root / "opener.c"
        source.write_text('const char *names[] = {"cublasCreate_v2", "cublasLtMatmul", "cudnnCreate", "no cublasAny"};')
        self.compile(source, "-o", program)
        names = ("libcublas.so.12", "libcublasLt.so.12", "libcudnn.so.9", "libcudart.so.12")
        made = standins.make_for_program(program, LIBRARIES, folder, SOURCES, cc=CC, opened=names)
        self.assertEqual(made, {"libcublas.so.12": 1, "libcublasLt.so.12": 1, "libcudnn.so.9": 1})
        self.assertTrue((folder / "libcudart.so.12").exists())
        cudnn = ctypes.CDLL(str(folder / "libcudnn.so.9"))
        self.assertTrue(cudnn.cudnnCreate)
        with self.assertRaisesRegex(standins.Failure, "libfoo.so.1: terrazzo has no stand-in"):
            standins.make_for_program(program, LIBRARIES, folder, SOURCES, cc=CC, opened=["libfoo.so.1"])

    def opened(self, soname, *functions):
        """The path of a stand-in for a program that looks these functions up."""
        folder, program, source = (self.root / f"of-{soname}{end}" for end in ("", ".so", ".c"))
        source.write_text("const char *names[] = {" + ", ".join(f'"{name}"' for name in functions) + "};")
        self.compile(source, "-o", program)
        standins.make_for_program(program, LIBRARIES, folder, SOURCES, cc=CC, opened=[soname, "libcudart.so.12"])
        return folder / soname

    def test_cudnn_tells_how_many_algorithms_there_are(self):
        cudnn = ctypes.CDLL(str(self.opened("libcudnn.so.8", "cudnnGetConvolutionForwardAlgorithmMaxCount",
                                            "cudnnFindConvolutionForwardAlgorithm")))
        count, found, results = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(8 * 48)
        self.assertEqual(cudnn.cudnnGetConvolutionForwardAlgorithmMaxCount(None, ctypes.byref(count)), 0)
        self.assertEqual(count.value, 8)
        self.assertEqual(cudnn.cudnnFindConvolutionForwardAlgorithm(None, None, None, None, None, count,
                                                                    ctypes.byref(found), results), 0)
        self.assertEqual(found.value, 1)

    def test_cudnn_copies_what_tensor_cores_cannot_read_as_it_lies(self):
        """A plan's workspace has room for 16-bit tensors whose channels lie apart; their descriptors may be gone."""
        cudnn = ctypes.CDLL(str(self.opened("libcudnn.so.9", "cudnnBackendCreateDescriptor", "cudnnBackendFinalize",
                                            "cudnnBackendDestroyDescriptor", "cudnnBackendSetAttribute",
                                            "cudnnBackendGetAttribute")))

        def descriptor(kind, **attributes):
            made = ctypes.c_void_p()
            self.assertEqual(cudnn.cudnnBackendCreateDescriptor(kind, ctypes.byref(made)), 0)
            for name, (form, values) in attributes.items():
                self.assertEqual(cudnn.cudnnBackendSetAttribute(made, int(name[1:]), form, ctypes.c_int64(len(values)),
                                                                values), 0)
            return made

        def numbers(*values):
            return 3, (ctypes.c_int64 * len(values))(*values)

        def others(*values):
            return 15, (ctypes.c_void_p * len(values))(*values)

        def tensor(element, sizes, strides):
            return descriptor(17, _901=(1, (ctypes.c_int * 1)(element)), _902=numbers(*sizes), _903=numbers(*strides))

        def workspace(element, sizes, strides, filters):
            """A forward convolution from `sizes` to as much, with filters of 3 x 3 in the same order."""
            last = strides[1] == 1
            width = filters[1]
            tensors = [tensor(element, sizes, strides), tensor(element, sizes, strides),
                       tensor(element, (*filters, 3, 3), (width * 9, 1, width * 3, width) if last else
                              (width * 9, 9, 3, 1))]
            operation = descriptor(10, _704=others(tensors[0]), _705=others(tensors[1]), _703=others(tensors[2]))
            for made in tensors:
                cudnn.cudnnBackendDestroyDescriptor(made)
            graph = descriptor(15, _801=others(operation))
            heuristics, configuration = descriptor(4, _201=others(graph)), descriptor(3)
            found, bytes_found = ctypes.c_int64(), ctypes.c_int64()
            cudnn.cudnnBackendGetAttribute(heuristics, 202, 15, ctypes.c_int64(1), ctypes.byref(found),
                                           others(configuration)[1])
            self.assertEqual(found.value, 1)
            plan = descriptor(5, _401=others(configuration))
            for made in (operation, graph, heuristics, configuration):
                cudnn.cudnnBackendDestroyDescriptor(made)
            self.assertEqual(cudnn.cudnnBackendGetAttribute(plan, 402, 3, ctypes.c_int64(1), ctypes.byref(found),
                                                            ctypes.byref(bytes_found)), 0)
            cudnn.cudnnBackendDestroyDescriptor(plan)
            return bytes_found.value

        sizes, by_planes, by_pixels = (2, 64, 512, 512), (64 << 18, 1 << 18, 512, 1), (64 << 18, 1, 64 << 9, 64)
        half, bfloat16, single, least = 2, 9, 0, 32 << 20
        copied = 2 * (2 * 64 * 512 * 512) * 2 + 64 * 64 * 9 * 2
        for element in half, bfloat16:
            self.assertEqual(workspace(element, sizes, by_planes, (64, 64)), copied)
            self.assertEqual(workspace(element, sizes, by_pixels, (64, 64)), least)
        self.assertEqual(workspace(single, sizes, by_planes, (64, 64)), least)
        self.assertEqual(workspace(half, sizes, by_planes, (64, 1)), least, "a filter for each channel")
        self.assertEqual(workspace(half, (2, 64, 8, 8), (64 * 64, 64, 8, 1), (64, 64)), least, "small tensors")

    def test_cufft_plans_have_work_areas(self):
        """A plan allocates its own, unless the program says that it brings one; it tells how large that is."""
        library = self.opened("libcufft.so.11", "cufftPlan1d", "cufftCreate", "cufftMakePlanMany", "cufftGetSize",
                              "cufftEstimate2d", "cufftSetAutoAllocation", "cufftSetWorkArea", "cufftExecC2C",
                              "cufftExecD2Z", "cufftDestroy")
        code = f"""
import ctypes
from ctypes import byref, c_int, c_size_t, c_void_p
runtime, cufft = ctypes.CDLL({str(library.with_name("libcudart.so.12"))!r}), ctypes.CDLL({str(library)!r})
C2C, D2Z = 0x29, 0x6a
a, area, free, total, size, plan = c_void_p(), c_void_p(), c_size_t(), c_size_t(), c_size_t(), c_int()
assert runtime.cudaMalloc(byref(a), c_size_t(2 << 20)) == 0
def taken():
    before = free.value
    assert runtime.cudaMemGetInfo(byref(free), byref(total)) == 0
    return before - free.value
taken()
assert cufft.cufftPlan1d(byref(plan), 1 << 20, C2C, 4) == 0 and taken() == 32 << 20
assert cufft.cufftGetSize(plan, byref(size)) == 0 and size.value == 32 << 20
assert cufft.cufftExecC2C(plan, a, a, -1) == 0
assert cufft.cufftDestroy(plan) == 0 and taken() == -32 << 20
assert cufft.cufftDestroy(plan) == 1 and cufft.cufftExecC2C(plan, a, a, -1) == 1
assert cufft.cufftEstimate2d(256, 64, D2Z, byref(size)) == 0 and size.value == 16 * 256 * 64
assert cufft.cufftCreate(byref(plan)) == 0 and cufft.cufftSetAutoAllocation(plan, 0) == 0
assert cufft.cufftMakePlanMany(plan, 2, (c_int * 2)(512, 256), None, 1, 0, None, 1, 0, D2Z, 3, byref(size)) == 0
assert size.value == 512 * 256 * 3 * 16 and taken() == 0
assert runtime.cudaMalloc(byref(area), size) == 0 and cufft.cufftSetWorkArea(plan, area) == 0
assert cufft.cufftExecD2Z(plan, a, a) == 0 and cufft.cufftDestroy(plan) == 0 and runtime.cudaFree(area) == 0
assert cufft.cufftPlan1d(byref(plan), 0, C2C, 1) == 4
assert cufft.cufftPlan1d(byref(plan), 1 << 30, C2C, 64) == 2
assert taken() == 0 and runtime.cudaDeviceSynchronize() == 0
"""
        subprocess.run([sys.executable, "-c", code], check=True)

    def run_program(self, library, code, **environment):
        """Runs a Python program that has `library` and `runtime`; returns its standard error."""
        head = f"""
import ctypes
from ctypes import byref, c_double, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p
runtime, library = ctypes.CDLL({str(library.with_name("libcudart.so.12"))!r}), ctypes.CDLL({str(library)!r})
free, total = c_size_t(), c_size_t()
def taken():
    before = free.value
    assert runtime.cudaMemGetInfo(byref(free), byref(total)) == 0
    return before - free.value
def is_(result, expected):
    assert result == expected, (result, expected)
"""
        done = subprocess.run([sys.executable, "-c", head + code], env=dict(os.environ, **environment),
                              stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr

    def test_cublas_contexts_take_memory(self):
        """As much as cuBLAS allocates for its workspace, or the program's environment says; none where the user has
        said how much programs have."""
        library = self.opened("libcublas.so.12", "cublasCreate_v2", "cublasDestroy_v2")
        code = """
handles = [c_void_p() for _ in range(300)]
assert runtime.cudaFree(None) == 0
taken()
for handle in handles:
    is_(library.cublasCreate_v2(byref(handle)), 0)
is_(taken(), {0} * 300)
for handle in handles:
    is_(library.cublasDestroy_v2(handle), 0)
is_(taken(), -{0} * 300)
is_(library.cublasDestroy_v2(handles[0]), 1)
is_(library.cublasDestroy_v2(None), 1)
is_(library.cublasCreate_v2(None), 7)
"""
        for device, config, kib in (("h100", None, 32768), ("l4", None, 10240), ("l4", ":4096:8", 32768),
                                    ("h100", ":2048:2:16:8", 6144), ("h100", ":0:0", 0)):
            with self.subTest(device=device, config=config):
                more = {"CUBLAS_WORKSPACE_CONFIG": config} if config else {}
                self.run_program(library, code.format(kib << 10), TERRAZZO_SIM_DEVICE=device, **more)
        self.run_program(library, code.format(0), TERRAZZO_SIM_MEMORY="1GiB")
        self.run_program(library, "is_(library.cublasCreate_v2(byref(c_void_p())), 3)", TERRAZZO_SIM_MEMORY="32MiB",
                         TERRAZZO_SIM_OVERHEAD="2MiB")

    def test_cublas_handles_keep_their_modes(self):
        names = ["cublasCreate_v2", "cublasDestroy_v2", "cublasSgemm_v2", "cublasSetWorkspace_v2",
                 "cublasGetVersion_v2", "cublasGetProperty", "cublasGetStatusName", "cublasSetVector",
                 "cublasGetMatrix", "cublasSgemm_v2_64"]
        names += [f"cublas{verb}{mode}" for verb in ("Get", "Set")
                  for mode in ("PointerMode_v2", "AtomicsMode", "MathMode", "SmCountTarget")]
        self.run_program(self.opened("libcublas.so.12", *names), """
handle, value, one, a = c_void_p(), c_int(-1), c_float(1), c_void_p()
is_(library.cublasCreate_v2(byref(handle)), 0)
assert runtime.cudaMalloc(byref(a), c_size_t(1 << 20)) == 0
for mode, to in (("PointerMode_v2", 1), ("AtomicsMode", 1), ("MathMode", 3), ("SmCountTarget", 20)):
    set_, get = getattr(library, "cublasSet" + mode), getattr(library, "cublasGet" + mode)
    is_((get(handle, byref(value)), value.value), (0, 0))
    is_((set_(handle, to), get(handle, byref(value)), value.value), (0, 0, to))
    is_((set_(handle, -1), set_(None, to), get(None, byref(value)), get(handle, None)), (7, 1, 1, 7))
is_(library.cublasSetPointerMode_v2(handle, 2), 7)
is_((library.cublasGetVersion_v2(handle, byref(value)), value.value), (0, 120901))
is_((library.cublasGetProperty(0, byref(value)), value.value), (0, 12))
library.cublasGetStatusName.restype = ctypes.c_char_p
is_(library.cublasGetStatusName(7), b"CUBLAS_STATUS_INVALID_VALUE")
is_(library.cublasSetWorkspace_v2(handle, a, c_size_t(1 << 20)), 0)
is_(library.cublasSetWorkspace_v2(handle, c_void_p(a.value + 8), c_size_t(1 << 19)), 7)
def multiply(handle, m, function=library.cublasSgemm_v2, number=c_int):
    n = number(8)
    return function(handle, 0, 0, number(m), n, n, byref(one), a, n, a, n, byref(one), a, n)
is_((multiply(handle, 8), multiply(handle, -8), multiply(None, 8)), (0, 7, 1))
is_(multiply(handle, -1 << 40, library.cublasSgemm_v2_64, c_int64), 7)
is_((library.cublasSetVector(-1, 4, a, 1, a, 1), library.cublasGetMatrix(1, 1, 4, a, 0, a, 1)), (7, 7))
is_((library.cublasDestroy_v2(handle), multiply(handle, 8)), (0, 1))
""")

    def test_cublas_grouped_products_are_work(self):
        text = self.run_program(self.opened("libcublas.so.12", "cublasCreate_v2", "cublasDestroy_v2", "cublasAlloc",
                                            "cublasGemmGroupedBatchedEx"), """
handle = c_void_p()
is_(library.cublasCreate_v2(byref(handle)), 0)
is_((library.cublasGemmGroupedBatchedEx(handle), library.cublasDestroy_v2(handle)), (0, 0))
is_(library.cublasGemmGroupedBatchedEx(handle), 1)
is_(library.cublasAlloc(1, 4, byref(handle)), 15)
""")
        self.assertIn("cublasAlloc is not simulated", text)

    def test_cublas_results_on_the_host_are_waited_for(self):
        """In the pointer mode of the device a result is work's; in the host's mode the call waits, and the result is 0,
        or the first index."""
        names = ["cublasCreate_v2", "cublasSetStream_v2", "cublasSetPointerMode_v2", "cublasSdot_v2", "cublasDznrm2_v2",
                 "cublasIsamax_v2", "cublasIsamax_v2_64", "cublasDotEx", "cublasSasum_v2"]
        code = """
handle, stream, a, host = c_void_p(), c_void_p(), c_void_p(), c_void_p()
assert runtime.cudaStreamCreateWithFlags(byref(stream), 1) == 0
assert runtime.cudaMalloc(byref(a), c_size_t(1 << 20)) == 0 and runtime.cudaMallocHost(byref(host), c_size_t(64)) == 0
is_((library.cublasCreate_v2(byref(handle)), library.cublasSetStream_v2(handle, stream)), (0, 0))
x, double, index, long, half = c_float(7), c_double(7), c_int(7), c_int64(-1), (ctypes.c_uint16 * 2)(7, 8)
is_((library.cublasSdot_v2(handle, 9, a, 1, a, 1, byref(x)), x.value), (0, 0))
is_((library.cublasDznrm2_v2(handle, 9, a, 1, byref(double)), double.value), (0, 0))
is_((library.cublasIsamax_v2(handle, 9, a, 1, byref(index)), index.value), (0, 1))
is_((library.cublasIsamax_v2_64(handle, c_int64(9), a, c_int64(1), byref(long)), long.value), (0, 1))
is_((library.cublasDotEx(handle, 9, a, 2, 1, a, 2, 1, half, 2, 0), list(half)), (0, [0, 8]))
is_(library.cublasSasum_v2(handle, 9, a, 1, None), 7)
assert runtime.cudaMemsetAsync(a, 0x11, c_size_t(64), stream) == 0
assert runtime.cudaMemcpyAsync(host, a, c_size_t(64), 2, stream) == 0
is_(library.cublasSasum_v2(handle, 9, a, 1, byref(x)), 0)
is_(ctypes.string_at(host, 64), b"\x11" * 64)
is_(library.cublasSetPointerMode_v2(handle, 1), 0)
assert runtime.cudaStreamBeginCapture(stream, 2) == 0
is_(library.cublasSasum_v2(handle, 9, a, 1, a), 0)
graph = c_void_p()
assert runtime.cudaStreamEndCapture(stream, byref(graph)) == 0
"""
        for work in ("now", "late"):
            with self.subTest(work), tempfile.TemporaryDirectory() as report:
                text = self.run_program(self.opened("libcublas.so.12", *names), code, TERRAZZO_SIM_WORK=work,
                                        TERRAZZO_SIM_REPORT=report)
                self.assertEqual(text.count("gives 0"), 1, text)

    def test_cufft_refuses_what_cufft_refuses(self):
        """The first call of the process may be cuFFT's, and so may that of a thread."""
        library = self.opened("libcufft.so.11", "cufftPlan1d", "cufftCreate", "cufftMakePlan1d", "cufftExecC2C",
                              "cufftXtExec", "cufftSetAutoAllocation", "cufftGetSize1d", "cufftGetVersion",
                              "cufftMakePlanMany64")
        self.run_program(library, """
import threading
plan, other, size, a, done = c_int(), c_int(), c_size_t(), c_void_p(), []
C2C = 0x29
is_(library.cufftPlan1d(byref(plan), 1024, C2C, 1), 0)
thread = threading.Thread(target=lambda: done.append(library.cufftPlan1d(byref(c_int()), 1024, C2C, 1)))
thread.start()
thread.join()
is_(done, [0])
assert runtime.cudaMalloc(byref(a), c_size_t(1 << 20)) == 0
is_((library.cufftExecC2C(plan, a, a, 1), library.cufftExecC2C(plan, a, a, 7), library.cufftXtExec(plan, a, a, 0)),
    (0, 4, 0))
is_((library.cufftExecC2C(plan, None, a, 1), library.cufftExecC2C(plan, a, None, 1)), (4, 4))
is_(library.cufftMakePlan1d(plan, 1024, C2C, 1, byref(size)), 1)
is_((library.cufftCreate(None), library.cufftCreate(byref(other)), library.cufftExecC2C(other, a, a, 1)), (4, 0, 1))
is_((library.cufftSetAutoAllocation(other, 0), library.cufftMakePlan1d(other, 64, 0x77, 1, byref(size))), (0, 3))
is_((library.cufftMakePlan1d(other, 64, C2C, -1, byref(size)), library.cufftGetSize1d(99, 64, C2C, 1, byref(size))),
    (4, 1))
huge = (c_int64 * 3)(1 << 31, 1 << 31, 1 << 31)
is_(library.cufftMakePlanMany64(other, 3, huge, None, c_int64(1), c_int64(0), None, c_int64(1), c_int64(0), C2C,
                                c_int64(1), byref(size)), 2)
is_((library.cufftMakePlan1d(other, 64, C2C, 1, byref(size)), library.cufftExecC2C(other, a, a, 1)), (0, 13))
is_((library.cufftGetVersion(byref(size)), size.value), (0, 11401))
""")

    def test_curand_refuses_what_curand_refuses(self):
        names = [f"curand{name}" for name in ("CreateGenerator", "DestroyGenerator", "GenerateNormal", "GetVersion",
                                              "GenerateUniform", "Generate", "GenerateLongLong", "GeneratePoisson",
                                              "SetQuasiRandomGeneratorDimensions", "SetPseudoRandomGeneratorSeed")]
        self.run_program(self.opened("libcurand.so.10", *names), """
generator, quasi, a, value = c_void_p(), c_void_p(), c_void_p(), c_int()
assert runtime.cudaMalloc(byref(a), c_size_t(1 << 20)) == 0
def count(n):
    return c_size_t(n)
zero, one = c_float(0), c_float(1)
is_((library.curandCreateGenerator(byref(generator), 7), library.curandCreateGenerator(None, 100)), (103, 104))
is_((library.curandCreateGenerator(byref(generator), 100), library.curandCreateGenerator(byref(quasi), 201)), (0, 0))
is_([library.curandGenerateNormal(generator, a, count(n), zero, one) for n in (6, 7)], [0, 105])
is_((library.curandGenerate(generator, a, count(7)), library.curandGenerateLongLong(generator, a, count(7))), (0, 103))
is_((library.curandSetPseudoRandomGeneratorSeed(generator, c_uint64(1)),
     library.curandSetPseudoRandomGeneratorSeed(quasi, c_uint64(1))), (0, 103))
is_([library.curandSetQuasiRandomGeneratorDimensions(quasi, n) for n in (0, 20001, 3)], [104, 104, 0])
is_(library.curandSetQuasiRandomGeneratorDimensions(generator, 3), 103)
is_([library.curandGenerateNormal(quasi, a, count(n), zero, one) for n in (6, 9, 10)], [0, 0, 105])
is_([library.curandGeneratePoisson(generator, a, count(5), c_double(x)) for x in (2, -1)], [0, 104])
is_((library.curandGetVersion(byref(value)), value.value), (0, 10400))
is_((library.curandDestroyGenerator(generator), library.curandDestroyGenerator(generator)), (0, 101))
is_([library.curandGenerateUniform(of, a, count(4)) for of in (generator, None)], [101, 101])
""")

    def test_cusolver_sizes_of_the_64_bit_interface(self):
        """They come later in the list of arguments than those of the interface for one type."""
        self.run_program(self.opened("libcusolver.so.11", "cusolverDnXgetrf_bufferSize", "cusolverDnXgesvd_bufferSize",
                                     "cusolverDnXsyevdx_bufferSize", "cusolverDnZgetrf_bufferSize",
                                     "cusolverDnXsyevjGetSweeps", "cusolverGetVersion"), """
device, host, elements, size = c_size_t(1), c_size_t(1), c_int(1), 2 << 20
for function, before in (("Xgetrf", 8), ("Xgesvd", 18), ("Xsyevdx", 17)):
    device.value = host.value = 1
    is_(getattr(library, f"cusolverDn{function}_bufferSize")(*[1] * before, byref(device), byref(host)), 0)
    is_((device.value, host.value), (size, size))
is_((library.cusolverDnZgetrf_bufferSize(*[1] * 5, byref(elements)), elements.value), (0, 1 << 18))
is_((library.cusolverDnXsyevjGetSweeps(1, 1, byref(elements)), elements.value), (0, 0))
is_((library.cusolverGetVersion(byref(elements)), elements.value), (0, 11705))
""")

    def test_cusparse_objects_say_what_work_uses(self):
        names = [f"cusparse{name}" for name in (
            "Create", "SetStream", "CreateCsr", "CreateSpVec", "CreateConstDnVec", "CreateBlockedEll", "SpMatGetSize",
            "CsrGet", "SpMatSetValues", "SpMatGetValues", "DnVecGet", "DestroySpMat", "SpMV", "SpMV_bufferSize", "SpVV",
            "SetPointerMode", "GetPointerMode", "CreateMatDescr", "SetMatType", "GetMatType", "Xcsrilu02_zeroPivot",
            "Snnz", "SpMatSetAttribute", "SpMatGetAttribute", "GetErrorName", "GetVersion")]
        code = """
import sys
handle, stream, other, a = c_void_p(), c_void_p(), c_void_p(), c_void_p()
assert runtime.cudaStreamCreateWithFlags(byref(stream), 1) == 0
assert runtime.cudaStreamCreateWithFlags(byref(other), 1) == 0
assert runtime.cudaMalloc(byref(a), c_size_t(8 << 20)) == 0
def at(mib):
    return c_void_p(a.value + (mib << 20))
is_((library.cusparseCreate(byref(handle)), library.cusparseSetStream(handle, stream)), (0, 0))
matrix, vector, sparse, ell, traits, x = [c_void_p() for _ in range(6)]
n, m, k, value = c_int64(0), c_int64(0), c_int64(0), c_int(7)
is_(library.cusparseCreateCsr(byref(matrix), c_int64(-1), c_int64(1), c_int64(1), a, a, a, 2, 2, 0, 0), 3)
is_(library.cusparseCreateCsr(byref(matrix), c_int64(10), c_int64(20), c_int64(30), at(0), at(1), at(2), 2, 3, 1, 0), 0)
is_((library.cusparseSpMatGetSize(matrix, byref(n), byref(m), byref(k)), n.value, m.value, k.value), (0, 10, 20, 30))
is_((library.cusparseSpMatSetValues(matrix, at(3)), library.cusparseSpMatGetValues(matrix, byref(x)), x.value),
    (0, 0, at(3).value))
parts, types = [c_void_p() for _ in range(3)], [c_int() for _ in range(4)]
is_(library.cusparseCsrGet(matrix, byref(n), byref(m), byref(k), *map(byref, parts), *map(byref, types)), 0)
is_(([part.value or 0 for part in parts], [type.value for type in types]),
    ([at(i).value for i in (0, 1, 3)], [2, 3, 1, 0]))
is_((library.cusparseCreateConstDnVec(byref(vector), c_int64(20), at(4), 1),
     library.cusparseDnVecGet(vector, byref(n), byref(x), byref(value)), n.value, x.value, value.value),
    (0, 0, 20, at(4).value, 1))
is_(library.cusparseCreateSpVec(byref(sparse), c_int64(20), c_int64(5), at(5), at(6), 2, 0, 0), 0)
is_(library.cusparseCreateBlockedEll(byref(ell), c_int64(8), c_int64(8), c_int64(2), c_int64(4), a, a, 2, 0, 0), 0)
value.value = 1
is_(library.cusparseSpMatSetAttribute(matrix, 0, byref(value), c_size_t(4)), 0)
is_((library.cusparseSpMatGetAttribute(matrix, 0, byref(value), c_size_t(4)), value.value), (0, 1))
is_((library.cusparseCreateMatDescr(byref(traits)), library.cusparseSetMatType(traits, 3),
     library.cusparseSetMatType(traits, 4), library.cusparseGetMatType(traits)), (0, 0, 3, 3))
result, size = c_float(7), c_size_t()
is_((library.cusparseSpVV(handle, 0, sparse, vector, byref(result), 0, None), result.value), (0, 0))
is_((library.cusparseXcsrilu02_zeroPivot(handle, 1, byref(value)), value.value), (0, -1))
is_((library.cusparseSnnz(handle, 0, 2, 2, traits, a, 2, a, byref(value)), value.value), (0, 0))
is_((library.cusparseSetPointerMode(handle, 1), library.cusparseGetPointerMode(handle, byref(value)), value.value),
    (0, 0, 1))
is_((library.cusparseGetVersion(handle, byref(value)), value.value), (0, 12702))
library.cusparseGetErrorName.restype = ctypes.c_char_p
is_(library.cusparseGetErrorName(9), b"CUSPARSE_STATUS_ZERO_PIVOT")
one = byref(c_float(1))
is_((library.cusparseSpMV_bufferSize(handle, 0, one, matrix, vector, one, vector, 0, 0, byref(size)), size.value),
    (0, 1 << 20))
is_(library.cusparseSpMV(handle, 0, one, matrix, vector, one, vector, 0, 0, at(7)), 0)
assert runtime.cudaMemsetAsync(at(int(sys.argv[1])), 1, c_size_t(64), other) == 0
assert runtime.cudaStreamSynchronize(other) == 0 and runtime.cudaDeviceSynchronize() == 0
is_(library.cusparseDestroySpMat(matrix), 0)
"""
        library = self.opened("libcusparse.so.12", *names)
        late = dict(TERRAZZO_SIM_WORK="blocked", TERRAZZO_SIM_SCHEDULE="lifo", TERRAZZO_SIM_VIOLATIONS="count")
        self.assertNotIn("race", self.run_program(library, code.replace("int(sys.argv[1])", "6"), **late))
        for part in (0, 1, 3, 4, 7):
            with self.subTest(part):
                self.assertIn("race", self.run_program(library, code.replace("int(sys.argv[1])", str(part)), **late))

    def test_nccl_refuses_what_nccl_refuses(self):
        names = """GetUniqueId GetVersion CommInitRank CommCount CommUserRank CommCuDevice CommGetAsyncError AllReduce
            GroupEnd RedOpCreatePreMulSum RedOpDestroy MemAlloc MemFree CommSplit CommFinalize CommDestroy CommAbort
            CommRegister"""
        self.run_program(self.opened("libnccl.so.2", *(f"nccl{name}" for name in names.split())), """
class Id(ctypes.Structure):
    _fields_ = [("x", ctypes.c_char * 128)]
comm, id, value, a, op, two = c_void_p(), Id(), c_int(), c_void_p(), c_int(), c_float(2)
assert runtime.cudaMalloc(byref(a), c_size_t(1 << 20)) == 0
def reduce(op, comm, type=7, of=a):
    return library.ncclAllReduce(of, a, c_size_t(10), type, op, comm, None)
is_((library.ncclGetUniqueId(None), library.ncclGetVersion(None), library.ncclCommInitRank(None, 1, id, 0)), (4, 4, 4))
is_((library.ncclCommInitRank(byref(comm), 0, id, 0), library.ncclCommInitRank(byref(comm), 1, id, 0)), (4, 0))
for name in ("Count", "UserRank", "CuDevice", "GetAsyncError"):
    ask = getattr(library, "ncclComm" + name)
    is_((ask(comm, byref(value)), ask(comm, None), ask(None, byref(value))), (0, 4, 4))
is_((reduce(0, comm), reduce(4, comm), reduce(5, comm), reduce(-1, comm), reduce(0, None), reduce(0, comm, 99)),
    (0, 0, 4, 4, 4, 4))
create, destroy = library.ncclRedOpCreatePreMulSum, library.ncclRedOpDestroy
is_((create(byref(op), byref(two), 99, 1, comm), create(None, byref(two), 7, 1, comm)), (4, 4))
is_((create(byref(op), byref(two), 7, 1, comm), reduce(op, comm), destroy(op, comm), reduce(op, comm)), (0, 0, 0, 4))
is_((destroy(op, comm), destroy(0, comm), destroy(op, None)), (4, 4, 4))
is_((library.ncclMemAlloc(None, c_size_t(1)), library.ncclMemFree(None), library.ncclGroupEnd()), (4, 0, 5))
is_(library.ncclCommSplit(None, 0, 0, byref(a), None), 4)
is_(library.ncclCommRegister(None, a, c_size_t(1), byref(a)), 4)
is_([end(None) for end in (library.ncclCommFinalize, library.ncclCommDestroy, library.ncclCommAbort)], [0, 0, 0])
is_(library.ncclCommDestroy(comm), 0)
""")

    def test_cusparselt_tells_how_large_a_compressed_matrix_is(self):
        """Half of the elements, and two bits for each that is kept; products find an algorithm and no workspace."""
        cusparselt = ctypes.CDLL(str(self.opened("libcusparseLt.so.0", "cusparseLtStructuredDescriptorInit",
                                                 "cusparseLtSpMMACompressedSize2", "cusparseLtMatmulGetWorkspace",
                                                 "cusparseLtMatmulAlgGetAttribute")))
        matrix, size, buffer = ctypes.create_string_buffer(512), ctypes.c_size_t(), ctypes.c_size_t(1)
        for kind, size_of_one, sixteenths in ((2, 2, 9), (14, 2, 9), (0, 4, 9), (3, 1, 10), (28, 1, 10)):
            self.assertEqual(cusparselt.cusparseLtStructuredDescriptorInit(
                None, matrix, ctypes.c_int64(128), ctypes.c_int64(64), ctypes.c_int64(64), 16, kind, 1, 0), 0)
            self.assertEqual(cusparselt.cusparseLtSpMMACompressedSize2(None, matrix, ctypes.byref(size),
                                                                       ctypes.byref(buffer)), 0)
            self.assertEqual((size.value, buffer.value), (128 * 64 * size_of_one * sixteenths // 16, 0))
        workspace, attribute = ctypes.c_size_t(1), ctypes.c_int(1)
        self.assertEqual(cusparselt.cusparseLtMatmulGetWorkspace(None, None, ctypes.byref(workspace)), 0)
        self.assertEqual(cusparselt.cusparseLtMatmulAlgGetAttribute(None, None, 1, ctypes.byref(attribute),
                                                                    ctypes.c_size_t(4)), 0)
        self.assertEqual((workspace.value, attribute.value), (0, 0))

    def test_cublas_copies_rows_and_columns(self):
        code = f"""
import ctypes, os
os.environ["TERRAZZO_SIM_SCALARS"] = "real"
runtime = ctypes.CDLL({str(self.target / "libcudart.so.13")!r})
cublas = ctypes.CDLL({str(self.target / "libcublas.so.13")!r})
p, size = ctypes.c_void_p(), ctypes.c_size_t
assert runtime.cudaMalloc(ctypes.byref(p), size(4096)) == 0
data, back = bytes(range(120)), ctypes.create_string_buffer(120)
assert cublas.cublasSetVector(10, 4, data, 3, p, 2) == 0
assert cublas.cublasGetVector(10, 4, p, 2, back, 1) == 0
assert back.raw[:40] == b"".join(data[12 * i:12 * i + 4] for i in range(10))
assert cublas.cublasSetMatrix(3, 5, 4, data, 6, p, 4) == 0
long = ctypes.c_int64
assert cublas.cublasGetMatrix_64(long(3), long(5), long(4), p, long(4), back, long(3)) == 0
assert back.raw[:60] == b"".join(data[24 * i:24 * i + 12] for i in range(5))
assert cublas.cublasSetVector(10, 4, data, 1, None, 1) != 0
"""
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_a_product_without_terms_uses_no_factors(self):
        code = f"""
import ctypes, sys
from ctypes import byref, c_size_t, c_void_p
runtime = ctypes.CDLL({str(self.target / "libcudart.so.13")!r})
cublas = ctypes.CDLL({str(self.target / "libcublas.so.13")!r})
first, second, a, handle, one = c_void_p(), c_void_p(), c_void_p(), c_void_p(), ctypes.c_float(1)
for stream in (first, second):
    assert runtime.cudaStreamCreateWithFlags(byref(stream), 1) == 0
assert runtime.cudaMalloc(byref(a), c_size_t(3 << 20)) == 0
assert cublas.cublasCreate_v2(byref(handle)) == 0 and cublas.cublasSetStream_v2(handle, first) == 0
m, n, k = map(int, sys.argv[1:])
b, c = c_void_p(a.value + (1 << 20)), c_void_p(a.value + (2 << 20))
assert cublas.cublasGemmEx(handle, 0, 0, m, n, k, byref(one), a, 0, 8, b, 0, 8, byref(one), c, 0, 8, 0, 0) == 0
assert runtime.cudaMemsetAsync(a if k == 0 else c, 1, c_size_t(1024), second) == 0
assert runtime.cudaStreamSynchronize(second) == 0 and runtime.cudaDeviceSynchronize() == 0
"""
        late = dict(os.environ, TERRAZZO_SIM_WORK="late", TERRAZZO_SIM_SCHEDULE="starve",
                    TERRAZZO_SIM_VIOLATIONS="count")
        for sizes, races in (((8, 8, 8), True), ((8, 8, 0), False), ((0, 8, 8), False)):
            with self.subTest(sizes):
                done = subprocess.run([sys.executable, "-c", code, *map(str, sizes)], env=late, capture_output=True,
                                      text=True, check=True)
                self.assertEqual("race" in done.stderr, races, done.stderr)

    def test_a_thread_without_a_context_gets_one(self):
        """As by the runtime, which the libraries use: its first call of CUDA may be a library's."""
        code = f"""
import ctypes, threading
from ctypes import byref, c_size_t, c_void_p
runtime = ctypes.CDLL({str(self.target / "libcudart.so.13")!r})
cublas = ctypes.CDLL({str(self.target / "libcublas.so.13")!r})
driver = ctypes.CDLL({str(self.target / "libcuda.so.1")!r})
a, handle, one, done = c_void_p(), c_void_p(), ctypes.c_float(1), []
assert runtime.cudaMalloc(byref(a), c_size_t(1 << 20)) == 0 and cublas.cublasCreate_v2(byref(handle)) == 0
def context():
    got = c_void_p()
    assert driver.cuCtxGetCurrent(byref(got)) == 0
    return got.value
def multiply():
    done.append(context() is None)
    done.append(cublas.cublasGemmEx(handle, 0, 0, 8, 8, 8, byref(one), a, 0, 8, a, 0, 8, byref(one), a, 0, 8, 0, 0))
    done.append(context())
thread = threading.Thread(target=multiply)
thread.start()
thread.join()
assert done == [True, 0, context()], done
"""
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_the_user_loads_with_its_versions(self):
        subprocess.run([sys.executable, "-c", "import ctypes, os, sys; ctypes.CDLL(sys.argv[1], os.RTLD_NOW)",
                        self.torch / "lib" / "libtorch_cuda.so"], check=True)

    def test_body(self):
        library, handle = self.load("libcublas.so.13"), ctypes.c_void_p()
        self.assertEqual(library.cublasCreate_v2(ctypes.byref(handle)), 0)
        self.assertTrue(handle.value)
        self.assertEqual(library.cublasDestroy_v2(handle), 0)

    def test_a_generator_for_the_host_fills(self):
        library, generator = self.load("libcurand.so.10"), ctypes.c_void_p()
        numbers = (ctypes.c_float * 5)(1, 2, 3, 4, 5)
        self.assertEqual(library.curandCreateGeneratorHost(ctypes.byref(generator), 100), 0)
        self.assertEqual(library.curandSetStream(generator, None), 0)
        self.assertEqual(library.curandGenerateUniform(generator, numbers, ctypes.c_size_t(4)), 0)
        self.assertEqual(list(numbers), [0, 0, 0, 0, 5])
        self.assertEqual(library.curandDestroyGenerator(generator), 0)

    def test_size_is_told(self):
        size = ctypes.c_int(-1)
        zero = ctypes.c_void_p()
        self.load("libcusolver.so.12").cusolverDnSgetrf_bufferSize(zero, zero, zero, zero, zero, ctypes.byref(size))
        self.assertEqual(size.value, 262144)

    def told(self, code):
        """Standard error of a Python program that has `nccl` and `cublas`."""
        head = "import ctypes\n" + "".join(
            f"{name} = ctypes.CDLL({str(self.target / soname)!r})\n"
            for name, soname in (("nccl", "libnccl.so.2"), ("cublas", "libcublas.so.13")))
        done = subprocess.run([sys.executable, "-c", head + code], stderr=subprocess.PIPE, text=True, check=True)
        return done.stderr

    def test_what_is_not_known_is_refused_by_name_once(self):
        text = self.told("assert cublas.cublasGetNewThing() == 15\nassert cublas.cublasGetNewThing() == 15")
        self.assertEqual(text.count("terrazzo: cublasGetNewThing is not simulated"), 1)

    def test_a_rank_beyond_the_last_is_refused(self):
        code = ("class Id(ctypes.Structure): _fields_ = [('x', ctypes.c_char * 128)]\n"
                "c = ctypes.c_void_p()\n"
                "assert nccl.ncclCommInitRank(ctypes.byref(c), {0}, Id(), {1}) == {2}\n")
        self.assertEqual(self.told(code.format(1, 0, 0)), "")
        self.assertEqual(self.told(code.format(2, 2, 4)), "")

    def test_version_comes_from_the_requirements(self):
        version = ctypes.c_int()
        self.load("libnccl.so.2").ncclGetVersion(ctypes.byref(version))
        self.assertEqual(version.value, 23007)

    def test_requirements_of_older_wheels_stand_in_parentheses(self):
        """PyTorch 2.6 compares cuDNN's version with the one it was built for, and refuses another."""
        with tempfile.TemporaryDirectory() as folder:
            torch = Path(folder) / "torch"
            torch.mkdir()
            (torch / "version.py").write_text("cuda: Optional[str] = '12.4'\n")
            (torch.parent / "torch-2.6.0.dist-info").mkdir()
            (torch.parent / "torch-2.6.0.dist-info" / "METADATA").write_text(
                'X-Terrazzo-Left-Out: nvidia-cudnn-cu12 (==9.1.0.70) ; platform_system == "Linux"\n')
            self.assertEqual(standins.read_versions(torch), {"": (12, 4, 0), "libcudnn": (9, 1, 0)})

    def test_what_the_process_points_into_is_not_unloaded(self):
        """PyTorch 2.6 and 2.7 close NVRTC at their end; the environment has a string of the stand-in then."""
        code = ("import ctypes, _ctypes, sys; library = ctypes.CDLL(sys.argv[1]); c = ctypes.CDLL(None)\n"
                "c.getenv.restype = ctypes.c_char_p; _ctypes.dlclose(library._handle)\n"
                "assert c.getenv(b'USE_PYTORCH_KERNEL_CACHE') == b'0'")
        subprocess.run([sys.executable, "-c", code, self.target / "libnvrtc.so.13"], check=True)

    def test_a_second_time_changes_nothing(self):
        self.assertEqual(standins.make(self.torch, LIBRARIES, SOURCES, cc=CC), (self.where, self.made))


def prototypes(header):
    """(name, parameters) of each function, without floats that are passed by value."""
    text = re.sub(r"/\*.*?\*/", "", re.sub(r"//.*", "", header.read_text()), flags=re.S)
    for name, parameters in re.findall(r"\b(cu(?:sparse|solver)\w+)\s*\(([^;{()]*?)\)[^;{]*;", text):
        each = [" ".join(parameter.split()) for parameter in parameters.split(",")]
        yield name, [one for one in each if not re.match(r"(float|double|cuComplex|cuDoubleComplex)( \w+)?$", one)]


class Rows(unittest.TestCase):
    HEADERS = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"

    @unittest.skipUnless((HEADERS / "cusolverDn.h").exists(), "no headers of cuSOLVER")
    def test_sizes_lie_where_the_headers_say(self):
        rows, seen = standins.read_rows(SOURCES / "functions.txt"), 0
        for header in ("cusparse.h", "cusolverDn.h"):
            for name, parameters in prototypes(self.HEADERS / header):
                row = next((row for row in rows if fnmatch.fnmatchcase(name, row[1])), None)
                if not re.search("(?i)buffersize", name) or not row:
                    continue
                places = [[i] for i, one in enumerate(parameters) if re.match(r"(size_t|int) ?\* ?\w*(size|work)\w*$",
                                                                             one, re.I)]
                with self.subTest(name):
                    self.assertEqual(row[2], places, parameters)
                    self.assertEqual(row[3], parameters[places[0][0]].replace("*", " ").split()[0])
                seen += 1
        self.assertGreater(seen, 200)


class Refusals(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.torch = Path(folder.name) / "torch"
        (self.torch / "lib").mkdir(parents=True)

    def refused(self):
        with self.assertRaises(standins.Failure) as caught:
            standins.make(self.torch, LIBRARIES, SOURCES, cc=CC)
        return str(caught.exception)

    def library(self, *args):
        source = self.torch / "x.c"
        source.write_text("int x;")
        subprocess.run([CC, "-shared", "-fPIC", source, "-o", self.torch / "lib" / "libx.so", *args], check=True)

    def test_no_libraries(self):
        self.assertIn("no shared library", self.refused())

    def test_no_cuda(self):
        self.library()
        self.assertIn("needs no CUDA library", self.refused())

    def test_not_elf(self):
        (self.torch / "lib" / "libx.so").write_text("text")
        self.assertIn("cannot be read as an ELF file", self.refused())

    def test_unknown_library(self):
        other = self.torch / "libcunew.so.1"
        subprocess.run([CC, "-shared", "-o", other, "-Wl,-soname,libcunew.so.1", "-xc", os.devnull], check=True)
        self.library("-Wl,--no-as-needed", str(other))
        self.assertIn("libcunew.so.1, which libx.so needs", self.refused())

    def test_no_compiler(self):
        with self.assertRaises(standins.Failure) as caught:
            standins.Compiler("no-such-compiler", self.torch, self.torch, {}).run("-v")
        self.assertIn("no-such-compiler: no C compiler", str(caught.exception))

    def test_a_compiler_of_several_words(self):
        standins.Compiler(f"env {CC}", self.torch, self.torch, {}).run("--version")


if __name__ == "__main__":
    sys.exit(unittest.main())
