# SPDX-License-Identifier: Apache-2.0
"""The machine behind the look-alike libraries: its environment, its report, processes that share it, NVML."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from lookalike_process import PREAMBLE, environment, run, skip_if_unfit, succeed

NVML = r'''
nvml = ctypes.CDLL("libnvidia-ml.so.1")
class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("bytes", c_uint64), ("gpu", ctypes.c_uint), ("compute", ctypes.c_uint)]
class Memory(ctypes.Structure):
    _fields_ = [("total", c_uint64), ("free", c_uint64), ("used", c_uint64)]
must(nvml.nvmlInit_v2())
device = c_void_p()
must(nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(device)))
def processes():
    room, found = ctypes.c_uint(16), (Process * 16)()
    must(nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, byref(room), found))
    return {found[i].pid: found[i].bytes for i in range(room.value)}
'''

# What cuInit says, and the numbers of the devices that are then there, in the process's order, by UUID and by bus.
# NVML, which is asked before, has all of them.
VISIBLE = """
import ctypes, os
from ctypes import byref, c_int
driver, nvml, all = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_uint()
assert nvml.nvmlInit_v2() == 0
if os.fork() == 0:  # NVML is no reason why a child could not use CUDA
    assert driver.cuInit(0) in (0, 100)
    os._exit(0)
assert os.wait()[1] == 0
result, count, uuid, bus = driver.cuInit(0), c_int(), ctypes.create_string_buffer(16), ctypes.create_string_buffer(16)
assert driver.cuDeviceGetCount(byref(count)) == (0 if result == 0 else 3)
found, back = [], c_int()
for i in range(count.value):
    assert driver.cuDeviceGetUuid_v2(uuid, i) == driver.cuDeviceGetPCIBusId(bus, 16, i) == 0
    assert driver.cuDeviceGetByPCIBusId(byref(back), bus) == 0 and back.value == i
    assert uuid.raw[15] + 1 == int(bus.value[5:7], 16)
    found.append(uuid.raw[15])
assert driver.cuDeviceGet(byref(back), count.value) != 0
assert nvml.nvmlDeviceGetCount_v2(byref(all)) == 0 and all.value == 4
print(result, found)
"""
UUID = "GPU-74657272-617a-7a6f-2073-696d206770%02x"


def visible(devices):
    return {**environment(devices=4, memory="1GiB"), "CUDA_VISIBLE_DEVICES": devices}


class Machine(unittest.TestCase):
    def test_visible_devices(self):
        for devices, found in (("0", [0]), ("2,1", [2, 1]), (" 3 ,0", [3, 0]), ("1st,2nd", [1, 2]),
                               ("0,2,-1,1", [0, 2]), ("0,4,1", [0]), ("1,x,2", [1]), ("0,1,0", []), ("", []),
                               ("-1", []), ("4", []), ("NoDevFiles", []), (UUID % 2, [2]), ("GPU-7465", []),
                               (f"{UUID % 3},{UUID % 0},GPU-0,{UUID % 1}", [3, 0]), (f"{UUID % 1},2", [1])):
            with self.subTest(devices):
                done = subprocess.run([sys.executable, "-c", VISIBLE], env=visible(devices), capture_output=True,
                                      text=True, check=False)
                self.assertEqual(done.stdout.strip(), f"{0 if found else 100} {found}", done.stderr)
                missing = devices in ("4", "0,4,1", "GPU-7465", UUID % 1 + ",2") or "GPU-0" in devices
                self.assertEqual("names none of the 4 devices" in done.stderr, missing, done.stderr)

    def test_hidden_devices_are_others_own(self):
        """Two processes each take most of their device 0; NVML sees both devices, and memory can be passed on."""
        child = PREAMBLE + """
p, handle = c_void_p(), ctypes.create_string_buffer(bytes.fromhex(sys.argv[1]), 64)
class Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * 64)]
malloc(900 * MIB)
must(runtime.cudaIpcOpenMemHandle(byref(p), Handle.from_buffer(handle), 1))
assert download(p.value, 4) == b"here"
free, total = c_size_t(), c_size_t()
must(runtime.cudaMemGetInfo(byref(free), byref(total)))
assert total.value - free.value == 900 * MIB, free.value
"""
        program = PREAMBLE + NVML + f"""
import subprocess
class Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * 64)]
p, handle = malloc(800 * MIB), Handle()
upload(p, b"here")
must(runtime.cudaIpcGetMemHandle(byref(handle), c_void_p(p)))
shared = {{**os.environ, "TERRAZZO_SIM_MACHINE_FD": f"{{os.getpid()}}:{{driver.trz_lookalike_machine_fd()}}"}}
subprocess.run([sys.executable, "-c", {child!r}, bytes(handle).hex()], check=True,
               env={{**shared, "CUDA_VISIBLE_DEVICES": "1", "TERRAZZO_SIM_DEVICES": "2"}})  # the machine has four
