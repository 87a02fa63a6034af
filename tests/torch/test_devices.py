# SPDX-License-Identifier: Apache-2.0
# modes: shim
"""Two devices in one process: each has a heap of its own. A simulated machine is asked for two by the environment."""
import os
import unittest

os.environ.setdefault("TERRAZZO_SIM_DEVICES", "2")

import torch  # noqa: E402

import terrazzo.torch  # noqa: E402
from common import MIB, Case, bytes_on_device, main, run_python  # noqa: E402


@unittest.skipUnless(torch.cuda.device_count() > 1, "needs two devices")
class Devices(Case):
    def test_copies_between_devices(self):
        expected = torch.arange(100_000)
        there = expected.to("cuda:0").to("cuda:1")
        self.assertTrue(torch.equal(there.cpu(), expected))

    def test_each_device_counts_its_own(self):
        before = [torch.cuda.memory_allocated(i) for i in range(2)]
        x = bytes_on_device(3 * MIB, "cuda:1")
        self.assertEqual(torch.cuda.memory_allocated(0), before[0])
        self.assertEqual(torch.cuda.memory_allocated(1), before[1] + 3 * MIB)
        with torch.cuda.device(0):
            del x  # freed while another device is current
        self.assertEqual([torch.cuda.memory_allocated(i) for i in range(2)], before)

    def test_allocations_of_both_in_turns(self):
        before = [torch.cuda.memory_allocated(i) for i in range(2)]
        held = [bytes_on_device(1000 * i + 1, f"cuda:{i % 2}") for i in range(200)]
        self.assertEqual(len({t.data_ptr() for t in held}), 200)
        del held
        self.assertEqual([torch.cuda.memory_allocated(i) for i in range(2)], before)

    def test_a_pool_of_a_device_that_is_not_current(self):
        held = []
        for _ in range(2):
            with terrazzo.torch.pool(tag="there", device=1) as pool:
                held.append(bytes_on_device(30 * MIB, "cuda:1"))
        size = sum(s["total_size"] for s in torch.cuda.memory_snapshot(pool.mempool.id) if s["device"] == 1)
        self.assertGreaterEqual(size, 60 * MIB)
        del held
        terrazzo.torch.release_pool("there", 1)

    def test_snapshots_have_both(self):
        x, y = bytes_on_device(MIB, "cuda:0"), bytes_on_device(MIB, "cuda:1")
        self.assertEqual({s["device"] for s in torch.cuda.memory_snapshot()}, {0, 1})
        self.assertEqual(len(torch.cuda.memory._snapshot()["device_traces"]), 2)
        del x, y


@unittest.skipUnless(torch.cuda.device_count() > 1, "needs two devices")
class Unused(unittest.TestCase):
    """A context takes hundreds of MiB, of each device that each rank of a job touches."""

    def check(self, before, after, **environment):
        code = (f"import torch, terrazzo.torch as t\ntorch.cuda.init(); {before}\nx = torch.ones(5, device='cuda:0')\n"
                f"print(torch._C._cuda_hasPrimaryContext(0), torch._C._cuda_hasPrimaryContext(1))\n{after}\n")
        for mode in "shim", "hooks":
            status, out, err = run_python(code, mode=mode, **environment)
            self.assertEqual((status, out.split()), (0, ["True", "False", "as", "wanted"]), f"{mode}: {err}")

    def test_a_fraction_by_an_option_waits_for_the_devices_use(self):
        self.check("", "size = int(torch.cuda.get_device_properties(1).total_memory * 0.6)\n"
                   "try: torch.empty(size, dtype=torch.uint8, device='cuda:1')\n"
                   "except torch.OutOfMemoryError as e: print('as wanted' if 'limit' in str(e) else e)",
                   PYTORCH_CUDA_ALLOC_CONF="per_process_memory_fraction:0.5")

    def test_a_history_waits_for_the_devices_use(self):
        self.check("t.history()", "import json, tempfile\ny = torch.ones(5, device='cuda:1')\n"
                   "with tempfile.NamedTemporaryFile(suffix='.json') as file:\n"
                   "    t.snapshot(file.name, 1); events = json.load(open(file.name))['device_traces'][1]\n"
                   "print('as wanted' if any(e['action'] == 'alloc' and e['addr'] == y.data_ptr() for e in events) "
                   "else events)")

    def test_pytorchs_own_history_takes_the_place_of_ours(self):
        self.check("t.history(); torch.cuda.memory._record_memory_history()", "y = torch.ones(5, device='cuda:1')\n"
                   "events = torch.cuda.memory._snapshot()['device_traces'][1]\n"
                   "torch.cuda.memory._record_memory_history(enabled=None)\n"
                   "z = torch.ones(5, device='cuda:1')\n"
                   "found = [e['addr'] for e in events if e['action'] == 'alloc']\n"
                   "print('as wanted' if y.data_ptr() in found else events)")


if __name__ == "__main__":
    main()
