# SPDX-License-Identifier: Apache-2.0
"""Every function of the driver that a toolkit has ever named is there, by the linker and by cuGetProcAddress: it does
what it does, or refuses by name."""
import os
import re
import subprocess
import unittest
from pathlib import Path

from lookalike_process import skip_if_unfit, succeed

SOURCES = Path(os.environ["TRZ_SOURCE_DIR"])
NAMES = Path(__file__).with_name("driver_names.txt")
TOOLKITS = [Path(folder) for folder in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
            if folder]
GRAPHICS = re.compile("GL|VDPAU")

BY_THE_LINKER = """
lost = [name for name in names if not hasattr(driver, name)]
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


def listed():
    """{name: versions of its forms}"""
    lines = [line.split() for line in NAMES.read_text().splitlines() if not line.startswith("#")]
    return {name: [int(version) for version in versions] for name, *versions in lines}


def of_toolkits():
    """{name: versions} of what is installed here."""
    found = {}
    for toolkit in TOOLKITS:
        for header in (toolkit / "include" / "cudaTypedefs.h", toolkit / "include" / "cudaProfilerTypedefs.h"):
            text = header.read_text() if header.exists() else ""
            for name, version in re.findall(r"PFN_(cu\w+?)_v(\d+)\)", text):
                found.setdefault(name, set()).add(int(version))
        for stub in (toolkit / "lib64" / "stubs" / "libcuda.so", toolkit / "lib" / "stubs" / "libcuda.so"):
            if stub.exists():
                lines = subprocess.run(["nm", "-D", "--defined-only", stub], stdout=subprocess.PIPE, text=True,
                                       check=True).stdout.splitlines()
                for name in (line.split()[-1].split("@")[0] for line in lines):
                    found.setdefault(name, set())
    return {name: versions for name, versions in found.items() if name.startswith("cu") and not GRAPHICS.search(name)}


class Names(unittest.TestCase):
    def test_the_linker_finds_each(self):
        succeed(self, f"names = {listed()!r}\n" + BY_THE_LINKER)

    def test_each_form_is_found_by_name_and_version(self):
        rows = (SOURCES / "lookalike" / "driver" / "driver_missing.def").read_text()
        refused = set(re.findall(r"^X\(\w+, (\w+)\)", rows, re.M))
        succeed(self, f"names = {listed()!r}\nrefused = {refused!r}\n" + BY_NAME)

    def test_forms_of_old_callers_work(self):
        succeed(self, OF_OLD_CALLERS, scalars="real")

    def test_the_list_has_what_is_installed(self):
        known, new = listed(), {}
        for name, versions in of_toolkits().items():
            more = sorted(versions - set(known.get(name, ())))
            if name not in known or more:
                new[name] = more
        self.assertEqual(new, {}, f"to be added to {NAMES.name}, and to the driver's look-alike")


if __name__ == "__main__":
    skip_if_unfit()
    unittest.main()