used = []
for number in range(4):
    memory = Memory()
    must(nvml.nvmlDeviceGetHandleByIndex_v2(number, byref(device)))
    must(nvml.nvmlDeviceGetMemoryInfo(device, byref(memory)))
    used.append(memory.used // MIB)
assert used == [0, 0, 0, 800], used
"""
        done = subprocess.run([sys.executable, "-c", program], env={**visible("3"), "TERRAZZO_SIM_SCALARS": "real"},
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_thread_that_asks_for_an_event_gets_no_context(self):
        succeed(self, """
import threading
def first_device_is_in_use():
    flags, active = c_int(), c_int()
    must(driver.cuDevicePrimaryCtxGetState(0, byref(flags), byref(active)))
    return active.value

def elsewhere(call, argument):
    results = []
    thread = threading.Thread(target=lambda: results.append(call(argument)))
    thread.start()
    thread.join()
    assert results == [0], results

must(runtime.cudaDeviceReset())
must(runtime.cudaSetDevice(1))
event = c_void_p()
must(runtime.cudaEventCreate(byref(event)))
must(runtime.cudaEventRecord(event, None))
assert not first_device_is_in_use()
elsewhere(runtime.cudaEventQuery, event)
assert not first_device_is_in_use()
elsewhere(runtime.cudaFree, None)
assert first_device_is_in_use()
""", devices=2)

    def test_profiles(self):
        program = """
name, bytes, major = ctypes.create_string_buffer(100), c_size_t(), c_int()
must(driver.cuDeviceGetName(name, 100, 0))
must(driver.cuDeviceTotalMem_v2(byref(bytes), 0))
must(driver.cuDeviceGetAttribute(byref(major), 75, 0))
free, total = c_size_t(), c_size_t()
must(runtime.cudaMemGetInfo(byref(free), byref(total)))
print(name.value.decode(), bytes.value, major.value, total.value - free.value, sep="|")
"""
        name, total, major, overhead = succeed(self, program, device="l4").stdout.strip().split("|")
        self.assertEqual((name, major), ("NVIDIA L4", "8"))
        self.assertTrue(21 << 30 < int(total) < 24 << 30)
        self.assertGreater(int(overhead), 0)
        done = succeed(self, program, device="L4", memory="40GiB")
        self.assertEqual(done.stdout.strip(), f"NVIDIA L4|{40 << 30}|8|0")
        done = succeed(self, program, memory="1.5g", overhead="100MiB")
        self.assertEqual(done.stdout.strip().split("|")[1::2], [str(3 << 29), str(100 << 20)])

    def test_wrong_settings_end_the_program(self):
        for variable, value, words in (("device", "h1000", "h100"), ("memory", "many", "size"),
                                       ("memory", "4GiX", "size"), ("memory", "40 ", "size"),
                                       ("memory", "40 B", "size"), ("memory", "0", "2MiB"), ("memory", "1", "2MiB"),
                                       ("memory", "5TiB", "4TiB"), ("overhead", "0.5", "size"),
                                       ("collective_bytes", "1 MiB", "size"), ("collective_bytes", "all", "size"),
                                       ("timeout", "soon", "1000000"), ("driver_version", "new", "99999"),
                                       ("devices", "17", "number"), ("work", "never", "now|late"),
                                       ("seed", "x", "number"), ("seed", " -1", "number"),
                                       ("schedule", "lifofo", "starve"),
                                       ("violations", "no", "count"), ("scalars", "one", "computed|zero|real"),
                                       ("kernel_ns", "-1", "number"), ("costs", "no-such-table", "no-such-table"),
                                       ("machine_fd", "999", "999"), ("machine_fd", "1:x", "PID:FD"),
                                       ("machine_fd", "999999999:3", "cannot be reached")):
            with self.subTest(variable, value=value):
                done = run("", **{variable: value})
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("terrazzo: ", done.stderr)
                self.assertIn(words, done.stderr)

    def test_wrong_settings_end_a_program_whose_exit_handlers_call_cuda(self):
        program = """
import ctypes
libc, driver = ctypes.CDLL(None), ctypes.CDLL("libcuda.so.1")
libc.__cxa_atexit(ctypes.cast(driver.cuInit, ctypes.c_void_p), None, None)
libc.puts(b"said before")
driver.cuInit(0)
"""
        for variable, value in (("seed", "x"), ("costs", "no-such-table")):
            with self.subTest(variable):
                done = subprocess.run([sys.executable, "-c", program], env=environment(**{variable: value}),
                                      capture_output=True, text=True, timeout=60, check=False)
                self.assertEqual((done.returncode, done.stdout), (2, "said before\n"), done.stderr)

    def test_a_folder_for_reports_that_is_not_there_is_told(self):
        done = succeed(self, "", report="/no/such/folder")
        self.assertIn("no report can be written into /no/such/folder: No such file", done.stderr)

    def test_report(self):
        with tempfile.TemporaryDirectory() as folder:
            done = succeed(self, """
f, p = kernel(), malloc(10 * MIB)
for _ in range(3):
    must(launch(f, p))
upload(p, bytes(1000))
assert runtime.cudaMalloc(byref(c_void_p()), c_size_t(3 << 30)) == 2
must(runtime.cudaFree(c_void_p(p)))
print(os.getpid())
if os.fork() == 0:
    sys.exit()
os.wait()
""", report=folder, memory="2GiB", device="a100")
            files = sorted(Path(folder).iterdir())
            pid = done.stdout.split()[0]
            self.assertEqual([file.name for file in files], [f"{pid}.json", f"{pid}.live"])
            report = json.loads(files[0].read_text())
        self.assertEqual(report["pid"], int(done.stdout.split()[0]))
        self.assertEqual(report["program"][1], "-c")
        self.assertEqual(report["devices"], [{"name": "NVIDIA A100-SXM4-80GB", "number": 0, "capacity_bytes": 2 << 30,
                                              "overhead_bytes": 0, "peak_bytes": 10 << 20, "used_bytes": 0,
                                              "machine_peak_bytes": 10 << 20}])
        self.assertEqual(report["kernels"], 3)
        self.assertEqual(report["copies_bytes"], 1000)
        self.assertEqual(report["calls"]["cudaMalloc"], 2)
        self.assertEqual(report["calls"]["cuMemAlloc"], 2)
        self.assertEqual(report["calls"]["cuLaunchKernel"], 3)
        self.assertEqual((report["violations"], report["first_violation"]), (0, None))
        self.assertEqual(report["oom"], [{"call": "cuMemAlloc", "bytes": 3 << 30, "free_bytes": (2 << 30) - (10 << 20),
                                          "total_bytes": 2 << 30}])
        self.assertGreater(report["driver_time_ns"], 0)

    def test_report_counts_calls_of_libraries_that_are_gone(self):
        with tempfile.TemporaryDirectory() as folder:
            succeed(self, """
import mmap
driver.trz_lookalike_calls.restype = ctypes.POINTER(c_uint64)
for _ in range(20):
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    memory.write(b"pluginCall\\0")
    text = ctypes.c_char.from_buffer(memory)
    names = (c_void_p * 1)(ctypes.addressof(text))
    counts = driver.trz_lookalike_calls(names, c_size_t(1))
    counts[0] += 1
    del text
    memory.close()
""", report=folder)
            report = json.loads(next(Path(folder).glob("*.json")).read_text())
        self.assertEqual(report["calls"]["pluginCall"], 20)

    def test_report_of_a_program_that_broke_a_rule(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run("""
stream = new_stream()
must(runtime.cudaStreamDestroy(stream))
runtime.cudaStreamQuery(stream)
""", report=folder)
            self.assertEqual(done.returncode, -6)
            report = json.loads(next(Path(folder).glob("*.json")).read_text())
        self.assertEqual((report["violations"], report["misuses"]), (1, 0))
        self.assertIn("use of stream", report["first_violation"])

    def test_what_a_driver_refuses_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            succeed(self, """
handle, a = create(2 * MIB), reserve(4 * MIB)
assert runtime.cudaFree(c_void_p(0x200000000000)) == 1
assert driver.cuMemUnmap(c_uint64(a), c_size_t(2 * MIB)) == 1
lay(a, 2 * MIB, handle)
assert driver.cuMemMap(c_uint64(a), c_size_t(2 * MIB), c_size_t(0), c_uint64(handle), c_uint64(0)) == 1
assert driver.cuMemAddressFree(c_uint64(a), c_size_t(4 * MIB)) == 1
must(driver.cuMemRelease(c_uint64(handle)))
assert driver.cuMemRelease(c_uint64(handle)) == 1
assert driver.cuStreamDestroy_v2(None) == 400
assert download(a, 100) == bytes(100)
""", report=folder)
            report = json.loads(next(Path(folder).glob("*.json")).read_text())
        self.assertEqual((report["violations"], report["misuses"]), (0, 6))
        self.assertIn("mem_free", report["first_misuse"])

    def test_processes_share_a_device(self):
        child = PREAMBLE + NVML + """
p = malloc(300 * MIB)
assert runtime.cudaMalloc(byref(c_void_p()), c_size_t(800 * MIB)) == 2
fd = int(sys.argv[1])
handle, a = c_uint64(), reserve(2 * MIB)
must(driver.cuMemImportFromShareableHandle(byref(handle), c_void_p(fd), 1))
lay(a, 2 * MIB, handle.value)
assert download(a, 100) == b"from the parent".ljust(100, b"\\0")
upload(a, b"from the child".ljust(100, b"\\0"))
print(sorted(processes().values()))
"""
        done = run(NVML + f"""
import subprocess
driver.trz_lookalike_machine_fd.restype = c_int
machine = driver.trz_lookalike_machine_fd()
handle, a, fd = create(2 * MIB, 1), reserve(2 * MIB), c_int()
lay(a, 2 * MIB, handle)
upload(a, b"from the parent".ljust(100, b"\\0"))
must(driver.cuMemExportToShareableHandle(byref(fd), c_uint64(handle), 1, c_uint64(0)))
malloc(200 * MIB)
os.environ["TERRAZZO_SIM_MACHINE_FD"] = str(machine)
done = subprocess.run([sys.executable, "-c", {child!r}, str(fd.value)], pass_fds=(machine, fd.value))
assert done.returncode == 0
assert download(a, 100) == b"from the child".ljust(100, b"\\0")
assert processes() == {{os.getpid(): 200 * MIB}}, processes()
memory = Memory()
must(nvml.nvmlDeviceGetMemoryInfo(device, byref(memory)))
assert (memory.total, memory.used) == (1 << 30, 202 * MIB)
""", memory="1GiB")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.strip(), str([200 << 20, 300 << 20]))

    def test_what_monitors_ask(self):
        """nvitop, gpustat and others: numbers of an idle device, or that it does not tell; no missing function."""
        succeed(self, NVML + """
first, second, wide = ctypes.c_uint(7), ctypes.c_uint(7), c_uint64(7)
for name, wanted in (("Architecture", 9), ("Brand", 14), ("ComputeMode", 0), ("PersistenceMode", 1),
                     ("PerformanceState", 0), ("DisplayActive", 0), ("NumFans", 0), ("MemoryBusWidth", 5120)):
    must(getattr(nvml, f"nvmlDeviceGet{name}")(device, byref(first)))
    assert first.value == wanted, (name, first.value)
for name, wanted in (("EncoderUtilization", 0), ("DecoderUtilization", 0), ("MigMode", 0), ("EccMode", 1)):
    must(getattr(nvml, f"nvmlDeviceGet{name}")(device, byref(first), byref(second)))
    assert first.value == wanted, name
must(nvml.nvmlDeviceGetTotalEnergyConsumption(device, byref(wide)))
assert wide.value == 0
must(nvml.nvmlDeviceGetTotalEccErrors(device, 1, 0, byref(wide)))
must(nvml.nvmlDeviceGetClockInfo(device, 2, byref(first)))
must(nvml.nvmlDeviceGetMaxClockInfo(device, 2, byref(second)))
assert first.value == second.value > 0
for name in ("FanSpeed", "PowerManagementLimit", "EnforcedPowerLimit", "BAR1MemoryInfo", "Serial", "Attributes_v2"):
    assert getattr(nvml, f"nvmlDeviceGet{name}")(device, byref(wide)) == 3, name
    assert getattr(nvml, f"nvmlDeviceGet{name}")(None, byref(wide)) == 2, name
class Field(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint), ("scope", ctypes.c_uint), ("time", c_uint64), ("latency", c_uint64),
                ("type", c_int), ("result", c_int), ("value", c_uint64)]
