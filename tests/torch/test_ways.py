# SPDX-License-Identifier: Apache-2.0
# modes: none
"""The ways to install terrazzo, their errors, and the ends of processes."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from common import ROOT, main, run_python, torch

WHO = "import torch; x = torch.ones(5, device='cuda'); print(torch.cuda.get_allocator_backend())"
INJECT = ROOT / "python" / "terrazzo" / "torch" / "inject"
NO_COMPILER = {"CXX": "nonesuch", "PATH": "/nonexistent", "TERRAZZO_CACHE": "/nonexistent"}


class Ways(unittest.TestCase):
    def check(self, code, expected, **options):
        status, out, err = run_python(code, **options)
        self.assertEqual((status, out.strip()), (0, expected), err)
        return err

    def test_one_line(self):
        self.check("import terrazzo.torch\nprint(terrazzo.torch.install(), terrazzo.torch.install())", "shim shim")

    def test_hooks_alone(self):
        self.check("import terrazzo.torch\nterrazzo.torch.install(shim=False)\n" + WHO, "pluggable")

    @unittest.skipUnless(torch.distributed.is_nccl_available(), "PyTorch has no NCCL")
    def test_nccl(self):
        """PyTorch 2.15's newer backend for it asks the allocator for a snapshot."""
        code = ("import torch.distributed as dist\n"
                "dist.init_process_group('nccl', store=dist.HashStore(), rank=0, world_size=1)\n"
                "dist.all_reduce(torch.ones(5, device='cuda')); torch.cuda.synchronize(); print('reduced')\n"
                "dist.destroy_process_group()")
        for mode in ("shim", "hooks"):
            status, out, err = run_python("import torch\n" + code, mode=mode)
            self.assertEqual((status, out.strip()), (0, "reduced"), err)

    def test_the_environment(self):
        path = os.pathsep.join([str(INJECT), os.environ.get("PYTHONPATH", "")])
        self.check(WHO, "terrazzo", PYTHONPATH=path, TERRAZZO="1")
        self.check(WHO, "native", PYTHONPATH=path, TERRAZZO="")

    def test_what_fails_after_the_installation(self):
        """Here a warning that the user has turned into an error. By then everything else is done."""
        path = os.pathsep.join([str(INJECT), os.environ.get("PYTHONPATH", "")])
        err = self.check(WHO + "\nprint(torch.cuda.get_per_process_memory_fraction())", "pluggable\n0.25",
                         PYTHONPATH=path, TERRAZZO="1", PYTHONWARNINGS="error:terrazzo runs without",
                         PYTORCH_CUDA_ALLOC_CONF="per_process_memory_fraction:0.25", **NO_COMPILER)
        self.assertIn("terrazzo: installed, but: terrazzo runs without its shim", err)
        self.assertNotIn("not installed", err)

    def test_a_program_that_asks_for_pytorch_first(self):
        """As many libraries do, which can do without."""
        ask = "import importlib.util as u; u.find_spec('torch'); assert u.find_spec('torch').origin\n"
        simulator = ROOT / "python" / "terrazzo" / "sim" / "inject"
        for places in ([INJECT], [INJECT, simulator], [simulator, INJECT]):
            path = os.pathsep.join([*map(str, places), os.environ.get("PYTHONPATH", "")])
            self.check(ask + WHO, "terrazzo", PYTHONPATH=path, TERRAZZO="1")

    def test_the_line_of_the_installed_package(self):
        line = (ROOT / "python" / "terrazzo.pth").read_text()
        self.check(f"exec({line!r})\n" + WHO, "terrazzo", TERRAZZO="1")
        self.check(f"exec({line!r})\n" + WHO, "native", TERRAZZO="0")

    def test_a_sitecustomize_of_the_users_own_is_run_too(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "sitecustomize.py"), "w", encoding="utf-8") as stream:
                stream.write("print('mine')\n")
            path = os.pathsep.join([str(INJECT), folder, os.environ.get("PYTHONPATH", "")])
            self.check(WHO, "mine\nterrazzo", PYTHONPATH=path, TERRAZZO="1")

    def test_a_program_without_pytorch_is_left_alone(self):
        path = os.pathsep.join([str(INJECT), os.environ.get("PYTHONPATH", "")])
        self.check("import sys; print('torch' in sys.modules)", "False", PYTHONPATH=path, TERRAZZO="1")
        line = (ROOT / "python" / "terrazzo.pth").read_text()
        self.check(f"exec({line!r})\nimport sys; print('torch' in sys.modules)", "False", TERRAZZO="1")

    def test_the_simulator_s_own_is_run_too(self):
        simulator = ROOT / "python" / "terrazzo" / "sim" / "inject"
        for order in ([INJECT, simulator], [simulator, INJECT]):
            path = os.pathsep.join([*map(str, order), os.environ.get("PYTHONPATH", "")])
            self.check(WHO, "terrazzo", PYTHONPATH=path, TERRAZZO="1")

    def test_the_command(self):
        program = os.environ.get("TERRAZZO_CLI")
        if not program:
            self.skipTest("TERRAZZO_CLI does not name the program")
        done = subprocess.run([program, "run", "--", sys.executable, "-c", WHO], stdout=subprocess.PIPE, text=True,
                              check=True)
        self.assertEqual(done.stdout.strip(), "terrazzo")

    def test_the_plain_pluggable_allocator(self):
        code = ("import torch, terrazzo.torch as t\n"
                "a = torch.cuda.memory.CUDAPluggableAllocator(str(t._parts.find_library()), 'trz_torch_alloc', "
                "'trz_torch_free')\n"
                "torch.cuda.memory.change_current_allocator(a)\n"
                "x = torch.arange(100).cuda()\n"
                "try:\n    torch.empty(1 << 45, device='cuda')\n"
                "except torch.OutOfMemoryError:\n    print('no memory')\n"
                "print(x.cpu().tolist() == list(range(100)))")
        self.check(code, "no memory\nTrue")

    def test_too_late(self):
        status, _, err = run_python("import torch; torch.cuda.init(); import terrazzo.torch; terrazzo.torch.install()")
        self.assertEqual(status, 1)
        self.assertIn("comes too late", err)

    def test_another_allocator_is_there(self):
        code = ("import torch, terrazzo.torch as t\n"
                "a = torch.cuda.memory.CUDAPluggableAllocator(str(t._parts.find_library()), 'trz_torch_alloc', "
                "'trz_torch_free')\n"
                "torch.cuda.memory.change_current_allocator(a)\n"
                "t.install()")
        status, _, err = run_python(code)
        self.assertEqual(status, 1)
        self.assertIn("PyTorch refuses terrazzo", err)

    def test_without_a_compiler(self):
        code = ("import warnings; warnings.simplefilter('always')\nimport terrazzo.torch\n"
                "print(terrazzo.torch.install(), terrazzo.torch.missing())\n" + WHO)
        status, out, err = run_python(code, **NO_COMPILER)
        self.assertEqual(status, 0, err)
        self.assertIn("a C++ compiler is missing", out)
        self.assertTrue(out.strip().endswith("pluggable"))
        self.assertIn("terrazzo runs without its shim", err)

    def test_a_release_that_is_too_old_for_the_shim(self):
        code = ("import torch; torch.__version__ = '2.5.1'\nimport terrazzo.torch\n"
                "print(terrazzo.torch.install(), terrazzo.torch.missing())")
        status, out, err = run_python(code)
        self.assertEqual(status, 0, err)
        self.assertIn("the shim needs PyTorch 2.6 or newer, and this is 2.5.1", out)

    def test_without_a_compiler_a_program_that_asks_about_its_memory_goes_on(self):
        path = os.pathsep.join([str(INJECT), os.environ.get("PYTHONPATH", "")])
        code = ("import torch; c = torch.cuda; c.reset_peak_memory_stats(); c.reset_accumulated_memory_stats()\n"
                "c.memory._record_memory_history()\n"
                "x = torch.zeros(1 << 20, device='cuda'); del x; y = torch.zeros(99, device='cuda')\n"
                "assert c.max_memory_allocated() >= 1 << 22 > c.memory_allocated() > 0\n"
                "assert c.max_memory_reserved() >= c.memory_reserved() > 0 and 'GPU reserved' in c.memory_summary()\n"
                "assert c.memory_snapshot() and c.memory._snapshot()['device_traces'][0]\n"
                "c.memory._record_memory_history(enabled=None); print(c.get_allocator_backend())")
        self.check(code, "pluggable", PYTHONPATH=path, TERRAZZO="1", **NO_COMPILER)

    def test_a_shim_that_is_insisted_on(self):
        status, _, err = run_python("import terrazzo.torch; terrazzo.torch.install(shim=True)", **NO_COMPILER)
        self.assertEqual(status, 1)
        self.assertIn("a C++ compiler is missing", err)

    def test_the_libraries_are_missing(self):
        status, _, err = run_python("import terrazzo.torch as t; t._parts.HERE = t._parts.Path('/a/b/c/d/e'); "
                                    "t.install()", TERRAZZO_LIBRARIES="/nonexistent")
        self.assertEqual(status, 1)
        self.assertIn("libterrazzo_torch.so is missing", err)

    def test_no_gpu_is_no_error(self):
        self.check("import terrazzo.torch; terrazzo.torch.install(); import torch\n"
                   "print(torch.ones(3).sum().item())", "3.0", CUDA_VISIBLE_DEVICES="")


