# SPDX-License-Identifier: Apache-2.0
"""Steps of a program: an optimizer's, or as it says; what grows, forecasts, warnings."""
# modes: shim hooks
import threading

from common import GIB, MIB, Case, alone, bytes_on_device, main, run_python, terrazzo, torch


@alone
class Steps(Case):
    def tearDown(self):
        terrazzo.torch.on_warning(None)
        super().tearDown()

    def test_a_leak_is_named_forecast_and_warned_of(self):
        kept, warnings = [], []
        net = torch.nn.Linear(1024, 1024, device="cuda")
        optimizer = torch.optim.SGD(net.parameters())
        terrazzo.torch.on_warning(lambda reason, facts: warnings.append((reason, facts)))
        for _ in range(200):
            net(bytes_on_device(MIB).view(torch.float32).view(-1, 1024)).sum().backward()
            optimizer.step()
            kept.append(bytes_on_device(4 * MIB))
        found = terrazzo.torch.growth()[0]
        self.assertTrue(found["suspect"], found)
        self.assertAlmostEqual(found["bytes_per_step"] / MIB, 4, delta=0.1)
        when = terrazzo.torch.forecast()
        left = (torch.cuda.mem_get_info()[0]) / (4 * MIB)
        self.assertLess(when["steps_low"], left * 1.1)
        self.assertGreater(when["steps_high"], left * 0.9)
        grown = [facts["growth"] for reason, facts in warnings if reason == "growth"]
        self.assertEqual(len(grown), 1)
        self.assertGreater(grown[0]["bytes_per_step"], 3 * MIB)

    def test_a_warning_may_ask_for_a_snapshot(self):
        """While PyTorch records, too, in whichever thread it comes."""
        segments, held = [], []
        torch.cuda.memory._record_memory_history(max_entries=1000)
        terrazzo.torch.on_warning(lambda *_: segments.append(len(torch.cuda.memory._snapshot()["segments"])))

        def fill():
            while not segments:
                held.append(bytes_on_device(GIB))

        thread = threading.Thread(target=fill)
        thread.start()
        thread.join()
        terrazzo.torch.on_warning(None)
        torch.cuda.memory._record_memory_history(enabled=None)
        held.clear()
        torch.cuda.empty_cache()
        self.assertGreater(segments[0], 0)

    def test_steps_that_the_program_tells_count_alone(self):
        status, out, err = run_python("""
import torch, terrazzo.torch
net = torch.nn.Linear(64, 64, device="cuda")
optimizer = torch.optim.SGD(net.parameters())
def steps():
    library = terrazzo.torch._native_library()
    return terrazzo.torch.stats()  # the heap is there
for _ in range(3):
    optimizer.step()
terrazzo.torch.step()
import terrazzo.torch._steps as steps
print(steps._told)
""", mode="hooks")
        self.assertEqual((status, out.strip()), (0, "True"), err)


if __name__ == "__main__":
    main()
