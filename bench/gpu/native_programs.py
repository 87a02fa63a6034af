# SPDX-License-Identifier: Apache-2.0
"""Programs that know nothing of terrazzo, and the examples that do: each is run plain and preloaded, and must end and
print the same."""
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from native_common import BUILD, PRELOAD, SOURCE, find_toolkit, given_path, joined, run, toolkit_libraries

ARCHITECTURE = "sm_90"
AT_ONCE = max(6, (os.cpu_count() or 6) - 2)  # programs that run side by side: nothing is timed
PROGRAM_SECONDS = 30
PACKAGE_SECONDS = 45


@dataclass
class Sample:
    name: str
    flags: tuple = ()
    module: tuple = ()       # kernel's file, what it becomes
    arguments: tuple = ()


DRIVER = ("-lcuda",)
SEPARATE = ("-rdc=true",)
HANDED = ("-rdc=true", "-lcuda")
SAMPLES = (
    Sample("streamOrderedAllocation"),
    Sample("streamOrderedAllocationIPC", HANDED),
    Sample("simpleStreams"),
    Sample("simpleCudaGraphs"),
    Sample("graphMemoryNodes"),
    Sample("graphMemoryFootprint"),
    Sample("graphConditionalNodes"),
    Sample("jacobiCudaGraphs"),
    Sample("memMapIPCDrv", DRIVER, ("memMapIpc_kernel.cu", "memMapIpc_kernel64.ptx")),
    Sample("simpleIPC", HANDED),
    Sample("simpleCallback"),
    Sample("simpleMultiCopy"),
    Sample("simpleZeroCopy"),
    Sample("simpleHyperQ"),
    Sample("asyncAPI"),
    Sample("cudaOpenMP", ("-Xcompiler", "-fopenmp", "-lgomp")),
    Sample("vectorAdd"),
    Sample("vectorAddMMAP", DRIVER, ("vectorAdd_kernel.cu", "vectorAdd_kernel64.fatbin")),
    Sample("simpleDrvRuntime", DRIVER, ("vectorAdd_kernel.cu", "vectorAdd_kernel64.fatbin")),
    Sample("matrixMulDrv", DRIVER, ("matrixMul_kernel.cu", "matrixMul_kernel64.fatbin")),
    Sample("matrixMul"),
    Sample("cdpSimplePrint", SEPARATE + ("-lcudadevrt",)),
    Sample("cdpSimpleQuicksort", SEPARATE + ("-lcudadevrt",)),
    Sample("UnifiedMemoryStreams", ("-lcublas", "-Xcompiler", "-fopenmp")),
    Sample("conjugateGradientUM", ("-lcublas", "-lcusparse")),
    Sample("simpleCUBLAS", ("-lcublas",)),
    Sample("radixSortThrust"),
    Sample("segmentationTreeThrust"),
    Sample("mergeSort"),
    Sample("scan"),
    Sample("reduction"),
    Sample("newdelete", SEPARATE),
)