fields = (Field * 2)()
must(nvml.nvmlDeviceGetFieldValues(device, 2, fields))
assert [field.result for field in fields] == [3, 3]
words = (ctypes.c_ulong * 16)()
must(nvml.nvmlDeviceGetCpuAffinity(device, 16, words))
found = {i for i in range(16 * 64) if words[i // 64] >> i % 64 & 1}
assert found == os.sched_getaffinity(0), found
must(nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(device, byref(first), None))
must(nvml.nvmlDeviceGetGraphicsRunningProcesses_v2(device, byref(first), None))
assert first.value == 0
pci = ctypes.create_string_buffer(b"x" * 64, 64)
must(nvml.nvmlDeviceGetPciInfo(device, pci))
assert pci.raw.startswith(b"0000:01:00.0\\0") and pci.raw[52:] == b"x" * 12
""", device="h100")

    def test_memory_and_events_by_ipc_handles(self):
        handle = """
class Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * 64)]
"""
        child = PREAMBLE + handle + """
memory, event = (Handle.from_buffer_copy(bytes.fromhex(text)) for text in sys.argv[1:3])
p, again, e = c_void_p(), c_void_p(), c_void_p()
must(runtime.cudaIpcOpenMemHandle(byref(p), memory, 1))
must(runtime.cudaIpcOpenMemHandle(byref(again), memory, 1))
assert p.value == again.value
must(runtime.cudaIpcOpenEventHandle(byref(e), event))
must(runtime.cudaEventSynchronize(e))
assert download(p.value, 20) == b"from the parent".ljust(20, b"\\0")
upload(p.value, b"from the child".ljust(20, b"\\0"))
assert runtime.cudaFree(p) == 1 and runtime.cudaFreeAsync(p, None) == 1
must(runtime.cudaIpcCloseMemHandle(p))
upload(p.value + 100, b"still open for the other")
must(runtime.cudaIpcCloseMemHandle(p))
assert runtime.cudaIpcCloseMemHandle(p) == 1
assert runtime.cudaIpcOpenMemHandle(byref(p), event, 1) == 1
assert runtime.cudaIpcOpenMemHandle(byref(p), memory, 0) == 1
"""
        done = succeed(self, handle + f"""
