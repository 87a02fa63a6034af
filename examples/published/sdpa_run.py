# SPDX-License-Identifier: Apache-2.0
"""Trains OPT-350m with random weights, as transformers' page on OPT describes: sdpa_run.py sdpa|eager BATCH:TOKENS...

Prints, for each batch, the most that PyTorch had allocated and reserved in MB, after a warm-up, unless memory ran out.
"""
import gc
import sys

import torch
from transformers import AutoModelForCausalLM, OPTConfig

WARMUP, STEPS = 3, 2


def train(model, tokens, steps):
    """As in the benchmark, each step begins with the last one's outputs and loss still there."""
    for _ in range(steps):
        model.zero_grad()
        outputs = model(input_ids=tokens)
        loss = outputs.logits.sum()
        loss.backward()


def peak(model, batch, length):
    tokens = torch.randint(model.config.vocab_size - 1, (batch, length), device="cuda")
    try:
        train(model, tokens, WARMUP)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        train(model, tokens, STEPS)
    except torch.OutOfMemoryError:
        return "out of memory"
    return f"{torch.cuda.max_memory_allocated() / 1e6:.3f} {torch.cuda.max_memory_reserved() / 1e6:.0f}"


config = OPTConfig(vocab_size=50272, hidden_size=1024, num_hidden_layers=24, ffn_dim=4096, num_attention_heads=16,
                   word_embed_proj_dim=512, do_layer_norm_before=False)  # of facebook/opt-350m
model = AutoModelForCausalLM.from_config(config, attn_implementation=sys.argv[1], torch_dtype=torch.float16).cuda()
for case in sys.argv[2:]:
    print("peak", case, peak(model, *map(int, case.split(":"))), flush=True)
    gc.collect()