# name, variables
PACKAGES = (
    ("cupy_plain", {}),
    ("cupy_pool", {}),
    ("cupy_stream_ordered", {}),
    ("cupy_async", {}),
    ("jax", {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async"}),
    ("jax", {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}),
    ("jax", {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
    ("numba_cuda", {}),
    ("torch_train", {}),
    ("triton_add", {}),
    ("cuda_core", {}),
)


def nvcc(machine):
    """nvcc by its toolkit. On the simulated device the runtime must be the shared one."""
    toolkit = find_toolkit()
    program = toolkit / "bin" / "nvcc" if toolkit else Path("nvcc")
    runtime = "shared" if machine.simulated else "static"
    return [program, "-std=c++17", f"-arch={ARCHITECTURE}", "-w", "-cudart", runtime]


def stubs():
    toolkit = find_toolkit()
    folders = [toolkit / part for part in ("lib64/stubs", "targets/x86_64-linux/lib/stubs")] if toolkit else []
    return next((f"-L{folder}" for folder in folders if (folder / "libcuda.so").exists()), None)


def driver_link(machine):
    """Where the linker finds -lcuda: the toolkit's stub, or a link to the driver that programs run over."""
    if stubs():
        return [stubs()]
    folder = machine.work / "link"
    folder.mkdir(exist_ok=True)
    link = folder / "libcuda.so"
    driver = BUILD / "lib" / "sim" if machine.simulated else Path(machine.driver)
    if not link.exists():
        link.symlink_to(driver / "libcuda.so.1")
    return [f"-L{folder}"]


def build_sample(machine, sample):
    """Returns why the sample is missing, or nothing."""
    root = machine.carried / "samples"
    folder = next(root.glob(f"Samples/*/{sample.name}"), None)
    if not folder:
        return "its source was not carried: native_prepare.sh gathers it"
    place = machine.work / "samples" / sample.name
    place.mkdir(parents=True, exist_ok=True)
    if (place / sample.name).exists():   # from an earlier run on this machine: samples do not change
        return ""
    kernel = sample.module[0] if sample.module else None
    sources = [path for path in sorted(folder.iterdir())
               if path.suffix in (".cu", ".cpp", ".c") and path.name != kernel]
    texts = "".join(path.read_text(errors="replace") for path in sources)
    # Kernels that another file includes are not compiled by themselves.
    sources = [path for path in sources if f'#include "{path.name}"' not in texts]
    if "helper_multiprocess" in texts:
        sources.append(root / "Common" / "helper_multiprocess.cpp")
    done = None
    if sample.module:
        kind = "-ptx" if sample.module[1].endswith(".ptx") else "-fatbin"
        done = run(machine, [*nvcc(machine), kind, folder / kernel, f"-I{root / 'Common'}", "-o",
                             place / sample.module[1]], 60)
    if not done or done.good:
        done = run(machine, [*nvcc(machine), "--extended-lambda", f"-I{root / 'Common'}", f"-I{folder}", *sources, "-o",
                             place / sample.name, *driver_link(machine), *sample.flags, "-lpthread", "-lrt"], 120)
    return "" if done.good else f"nvcc: {done.why}"


def said(text):
    """What a program said, without what changes from run to run: times, addresses, process ids, and numbers at all."""
    lines = []
    for line in text.splitlines():
        line = re.sub(r"0x[0-9a-fA-F]+", "#", line)
        line = re.sub(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?", "#", line)
        lines.append(re.sub(r"\s+", " ", line).strip())
    return sorted(line for line in lines if line)   # processes and threads may print in any order


def served(text):
    """The preload's lines about what it did."""
    return [line for line in text.splitlines() if line.startswith("terrazzo")][-6:]


def compare(machine, name, command, limit, cwd=None, exact=False, **variables):
    """Runs a program plain, then preloaded."""
    plain = run(machine, command, limit, cwd, **variables)
    loaded = run(machine, command, limit, cwd, LD_PRELOAD=PRELOAD, TERRAZZO_NATIVE="report:on", **variables)
    pick = (lambda t: [line for line in t.splitlines() if line.startswith("RESULT")]) if exact else said
    row = {"name": name, "plain_code": plain.code, "preloaded_code": loaded.code, "plain_s": round(plain.seconds, 2),
           "preloaded_s": round(loaded.seconds, 2), "served": served(loaded.err)}
    same = plain.code == loaded.code and pick(plain.out) == pick(loaded.out)
    row["verdict"] = "differs" if not same else "same" if plain.good else "fails in both"
    if "no time was left" in (plain.why, loaded.why) or (plain.code is None and loaded.code is None):
        row["verdict"], row["why"] = "did not end", plain.why or loaded.why
        return row | {"plain": plain.tail(), "preloaded": loaded.tail()}
    if not same or not plain.good:
        row |= {"plain": plain.tail(), "preloaded": loaded.tail()}
    if not same:
        one, two = pick(plain.out), pick(loaded.out)
        row["only_plain"] = [line for line in one if line not in two][:10]
        row["only_preloaded"] = [line for line in two if line not in one][:10]
    if exact:
        row["result"] = pick(loaded.out)
    return row


def guarded(function, *arguments):
    """A part that breaks says so, and costs the others nothing."""
    try:
        return function(*arguments)
    except Exception as error:  # pylint: disable=broad-except
        return f"{type(error).__name__}: {error}"


def run_samples(machine, built):
    def one(sample):
        if built[sample.name]:
            return {"name": sample.name, "verdict": "not built", "why": built[sample.name]}
        place = machine.work / "samples" / sample.name
        row = guarded(compare, machine, sample.name, [f"./{sample.name}", *sample.arguments], PROGRAM_SECONDS, place)
        return row if isinstance(row, dict) else {"name": sample.name, "verdict": "broke", "why": row}

    with ThreadPoolExecutor(2 if machine.simulated else AT_ONCE) as pool:
        return list(pool.map(one, SAMPLES))


def run_packages(machine):
    program = SOURCE / "bench" / "gpu" / "programs" / "packages.py"

    def one(package):
        name, variables = package
        title = name + "".join(f" {key.removeprefix('XLA_PYTHON_CLIENT_').lower()}={value}"
                               for key, value in variables.items())
        row = guarded(lambda: compare(machine, title, [sys.executable, program, name], PACKAGE_SECONDS, None, True,
                                      LD_LIBRARY_PATH=joined(given_path(machine)), **variables))
        return row if isinstance(row, dict) else {"name": title, "verdict": "broke", "why": row}

    with ThreadPoolExecutor(2 if machine.simulated else AT_ONCE) as pool:
        return list(pool.map(one, PACKAGES))


# ---- programs that are linked with terrazzo ---------------------------------------------------------------

def linked_programs(machine):
    """The commands that compile them, by name."""
    toolkit = find_toolkit()
    common = ["-O2", f"-I{SOURCE / 'include'}", "-isystem", f"{toolkit}/include", f"-L{BUILD}/lib"]
    runtime = next((sorted(folder.glob("libcudart.so.1[0-9]")) for folder in toolkit_libraries()
                    if sorted(folder.glob("libcudart.so.1[0-9]"))), ["-lcudart"])[:1]
    programs, examples, cxx = SOURCE / "bench" / "gpu" / "programs", SOURCE / "examples" / "native", \
        SOURCE / "tests" / "cxx" / "programs"
    made = machine.work / "linked"
    made.mkdir(exist_ok=True)
    cuda = nvcc(machine)
    ours = [f"-I{SOURCE / 'include'}", f"-L{BUILD}/lib", "-lterrazzo"]
    return {
        "budget": ["gcc", *common, examples / "budget.c", "-o", made / "budget", "-lterrazzo"],
        "drop_in": ["gcc", *common, examples / "drop_in.c", "-o", made / "drop_in", "-lterrazzo_cuda", "-lterrazzo",
                     *runtime],
        "pipeline": ["g++", "-std=c++17", *common, examples / "pipeline.cpp", "-o", made / "pipeline", "-lterrazzo",
                      *runtime],
        "wrapper": ["g++", "-std=c++17", *common, cxx / "wrapper.cpp", "-o", made / "wrapper", "-lterrazzo",
                     *driver_link(machine), "-lcuda", *runtime],
        "memory_resource": [*cuda, "-x", "cu", *ours, cxx / "resource.cpp", "-o", made / "memory_resource"],
        "thrust_and_cub": [*cuda, *ours, cxx / "sorting.cu", "-o", made / "thrust_and_cub"],
        "replaced": [*cuda, *ours, SOURCE / "tests/native/programs/replaced.cu", "-o", made / "replaced",
                      "-lterrazzo_cuda"],
        "hold": ["gcc", *common, programs / "hold.c", "-o", made / "hold", *runtime],
    }


def build_linked(machine, command):
    done = run(machine, command, 120)
    return "" if done.good else done.why


def run_linked(machine, built):
    """The examples and the programs of the C++ headers' tests; a program that RMM's headers were needed for was
    compiled elsewhere."""
    rows = []
    for name in built:
        if name == "hold":
            continue
        if built[name]:
            rows.append({"name": name, "verdict": "not built", "why": built[name]})
            continue
        done = run(machine, [machine.work / "linked" / name], 60)
        rows.append({"name": name, "verdict": "ends well" if done.good else "fails", **done.tail()})
    rmm = machine.carried / "built" / "resource_rmm"
    if rmm.exists():
        done = run(machine, [rmm], 60)
        rows.append({"name": "rmm_resource (24.12)", "verdict": "ends well" if done.good else "fails", **done.tail()})
    return rows


def table(rows):
    lines = ["| program | verdict | served or why |", "|---|---|---|"]
    for row in rows:
        if row["verdict"] == "differs":
            what = f"plain {row['plain_code']}, preloaded {row['preloaded_code']}; " + \
                   f"{row['preloaded']['why'] or row['only_preloaded'][:2]}"
        elif "served" in row:
            what = " / ".join(row["served"]) or row.get("preloaded", {}).get("why", "")
        else:
            what = row.get("why", "") or (row.get("stdout", "").strip().splitlines() or [""])[-1]
        lines.append(f"| {row['name']} | {row['verdict']} | {what[:240]} |")
    return lines