def pytorch(version="2.9.0+cu130", cuda="13.0", folder="/env", abi=True):
    return SimpleNamespace(__version__=version, __file__=folder + "/torch/__init__.py",
                           version=SimpleNamespace(cuda=cuda), _C=SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=abi))


class Shims(unittest.TestCase):
    def key(self, library="/lib/libterrazzo_torch.so", sources=None, env=None, **changed):
        from terrazzo import parts
        from terrazzo.torch import _build
        given = {"CXX": "", "CUDA_HOME": "", "CUDA_PATH": "", **(env or {})}
        with mock.patch.dict(os.environ, given), \
                mock.patch.object(parts, "find_sources", lambda: sources or self.sources):
            return _build.shim_key(pytorch(**changed), Path(library))

    def setUp(self):
        from terrazzo import parts
        self.sources = parts.find_sources()

    def changed_sources(self, folder, name):
        shim = Path(shutil.copytree(self.sources["shim"], Path(folder) / "shim"))
        include = Path(shutil.copytree(self.sources["include"], Path(folder) / "include"))
        before = self.key(sources={"shim": shim, "include": include})
        with open(Path(folder) / name, "a", encoding="utf-8") as stream:
            stream.write("\n")
        return before, self.key(sources={"shim": shim, "include": include})

    def test_one_fits_one_pytorch_one_terrazzo_and_one_choice_of_compiler(self):
        keys = [self.key(), self.key(version="2.9.1+cu130"), self.key(cuda="12.8"), self.key(folder="/other"),
                self.key(abi=False), self.key(library="/other/libterrazzo_torch.so"),
                *(self.key(env={name: "/some/where"}) for name in ("CXX", "CUDA_HOME", "CUDA_PATH"))]
        with mock.patch.object(os, "confstr", lambda name: "another libc"):
            keys.append(self.key())
        with mock.patch.object(os, "uname", lambda: SimpleNamespace(machine="another")):
            keys.append(self.key())
        self.assertEqual(len(set(keys)), len(keys))
        self.assertEqual(self.key(), keys[0])

    def test_one_fits_its_sources(self):
        for name in ("shim/shim.cpp", "shim/shim_versions.hpp", "shim/plug_pools.hpp", "shim/terrazzo_torch.h",
                     "include/terrazzo.h"):
            with tempfile.TemporaryDirectory() as folder:
                before, after = self.changed_sources(folder, name)
            self.assertNotEqual(before, after, name)

    def test_one_that_is_there_needs_no_compiler(self):
        code = "import terrazzo.torch\nprint(terrazzo.torch.install())"
        status, out, err = run_python(code)
        self.assertEqual((status, out.strip()), (0, "shim"), err)
        status, out, err = run_python(code, PATH="/nonexistent")
        self.assertEqual((status, out.strip()), (0, "shim"), err)


