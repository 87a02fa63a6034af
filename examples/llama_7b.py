# SPDX-License-Identifier: Apache-2.0
"""Trains a 7B LLaMA for some steps. Try it without a GPU, after `terrazzo sim --setup ENV --with transformers`:

    terrazzo sim --env ENV -- python examples/llama_7b.py
"""
import argparse

import torch
from transformers import LlamaConfig, LlamaForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=1)
parser.add_argument("--length", type=int, default=2048)
parser.add_argument("--steps", type=int, default=3)
args = parser.parse_args()

torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    model = LlamaForCausalLM(LlamaConfig(use_cache=False))
model.train()
if hasattr(model, "activation_checkpointing_enable"):
    model.activation_checkpointing_enable()
else:  # an older transformers
    model.gradient_checkpointing_enable()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

for step in range(args.steps):
    tokens = torch.randint(0, model.config.vocab_size, (args.batch, args.length)).cuda()
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB allocated at the peak", flush=True)

print(torch.cuda.memory_summary(abbreviated=True))
