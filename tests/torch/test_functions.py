# SPDX-License-Identifier: Apache-2.0
# modes: none
"""The table of docs/pytorch-functions.md: what PyTorch's functions that a pluggable allocator refuses or ignores do
under terrazzo, with the shim and without.

    python tests/torch/test_functions.py --write     makes the document
"""
import ast
import os
import sys
import unittest

from common import ROOT, run_python

DOCUMENT = ROOT / "docs" / "pytorch-functions.md"
HEAD = """# PyTorch's functions under terrazzo

<!-- Made by tests/torch/test_functions.py --write, which runs every line. -->

*Plain* is PyTorch with any `CUDAPluggableAllocator`: E raises RuntimeError, - is accepted without effect, + works. The
other columns are terrazzo without its shim (hooks alone) and with it.

"""

# name, plain, code that is to set `ok`
FUNCTIONS = [
    ("torch.cuda.memory_stats", "E", "ok = c.memory_stats()['allocated_bytes.all.current'] >= 1 << 20"),
    ("torch.cuda.memory_allocated", "E", "ok = c.memory_allocated() >= 1 << 20"),
    ("torch.cuda.max_memory_allocated", "E", "ok = c.max_memory_allocated() >= 1 << 20"),
    ("torch.cuda.memory_reserved", "E", "ok = c.memory_reserved() >= c.memory_allocated() > 0"),
    ("torch.cuda.max_memory_reserved", "E", "ok = c.max_memory_reserved() >= c.memory_reserved() > 0"),
    ("torch.cuda.memory_summary", "E", "ok = 'Allocated memory' in c.memory_summary()"),
    ("torch.cuda.reset_peak_memory_stats", "E",
     "y = new(1 << 22); del y; c.reset_peak_memory_stats(); ok = c.max_memory_allocated() == c.memory_allocated()"),
    ("torch.cuda.reset_accumulated_memory_stats", "E",
     "c.reset_accumulated_memory_stats(); ok = c.memory_stats()['allocation.all.allocated'] == 0"),
    ("torch.cuda.memory_snapshot", "E", "ok = len(c.memory_snapshot()) > 0"),
    ("torch.cuda.memory._snapshot", "E", "ok = len(c.memory._snapshot()['segments']) > 0"),
    ("torch.cuda.memory._dump_snapshot", "E",
     "import os; c.memory._dump_snapshot(path); ok = os.path.getsize(path) > 100"),
    ("torch.cuda.memory._record_memory_history", "E",
     "c.memory._record_memory_history(stacks='python'); y = new(99); "
     "ok = any(e['action'] == 'alloc' for e in c.memory._snapshot()['device_traces'][0])"),
    ("torch._C._cuda_isHistoryEnabled", "E", "ok = torch._C._cuda_isHistoryEnabled() is False"),
    ("torch.cuda.memory._allocation_traceback", "-",
     "c.memory._record_memory_history(stacks='python'); y = new(99); "
     "ok = bool(c.memory._allocation_traceback(y.data_ptr()))"),
    ("torch._C._cuda_attach_out_of_memory_observer", "E",
     "told = []; torch._C._cuda_attach_out_of_memory_observer(lambda *a: told.append(a)); refuse(); "
     "ok = len(told) == 1"),
    ("torch.cuda.get_per_process_memory_fraction", "E",
     "c.set_per_process_memory_fraction(0.5); ok = c.get_per_process_memory_fraction() == 0.5"),
    ("torch.cuda.set_per_process_memory_fraction", "-",
     "c.set_per_process_memory_fraction(0.5); new(c.mem_get_info()[1] // 4); "
     "ok = refuse(c.mem_get_info()[1] * 3 // 4)"),
    ("torch.cuda.empty_cache", "-", "y = new(1 << 28); del y; f = c.mem_get_info()[0]; c.empty_cache(); "
                                    "ok = c.mem_get_info()[0] > f"),
    ("torch.Tensor.record_stream", "-", "x.record_stream(c.Stream()); ok = True"),
    ("torch.OutOfMemoryError", "-", "ok = refuse()"),
    ("cudnn.benchmark (cacheInfo)", "E",
     "torch.backends.cudnn.benchmark = True; "
     "ok = torch.nn.Conv2d(3, 8, 3).cuda()(torch.empty(2, 3, 9, 9, device='cuda')).shape[1] == 8"),
    ("torch.cuda.MemPool, use_mem_pool", "E",
     "p = c.MemPool()\nwith c.use_mem_pool(p): y = new(99)\nok = p.use_count() == 1 and len(p.snapshot()) > 0"),
    ("torch.cuda.MemPool(allocator)", "E",
     "a = c.memory.CUDAPluggableAllocator(library, 'trz_torch_segment_alloc', 'trz_torch_free')\n"
     "p = c.MemPool(a.allocator())\nwith c.use_mem_pool(p): y = new(99)\nok = len(p.snapshot()) > 0"),
    ("torch.cuda.MemPool(use_on_oom=True)", "E", "ok = c.MemPool(use_on_oom=True).use_count() == 1"),
    ("torch.cuda.MemPool(no_split=True)", "E", "ok = c.MemPool(no_split=True).use_count() == 1"),
    ("torch.cuda.graph", "-",
     "g = c.CUDAGraph()\nwith c.graph(g): y = x + 1\n"
     "p = y.data_ptr(); del y; c.empty_cache(); ok = all(new(1 << 20).data_ptr() != p for _ in range(50)); g.replay()"),
    ("torch._C._cuda_getCheckpointState", "E",
     "g = c.CUDAGraph()\nwith c.graph(g): y = x + 1\nok = bool(torch._C._cuda_getCheckpointState(0, g.pool()))"),
    ("torch._C._cuda_setCheckpointPoolState", "E",
     "g = c.CUDAGraph()\nwith c.graph(g): y = x + 1\ns = torch._C._cuda_getCheckpointState(0, g.pool())\n"
     "torch._C._cuda_setCheckpointPoolState(0, s, [y.untyped_storage()._cdata], []); ok = True"),
    ("torch._C._cuda_checkPoolLiveAllocations", "E",
     "g = c.CUDAGraph()\nwith c.graph(g): y = x + 1\n"
     "ok = torch._C._cuda_checkPoolLiveAllocations(0, g.pool(), {y.data_ptr()})"),
    ("torch.compile(backend='cudagraphs')", "E",
     "f = torch.compile(lambda t: t * 2 + 1, backend='cudagraphs')\nwith torch.no_grad():\n"
     "    for _ in range(4): y = f(x.float())\nok = y.shape == x.shape"),
    ("torch.cuda.memory._set_memory_metadata", "-",
     "c.memory._set_memory_metadata('m'); ok = c.memory._get_memory_metadata() == 'm'"),
    ("torch.cuda.memory._annotate_tensor", "-",
     "c.memory._record_memory_history(stacks='python'); c.memory._annotate_tensor(x, 'm'); "
     "ok = any(e['action'] == 'annotate' for e in c.memory._snapshot()['device_traces'][0])"),
    ("torch.profiler's memory events", "-",
     "from torch.profiler import profile, ProfilerActivity\n"
     "with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as p: y = new(1 << 20)\n"
     "ok = any(e.name() == '[memory]' and e.nbytes() == 1 << 20 for e in p.profiler.kineto_results.events())"),
    ("torch.accelerator.memory.memory_stats", "-",
     "ok = torch.accelerator.memory.memory_stats().get('allocated_bytes.all.current', 0) >= 1 << 20"),
    ("torch.accelerator.empty_cache", "-",
     "y = new(1 << 28); del y; f = c.mem_get_info()[0]; torch.accelerator.empty_cache(); ok = c.mem_get_info()[0] > f"),
    ("torch.cuda.caching_allocator_alloc, _delete", "+",
     "p = c.caching_allocator_alloc(99); c.caching_allocator_delete(p); ok = bool(p)"),
    ("torch.cuda.caching_allocator_enable(False)", "-", "c.caching_allocator_enable(False); "
                                                        "ok = not torch._C._cuda_cudaCachingAllocator_is_enabled()"),
    ("torch.cuda.mem_get_info", "+", "ok = c.mem_get_info()[1] > 0"),
    ("UntypedStorage._share_cuda_ (IPC) of memory of shareable()", "E",
     "with terrazzo.torch.shareable(): y = new(99)\nok = bool(y.untyped_storage()._share_cuda_())"),
    ("UntypedStorage._share_cuda_ (IPC) of other memory", "E", "ok = bool(x.untyped_storage()._share_cuda_())"),
]

