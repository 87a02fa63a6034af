# SPDX-License-Identifier: Apache-2.0
"""Plans through libraries of Hugging Face, a few steps of a small model by 2 ranks.

    hf_plans.py accelerate VERSION   accelerate's FSDP, of version 1 or 2; 0: DDP
    hf_plans.py trainer VERSION      the Trainer's
"""
import os
import sys
import tempfile

import forked_ranks
import torch

WIDTH, LAYERS, STEPS = 1024, 6, 3


def with_accelerate(version):
    from accelerate import Accelerator, FullyShardedDataParallelPlugin
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=version, auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["Linear"],
        reshard_after_forward=True if version == 2 else "FULL_SHARD") if version else None
    accelerator = Accelerator(mixed_precision="bf16", fsdp_plugin=plugin)
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
    model, optimizer, data = accelerator.prepare(
        model, torch.optim.AdamW(model.parameters()),
        torch.utils.data.DataLoader(torch.randn(8 * STEPS, WIDTH), batch_size=4))
    for batch in data:
        accelerator.backward(model(batch).float().pow(2).mean())
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if not version:
            forked_ranks.let_go()
    accelerator.get_state_dict(model)
    accelerator.end_training()


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return {"input_ids": torch.arange(64), "labels": torch.arange(64)}


def with_trainer(version):
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
    model = LlamaForCausalLM(LlamaConfig(
        hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4,
        vocab_size=1000))
    plan = {"fsdp": "full_shard auto_wrap", "fsdp_config": {
        "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"], "version": version}} if version else {}
    with tempfile.TemporaryDirectory() as folder:
        Trainer(model, TrainingArguments(output_dir=folder, per_device_train_batch_size=2, max_steps=STEPS, bf16=True,
                                         save_strategy="no", report_to=[], **plan), train_dataset=Tokens()).train()


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    {"accelerate": with_accelerate, "trainer": with_trainer}[sys.argv[1]](int(sys.argv[2]))