import subprocess
machine = driver.trz_lookalike_machine_fd()
big, p, memory, event, e, own = malloc(5 * MIB), malloc(1000), Handle(), Handle(), c_void_p(), c_void_p()
upload(p, b"from the parent".ljust(20, b"\\0"))
must(runtime.cudaEventCreateWithFlags(byref(e), 6))
must(runtime.cudaEventRecord(e, None))
must(runtime.cudaIpcGetMemHandle(byref(memory), c_void_p(p)))
must(runtime.cudaIpcGetEventHandle(byref(event), e))
alone = c_void_p()
must(runtime.cudaEventCreateWithFlags(byref(alone), 2))
assert runtime.cudaIpcGetEventHandle(byref(Handle()), alone) == 400  # it was not made for several processes
assert runtime.cudaIpcOpenMemHandle(byref(own), memory, 1) == 201
assert runtime.cudaIpcGetMemHandle(byref(Handle()), c_void_p(reserve(2 * MIB))) == 1
command = [sys.executable, "-c", {child!r}, bytes(memory).hex(), bytes(event).hex()]
shared = {{**os.environ, "TERRAZZO_SIM_MACHINE_FD": f"{{os.getpid()}}:{{machine}}"}}
subprocess.run(command, env=shared, check=True)
assert download(p, 20) == b"from the child".ljust(20, b"\\0")
assert download(p + 100, 24) == b"still open for the other"
apart = subprocess.run(command, stderr=subprocess.PIPE, text=True)
assert apart.returncode == 1 and "shares no device" in apart.stderr, apart.stderr
must(runtime.cudaFree(c_void_p(p)))
gone = subprocess.run(command, env=shared, stderr=subprocess.PIPE, text=True)
assert "the memory is gone" in gone.stderr, gone.stderr
""", memory="1GiB", work="late")
        self.assertNotIn("violation", done.stderr)

    def test_fork_of_a_process_that_uses_cuda(self):
        done = succeed(self, """