class Options(unittest.TestCase):
    def check(self, conf, code, expected):
        status, out, err = run_python(code, mode="shim", PYTORCH_CUDA_ALLOC_CONF=conf)
        self.assertEqual((status, out.strip()), (0, expected), err)

    def test_a_fraction_is_honoured(self):
        self.check("per_process_memory_fraction:0.25",
                   "import torch; torch.cuda.init(); print(torch.cuda.get_per_process_memory_fraction())", "0.25")

    def test_a_variable_that_is_empty_counts_before_the_other(self):
        code = "import torch; torch.cuda.init(); print(torch.cuda.get_per_process_memory_fraction())"
        for first, expected in (("per_process_memory_fraction:0.5", "0.5"), ("", "1.0")):
            status, out, err = run_python(code, mode="shim", PYTORCH_CUDA_ALLOC_CONF=first,
                                          PYTORCH_ALLOC_CONF="per_process_memory_fraction:0.25")
            self.assertEqual((status, out.strip()), (0, expected), err)

    def test_what_is_not_needed_is_taken(self):
        self.check("expandable_segments:True,max_split_size_mb:512,roundup_power2_divisions:[256:1,512:2,>:4]",
                   WHO, "terrazzo")

    def test_the_backend_that_pytorch_has_by_default_may_be_named(self):
        later = "torch.cuda.memory._set_allocator_settings('backend:native,max_split_size_mb:64')"
        self.check("backend:native,expandable_segments:True", f"import torch; {later}\n{WHO}", "terrazzo")

    @unittest.skipUnless(hasattr(torch._C, "_accelerator_setAllocatorSettings"), "PyTorch does not judge them all")
    def test_what_pytorch_refuses_while_a_program_runs(self):
        code = ("import torch\nfor text in (':', '[', ','):\n"
                "    try: torch.cuda.memory._set_allocator_settings(text)\n"
                "    except ValueError as error: print(str(error).split(' key ')[0])")
        self.check("", code, "\n".join(["Unrecognized"] * 3))

    def test_the_switch_to_do_without_a_cache_is_honoured(self):
        code = ("import torch; x = torch.empty(40 << 20, dtype=torch.uint8, device='cuda'); del x\n"
                "torch.cuda.synchronize(); y = torch.empty(5 << 20, dtype=torch.uint8, device='cuda')\n"
                "print(torch.cuda.memory_reserved() < 40 << 20)")
        for conf, returned in (("", True), ("no_cache:off", False)):
            status, out, err = run_python(code, mode="shim", PYTORCH_NO_CUDA_MEMORY_CACHING="1", TERRAZZO_CONF=conf)
            self.assertEqual((status, out.strip()), (0, str(returned)), err)

    def test_another_backend_is_refused(self):
        status, _, err = run_python("", mode="shim", PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
        self.assertEqual(status, 1)
        self.assertIn("exclude each other", err)

    @unittest.skipUnless(hasattr(torch._C, "_accelerator_setAllocatorSettings"), "PyTorch does not judge them all")
    def test_what_pytorch_refuses_is_refused_by_its_own_words(self):
        for conf, words in (("per_process_memory_fraction:-0.1", "per_process_memory_fraction is invalid"),
                            ("per_process_memory_fraction:abc", "ValueError"), ("foo:1", "Unrecognized key 'foo'")):
            status, _, err = run_python("", mode="shim", PYTORCH_CUDA_ALLOC_CONF=conf)
            self.assertEqual(status, 1)
            self.assertIn(words, err)
            # Where a program asks for terrazzo from outside, PyTorch's own allocator refuses it then.
            path = os.pathsep.join([str(INJECT), os.environ.get("PYTHONPATH", "")])
            status, _, err = run_python(WHO, TERRAZZO="1", PYTHONPATH=path, PYTORCH_CUDA_ALLOC_CONF=conf)
            self.assertEqual(status, 1)
            self.assertIn("terrazzo: not installed", err)

    def test_every_key_is_in_the_document(self):
        from terrazzo.torch import _options
        text = (ROOT / "docs" / "pytorch.md").read_text()
        for key, (what, why) in _options.MEANINGS.items():
            self.assertIn(f"| `{key}` | {what} | {why} |", text)


class Ends(unittest.TestCase):
    def check(self, code, mode, expected_status=0):
        status, out, err = run_python(code, mode=mode)
        self.assertEqual(status, expected_status, err)
        self.assertNotIn("a free of", err)
        return out

    def test_a_child_made_by_fork(self):
        code = ("import os, torch\nx = torch.ones(5, device='cuda'); held = [x.clone() for _ in range(9)]\n"
                "pid = os.fork()\n"
                "if pid == 0:\n"
                "    held.clear(); del x\n"
                "    try: torch.ones(5, device='cuda')\n"
                "    except RuntimeError as e: print('refused' if 'fork' in str(e) else e, flush=True)\n"
                "    os._exit(0)\n"
                "print(os.waitpid(pid, 0)[1], x.shape[0])")
        for mode in ("shim", "hooks"):
            self.assertEqual(self.check(code, mode).split(), ["refused", "0", "5"])

    def test_what_ends_in_a_child(self):
        """Objects that a child has inherited end silently, even with trackers."""
        code = ("import os, torch\nfrom torch.profiler import profile, ProfilerActivity\n"
                "def child(held):\n"
                "    pid = os.fork()\n"
                "    if pid == 0:\n"
                "        held.clear()\n"
                "        os._exit(7)\n"
                "    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
                "graph, held = torch.cuda.CUDAGraph(), {}\n"
                "with torch.cuda.graph(graph): held['of_graph'] = torch.ones(5, device='cuda') + 1\n"
                "held['graph'] = graph\ndel graph\nchild(held)\n"
                "if SHIM:\n"
                "    held['pool'] = torch.cuda.MemPool()\n"
                "    with torch.cuda.use_mem_pool(held['pool']): held['of_pool'] = torch.ones(5, device='cuda')\n"
                "    child(held)\n"
                "    with profile(activities=[ProfilerActivity.CPU], profile_memory=True): child(held)\n"
                "    torch.cuda.memory._record_memory_history()\n"
                "    held['noted'] = torch.ones(5, device='cuda'); child(held)\n")
        self.assertEqual(self.check(code.replace("SHIM", "True"), "shim").split(), ["7"] * 4)
        self.assertEqual(self.check(code.replace("SHIM", "False"), "hooks").split(), ["7"])

    def test_the_heap_itself_refuses_in_a_child(self):
        code = ("import os, torch, terrazzo.torch as t\nx = torch.ones(5, device='cuda')\n"
                "pid = os.fork()\n"
                "if pid == 0:\n"
                "    try: t.trim(); t._native_library().heap(0)\n"
                "    except t.Error as e: print(e, flush=True)\n"
                "    os._exit(0)\n"
                "os.waitpid(pid, 0)")
        self.assertIn("made by fork()", self.check(code, "shim"))

    def test_tensors_that_live_to_the_end(self):
        code = ("import torch, atexit\nx = [torch.ones(5, device='cuda') for _ in range(99)]\n"
                "torch.kept = x[0]\natexit.register(lambda: torch.empty(9, device='cuda'))\n"
                "g = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(g): y = x[0] + 1\nprint('end')")
        for mode in ("shim", "hooks"):
            self.assertEqual(self.check(code, mode).strip(), "end")

    def test_exit_without_ceremony(self):
        for mode in ("shim", "hooks"):
            self.check("import os, torch; x = torch.ones(5, device='cuda'); os._exit(3)", mode, 3)

    def test_threads_that_still_run(self):
        code = ("import threading, time, torch\n"
                "def work():\n    while True: torch.empty(1000, device='cuda')\n"
                "torch.cuda.init()\n"
                "for _ in range(3): threading.Thread(target=work, daemon=True).start()\n"
                "time.sleep(0.2); print('end', flush=True); import os; os._exit(0)")
        for mode in ("shim", "hooks"):
            self.assertEqual(self.check(code, mode).strip(), "end")


if __name__ == "__main__":
    main()