PRELUDE = """
import torch, tempfile, os
c = torch.cuda
x = torch.zeros(1 << 20, dtype=torch.uint8, device='cuda')
path = os.path.join(tempfile.mkdtemp(), 'f')
library = str(terrazzo.torch._native_library().path)
def new(size): return torch.empty(size, dtype=torch.uint8, device='cuda')
def refuse(size=None):
    try: new(size or c.mem_get_info()[1] * 2)
    except torch.OutOfMemoryError: return True
    return False
"""

def outcome(mode, code):
    """ "works", "no effect", or what is raised, in the first words of its text."""
    body = "\n".join("    " + line for line in code.splitlines())
    program = (PRELUDE + f"try:\n{body}\n    said = 'works' if ok else 'no effect'\n"
               "except Exception as e:\n    said = 'error: ' + str(e).split('. ')[0].splitlines()[0]\n"
               "print('SAID ' + repr(said), flush=True)\nos._exit(0)\n")
    status, out, err = run_python(program, mode=mode)
    said = [line for line in out.splitlines() if line.startswith("SAID ")]
    return ast.literal_eval(said[0][5:]) if said else f"died ({status}): {err[-200:]}"


def table():
    rows = ["| function | plain | hooks alone | shim |", "| --- | --- | --- | --- |"]
    for name, plain, code in FUNCTIONS:
        said = [outcome(mode, code) for mode in ("hooks", "shim")]
        rows.append(f"| `{name}` | {plain} | {said[0]} | {said[1]} |")
        print(rows[-1], file=sys.stderr, flush=True)
    return HEAD + "\n".join(rows) + "\n"


class Table(unittest.TestCase):
    def test_the_document_tells_what_happens(self):
        self.maxDiff = None
        self.assertEqual(DOCUMENT.read_text(), table())


if __name__ == "__main__":
    if "--write" in sys.argv:
        DOCUMENT.write_text(table())
        os._exit(0)
    unittest.main()