p = malloc(MIB)
child = os.fork()
if child == 0:
    q = c_void_p()
    assert driver.cuMemAlloc_v2(byref(q), c_size_t(MIB)) == 3
    assert driver.cuInit(0) == 3
    assert runtime.cudaMalloc(byref(q), c_size_t(MIB)) == 3
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
upload(p, b"still here")
assert download(p, 10) == b"still here"
""", scalars="real")
        self.assertEqual(done.stderr.count("was made by fork()"), 1)

    def test_a_context_is_made_with_parameters_that_ask_for_nothing(self):
        succeed(self, """
class Params(ctypes.Structure):
    _fields_ = [("affinity", c_void_p), ("count", c_int), ("graphics", c_void_p)]
context, current = c_void_p(), c_void_p()
must(driver.cuCtxCreate_v4(byref(context), byref(Params()), 0, 0))
must(driver.cuCtxGetCurrent(byref(current)))
assert current.value == context.value
must(driver.cuCtxDestroy_v2(context))
must(driver.cuCtxCreate_v4(byref(context), None, 0, 0))
some = ctypes.create_string_buffer(64)
for asks in (Params(ctypes.addressof(some), 1, None), Params(None, 0, ctypes.addressof(some))):
    assert driver.cuCtxCreate_v4(byref(context), byref(asks), 0, 0) == 801
