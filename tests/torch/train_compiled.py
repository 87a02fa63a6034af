# SPDX-License-Identifier: Apache-2.0
"""A tiny LLaMA under torch.compile: train_compiled.py MODE, default or reduce-overhead."""
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.set_default_dtype(torch.bfloat16)
config = LlamaConfig(vocab_size=1000, hidden_size=256, intermediate_size=688, num_hidden_layers=2,
                     num_attention_heads=8, use_cache=False)
with torch.device("cuda"):
    model = LlamaForCausalLM(config)
compiled = torch.compile(model, mode=sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(6):
    tokens = torch.randint(0, 1000, (4, 128), device="cuda")
    compiled(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
assert torch.cuda.max_memory_allocated() > 0
