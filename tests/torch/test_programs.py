# SPDX-License-Identifier: Apache-2.0
# modes: shim hooks
"""Programs as people write them, unchanged."""
import tempfile
import unittest

import torch

import terrazzo.torch
from common import MIB, Case, alone, bytes_on_device, main, shim_only, stat

try:
    import transformers
except ImportError:
    transformers = None
try:
    import accelerate
except ImportError:
    accelerate = None


def small_model():
    return torch.nn.Sequential(torch.nn.Linear(128, 512), torch.nn.GELU(), torch.nn.Linear(512, 128))


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.full((128,), float(i)), torch.full((128,), float(-i))


class Programs(Case):
    def test_a_training_loop(self):
        model = small_model().cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        for i in range(20):
            model(torch.randn(8 + i, 128, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.cuda.synchronize()

    def test_checkpointing(self):
        from torch.utils.checkpoint import checkpoint
        layers = torch.nn.ModuleList(small_model() for _ in range(4)).cuda()
        x = torch.randn(64, 128, device="cuda", requires_grad=True)
        y = x
        for layer in layers:
            y = checkpoint(layer, y, use_reentrant=False)
        y.sum().backward()
        self.assertIsNotNone(x.grad)

    def test_a_loader_with_workers_and_pinned_memory(self):
        loader = torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2, pin_memory=True)
        bytes_on_device(MIB)  # the workers inherit a heap that they must leave alone
        seen = []
        for x, y in loader:
            there = x.cuda(non_blocking=True)
            torch.cuda.synchronize()
            self.assertTrue(torch.equal(there.cpu(), x))
            seen.append(len(y))
        self.assertEqual(seen, [8] * 8)

    def test_saved_tensors_on_the_host(self):
        model = small_model().cuda()
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            out = model(torch.randn(32, 128, device="cuda"))
        out.sum().backward()

    def test_mixed_precision(self):
        model, scaler = small_model().cuda(), torch.amp.GradScaler("cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(torch.randn(32, 128, device="cuda")).float().sum()
        scaler.scale(loss).backward()

    def test_saving_and_loading(self):
        model = small_model().cuda()
        with tempfile.NamedTemporaryFile() as file:
            torch.save(model.state_dict(), file.name)
            model.load_state_dict(torch.load(file.name, map_location="cuda"))

    @unittest.skipUnless(transformers and accelerate, "transformers or accelerate is not installed")
    def test_the_trainer_of_transformers(self):
        config = transformers.LlamaConfig(vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                                          num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=64)
        model = transformers.LlamaForCausalLM(config)
        data = [{"input_ids": torch.arange(16) + i, "labels": torch.arange(16) + i} for i in range(16)]
        with tempfile.TemporaryDirectory() as folder:
            arguments = transformers.TrainingArguments(output_dir=folder, max_steps=4, per_device_train_batch_size=4,
                                                       report_to=[], save_strategy="no", disable_tqdm=True,
                                                       gradient_checkpointing=True, dataloader_num_workers=1)
            trainer = transformers.Trainer(model=model, args=arguments, train_dataset=data)
            result = trainer.train()
        self.assertEqual(result.global_step, 4)

    @unittest.skipUnless(accelerate, "accelerate is not installed")
    def test_accelerate(self):
        accelerator = accelerate.Accelerator()
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = torch.utils.data.DataLoader(Numbers(), batch_size=16)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for x, y in loader:
            accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
        accelerator.free_memory()

    @unittest.skipUnless(accelerate, "accelerate is not installed")
    @alone
    def test_a_batch_size_that_accelerate_finds(self):
        total, tried = torch.cuda.mem_get_info()[1], []

        @accelerate.utils.find_executable_batch_size(starting_batch_size=64)
        def train(batch_size):
            tried.append(batch_size)
            bytes_on_device(total // 20 * batch_size)
            return batch_size

        self.assertLess(train(), 20)
        self.assertEqual(tried[0], 64)
        torch.cuda.empty_cache()

    def test_a_cache_of_keys_and_values(self):
        with terrazzo.torch.pool(tag="kv_cache"):
            cache = torch.empty(4, 2, 8, 1024, 64, device="cuda")
        for step in range(8):
            cache[:, :, :, step] = torch.randn(4, 2, 8, 64, device="cuda")
        del cache
        terrazzo.torch.release_pool("kv_cache")


@shim_only
class Observed(Case):
    def test_the_profiler_sees_memory(self):
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as p:
            x = torch.randn(1000, 1000, device="cuda")
            y = torch.zeros((), device="cuda")
            held = torch.cuda.memory_allocated()
            del x, y
        memory = [event for event in p.profiler.kineto_results.events() if event.name() == "[memory]"
                  and event.device_type() == torch.autograd.DeviceType.CUDA]
        sizes = [4_000_256, 512]  # what memory_allocated() counts, as natively
        self.assertEqual(sorted(event.nbytes() for event in memory), sorted(sizes + [-size for size in sizes]))
        self.assertEqual(held - torch.cuda.memory_allocated(), sum(sizes))

    def test_gpu_trace_callbacks(self):
        import torch.cuda._gpu_trace as trace
        from torch._C import _activate_gpu_trace
        made, freed = [], []
        trace.register_callback_for_memory_allocation(made.append)
        trace.register_callback_for_memory_deallocation(freed.append)
        _activate_gpu_trace()
        for recorded in False, True:
            torch.cuda.memory._record_memory_history(enabled="all" if recorded else None)
            x = bytes_on_device(MIB)
            address = x.data_ptr()
            del x
            self.assertEqual((made.count(address), freed.count(address)), (1, 1), f"recorded: {recorded}")
            made.clear()
            freed.clear()
        torch.cuda.memory._record_memory_history(enabled=None)
        bytes_on_device(0)
        self.assertEqual(made, [])

    @unittest.skipUnless(hasattr(torch._C, "_cuda_memoryMetadataSupported"), "this PyTorch has no such function")
    def test_metadata_of_memory_is_supported(self):
        self.assertTrue(torch._C._cuda_memoryMetadataSupported())
        torch.cuda.memory._set_memory_metadata("here")
        self.assertEqual(torch.cuda.memory._get_memory_metadata(), "here")
        torch.cuda.memory._set_memory_metadata("")

    def test_nothing_is_left_of_a_model(self):
        before = stat("allocated_bytes.all.current")
        model = small_model().cuda()
        del model
        self.assertEqual(stat("allocated_bytes.all.current"), before)


if __name__ == "__main__":
    main()