""")

    def test_green_contexts_have_shares_of_a_device(self):
        program = """
class Share(ctypes.Structure):
    _fields_ = [("type", c_int), ("padding", ctypes.c_char * 92), ("count", ctypes.c_uint), ("least", ctypes.c_uint),
                ("step", ctypes.c_uint), ("reserved", ctypes.c_char * 36)]

whole, groups, rest, found, n = Share(), (Share * 20)(), Share(), Share(), ctypes.c_uint()
must(driver.cuDeviceGetDevResource(0, byref(whole), 1))
assert (whole.type, whole.count, whole.least, whole.step) == (1, 132, 8, 8)
assert driver.cuDeviceGetDevResource(0, byref(whole), 2) == 914
assert driver.cuDeviceGetDevResource(9, byref(whole), 1) == 101

def split(groups, most, rest, flags, least):
    n.value = most
    result = driver.cuDevSmResourceSplitByCount(groups, byref(n), byref(whole), rest, flags, least)
    return result or [g.count for g in (groups or [])[:n.value]], n.value, rest and rest._obj.count

assert split(None, 0, None, 0, 8) == ([], 16, None)
assert split(groups, 2, byref(rest), 0, 9) == ([16, 16], 2, 100)
assert split(groups, 20, byref(rest), 0, 60) == ([64, 64], 2, 4)
assert split(groups, 20, byref(rest), 1, 41) == ([42] * 3, 3, 6)
assert split(groups, 1, byref(rest), 1, 132) == ([132], 1, 0) and rest.type == 0
assert split(groups, 1, None, 0, 133)[0] == 1 and split(groups, 1, None, 0, 132)[0] == 915
assert split(groups, 1, byref(rest), 0, 24)[0] == [24]

description, green, context, stream, other = (c_void_p() for _ in range(5))
must(driver.cuDevResourceGenerateDesc(byref(description), groups, 1))
assert driver.cuGreenCtxCreate(byref(green), byref(whole), 0, 1) == 1
must(driver.cuGreenCtxCreate(byref(green), description, 0, 1))
must(driver.cuGreenCtxGetDevResource(green, byref(found), 1))
assert found.count == 24
must(driver.cuCtxFromGreenCtx(byref(context), green))
must(driver.cuCtxGetDevResource(context, byref(found), 1))
assert found.count == 24
must(driver.cuCtxGetDevResource(None, byref(found), 1))
assert found.count == 132
must(driver.cuGreenCtxStreamCreate(byref(stream), green, 1, 0))
must(driver.cuStreamGetGreenCtx(stream, byref(other)))
assert other.value == green.value
must(driver.cuStreamDestroy_v2(stream))
must(driver.cuGreenCtxDestroy(green))
assert driver.cuGreenCtxGetDevResource(green, byref(found), 1) == 201
"""
        succeed(self, program, TERRAZZO_SIM_DEVICE="h100")

    def test_a_thread_has_many_contexts_at_a_time(self):
        succeed(self, """
made, current = [], c_void_p()
for _ in range(100):
    made.append(c_void_p())
    must(driver.cuCtxCreate_v4(byref(made[-1]), None, 0, 0))
while made:
    must(driver.cuCtxGetCurrent(byref(current)))
    assert current.value == made[-1].value
    must(driver.cuCtxDestroy_v2(made.pop()))
""")

    def test_unbinding_a_context_pops_it(self):
        """cuda.h on cuCtxSetCurrent: NULL is equivalent to popping the top of the thread's stack."""
        succeed(self, """
INVALID_CONTEXT, outer, inner, current = 201, c_void_p(), c_void_p(), c_void_p()
def now():
    must(driver.cuCtxGetCurrent(byref(current)))
    return current.value
primary = now()
must(driver.cuCtxCreate_v2(byref(outer), 0, 0))
must(driver.cuCtxCreate_v2(byref(inner), 0, 0))
for expected in (outer.value, primary, None, None):
    must(driver.cuCtxSetCurrent(None))
    assert now() == expected, expected
must(driver.cuCtxDestroy_v2(inner))
assert driver.cuCtxSetCurrent(inner) == driver.cuCtxPushCurrent_v2(inner) == INVALID_CONTEXT
assert now() is None
""")

    def test_a_context_keeps_its_flags_and_limits(self):
        """The driver reserves stacks for all threads that the device can run: beyond 1 KiB each, device memory."""
        succeed(self, """
INVALID_VALUE, OUT_OF_MEMORY, UNSUPPORTED_LIMIT, BLOCKING, YIELD, STACK = 1, 2, 215, 4, 2, 0
flags, limit, own, unused, total = ctypes.c_uint(), c_size_t(), c_void_p(), c_size_t(), c_size_t()
def flags_now():
    must(driver.cuCtxGetFlags(byref(flags)))
    return flags.value
def limit_now(which):
    must(runtime.cudaDeviceGetLimit(byref(limit), which))
    return limit.value
def unused_now():
    must(runtime.cudaMemGetInfo(byref(unused), byref(total)))
    return unused.value
must(runtime.cudaSetDeviceFlags(BLOCKING))
assert flags_now() == BLOCKING
must(driver.cuCtxCreate_v2(byref(own), YIELD, 0))
assert flags_now() == YIELD
assert driver.cuCtxCreate_v2(byref(own), 1 << 20, 0) == driver.cuCtxSetFlags(7) == INVALID_VALUE
before = unused_now()
must(runtime.cudaDeviceSetLimit(STACK, c_size_t(5 << 10)))
assert limit_now(STACK) == 5 << 10 and before - unused_now() == 132 * 2048 * (4 << 10), before - unused_now()
assert runtime.cudaDeviceSetLimit(STACK, c_size_t(1 << 20)) == OUT_OF_MEMORY and limit_now(STACK) == 5 << 10
must(driver.cuCtxDestroy_v2(own))
assert limit_now(STACK) == 1 << 10 and unused_now() - before >= 0
for nothing in (3, 7, 8, 100):
    assert runtime.cudaDeviceGetLimit(byref(limit), nothing) == UNSUPPORTED_LIMIT
    assert runtime.cudaDeviceSetLimit(nothing, c_size_t(0)) == UNSUPPORTED_LIMIT
""")

    def test_a_device_says_how_large_textures_may_be(self):
        succeed(self, """
value = c_int()
for attribute, extent in ((21, 131072), (23, 65536), (26, 16384), (54, 2046), (57, 65536), (72, 2097120)):
    must(runtime.cudaDeviceGetAttribute(byref(value), attribute, 0))
    assert value.value == extent, (attribute, value.value)
properties = ctypes.create_string_buffer(4096)
must(runtime.cudaGetDeviceProperties(properties, 0))
first = struct.pack("3i", 16384, 16384, 16384) + struct.pack("3i", 8192, 8192, 32768)
assert properties.raw.count(first) == 1
""")

    def test_every_error_has_its_names_and_its_text(self):
        succeed(self, """
name, text = c_char_p(), c_char_p()
runtime.cudaGetErrorName.restype = runtime.cudaGetErrorString.restype = c_char_p
for value, of_driver, of_runtime, words in (
        (1, b"CUDA_ERROR_INVALID_VALUE", b"cudaErrorInvalidValue", b"invalid argument"),
        (9, None, b"cudaErrorInvalidConfiguration", b"invalid configuration argument"),
        (35, None, b"cudaErrorInsufficientDriver", b"CUDA driver version is insufficient for CUDA runtime version"),
        (209, b"CUDA_ERROR_NO_BINARY_FOR_GPU", b"cudaErrorNoKernelImageForDevice",
         b"no kernel image is available for execution on the device"),
        (719, b"CUDA_ERROR_LAUNCH_FAILED", b"cudaErrorLaunchFailure", b"unspecified launch failure"),
        (12345, None, b"unrecognized error code", b"unrecognized error code")):
    known = driver.cuGetErrorName(value, byref(name)) == 0
    assert known == (driver.cuGetErrorString(value, byref(text)) == 0) == bool(of_driver)
    assert name.value == of_driver and text.value == (words if of_driver else None), (name.value, text.value)
    assert runtime.cudaGetErrorName(value) == of_runtime and runtime.cudaGetErrorString(value) == words, value
""")

    def test_the_runtime_names_what_breaks_a_capture(self):
        succeed(self, """
runtime.cudaGetErrorName.restype = ctypes.c_char_p
stream, p = c_void_p(), malloc(MIB)
must(runtime.cudaStreamCreate(byref(stream)))
must(runtime.cudaStreamBeginCapture(stream, 2))
error = runtime.cudaMemsetAsync(c_void_p(p), 0, c_size_t(MIB), None)
assert runtime.cudaGetErrorName(error) == b"cudaErrorStreamCaptureImplicit", error
""")

    def test_other_threads_go_on_after_a_reset(self):
        succeed(self, """
import threading
bound, reset, results = threading.Event(), threading.Event(), []
def other():
    must(runtime.cudaFree(None))
    bound.set()
    reset.wait()
    results.append(runtime.cudaMalloc(byref(c_void_p()), c_size_t(MIB)))
    results.append(runtime.cudaDeviceSynchronize())
thread = threading.Thread(target=other)
thread.start()
bound.wait()
must(runtime.cudaDeviceReset())
reset.set()
thread.join()
assert results == [0, 0], results
malloc(MIB)
""")

    def test_nvml(self):
        succeed(self, NVML + """
malloc(5 * MIB)
assert processes() == {os.getpid(): 6 * MIB}
count, uuid, same, name = ctypes.c_uint(), ctypes.create_string_buffer(96), c_void_p(), ctypes.create_string_buffer(96)
must(nvml.nvmlDeviceGetCount_v2(byref(count)))
must(nvml.nvmlDeviceGetUUID(device, uuid, 96))
must(nvml.nvmlDeviceGetHandleByUUID(uuid, byref(same)))
assert (count.value, same.value) == (2, device.value)
must(nvml.nvmlDeviceGetHandleByPciBusId_v2(b"0000:02:00.0", byref(same)))
assert same.value != device.value
must(nvml.nvmlDeviceGetName(device, name, 96))
assert b"H100" in name.value
for version in (36 | 2 << 24, 40 | 3 << 24, 2):
    fabric = (ctypes.c_uint * 9)(version, *[0xffffffff] * 8)
    must(nvml.nvmlDeviceGetGpuFabricInfoV(device, fabric))
    assert list(fabric)[1:7] == [0] * 6 and fabric[7] & 0xff == 0  # no state: there is no fabric
assert nvml.nvmlDeviceGetGpuFabricInfoV(device, (ctypes.c_uint * 9)()) == 25
assert nvml.nvmlDeviceGetHandleByIndex_v2(2, byref(same)) == 2
must(nvml.nvmlInit_v2())
must(nvml.nvmlShutdown())
must(nvml.nvmlDeviceGetCount_v2(byref(count)))
must(nvml.nvmlShutdown())
assert (nvml.nvmlDeviceGetCount_v2(byref(count)), nvml.nvmlShutdown()) == (1, 1), "shut down as often as started"
""", devices=2, memory="1GiB")

    def test_versions_are_numbers(self):
        for cuda, oldest in ((12080, b"525.0"), (13020, b"580.0")):
            succeed(self, f"""
nvml, text = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.create_string_buffer(80)
must(nvml.nvmlInit_v2())
must(nvml.nvmlSystemGetDriverVersion(text, 80))
assert text.value == {oldest!r}, text.value
must(nvml.nvmlSystemGetNVMLVersion(text, 80))
assert all(part.isdigit() for part in text.value.split(b".")), text.value
assert nvml.nvmlSystemGetDriverVersion(text, 3) == 7
""", driver_version=cuda)

    def test_confidential_computing_is_off(self):
        succeed(self, """
nvml, off = ctypes.CDLL("libnvidia-ml.so.1"), (ctypes.c_uint * 5)(1 << 24 | 20, 9, 9, 9, 9)
assert nvml.nvmlSystemGetConfComputeSettings(off) == 1, "not started"
must(nvml.nvmlInit_v2())
must(nvml.nvmlSystemGetConfComputeSettings(off))
assert list(off) == [1 << 24 | 20, 0, 0, 0, 0]
off[0] = 2 << 24 | 24
assert nvml.nvmlSystemGetConfComputeSettings(off) == 25
must(nvml.nvmlSystemGetConfComputeState(off))
assert list(off[:3]) == [0, 0, 0]
""")

    def test_nothing_foreign_is_exported(self):
        for library, pattern in (("libcuda.so.1", ("cu", "trz_lookalike_")), ("libnvidia-ml.so.1", ("nvml",)),
                                 ("libcudart.so.13", ("cuda", "__cuda", "libcudart")),
                                 ("libcudart.so.12", ("cuda", "__cuda", "libcudart")),
                                 ("libcudart.so.11.0", ("cuda", "__cuda", "libcudart"))):
            path = Path(environment()["LD_LIBRARY_PATH"]) / library
            text = subprocess.run(["nm", "-D", "--defined-only", str(path)], check=True, capture_output=True,
                                  text=True).stdout
            names = [line.split()[-1] for line in text.splitlines()]
            self.assertGreater(len(names), 30)
            self.assertEqual([name for name in names if not name.startswith(pattern)], [], library)


if __name__ == "__main__":
    skip_if_unfit()
    sys.exit(unittest.main())
