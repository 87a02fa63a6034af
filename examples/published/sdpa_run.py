# SPDX-License-Identifier: Apache-2.0
"""Runs a model with random weights, as transformers' page on it describes: sdpa_run.py PAGE sdpa|eager BATCH:TOKENS...

Prints, for each batch, the most that PyTorch had allocated and reserved in MB, after a warm-up, unless memory ran out.
"""
import gc
import sys

import torch
import transformers

WARMUP, STEPS = 3, 2
MODELS = {  # page: (head, configuration, settings of the checkpoint that it names)
    "opt": ("CausalLM", "OPT", {  # facebook/opt-350m
        "vocab_size": 50272, "hidden_size": 1024, "num_hidden_layers": 24, "ffn_dim": 4096, "num_attention_heads": 16,
        "word_embed_proj_dim": 512, "do_layer_norm_before": False}),
    "pythia": ("CausalLM", "GPTNeoX", {  # EleutherAI/pythia-410m-deduped
        "vocab_size": 50304, "hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096,
        "num_attention_heads": 16}),
    "gpt2": ("CausalLM", "GPT2", {"n_embd": 1280, "n_layer": 36, "n_head": 20}),  # openai-community/gpt2-large
    "biogpt": ("CausalLM", "BioGpt", {}),  # microsoft/biogpt
    "biogpt-inference": (None, "BioGpt", {}),
    "distilbert": ("MaskedLM", "DistilBert", {}),  # distilbert-base-uncased
    "albert": ("SequenceClassification", "Albert", {  # albert-base-v2
        "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}),
}


def train(model, tokens, steps):
    """As in the benchmark, each step begins with the last one's outputs and loss still there."""
    for _ in range(steps):
        model.zero_grad()
        outputs = model(input_ids=tokens)
        loss = outputs.logits.sum()
        loss.backward()


def infer(model, tokens):
    """As in the benchmark, what the warm-up has returned is still there."""
    mask = torch.ones(tokens.shape, device="cuda")
    with torch.inference_mode():
        warm = model(tokens, mask)
        torch.cuda.reset_peak_memory_stats()
        for _ in range(STEPS):
            model(tokens, mask)
    return warm


def peak(model, batch, length):
    tokens = torch.randint(model.config.vocab_size - 1, (batch, length), device="cuda")
    try:
        if model.training:
            train(model, tokens, WARMUP)
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            train(model, tokens, STEPS)
        else:
            infer(model, tokens)
    except torch.cuda.OutOfMemoryError:
        return "out of memory"
    return f"{torch.cuda.max_memory_allocated() / 1e6:.3f} {torch.cuda.max_memory_reserved() / 1e6:.0f}"


def make(page, attention):
    head, name, settings = MODELS[page]
    config = getattr(transformers, f"{name}Config")(**settings)
    auto = getattr(transformers, f"AutoModelFor{head}" if head else "AutoModel")
    with torch.device("cuda"):
        model = auto.from_config(config, attn_implementation=attention, torch_dtype=torch.float16)
    return model.cuda().train(head is not None)


made = make(*sys.argv[1:3])
for case in sys.argv[3:]:
    print("peak", case, peak(made, *map(int, case.split(":"))), flush=True)
    gc.collect()
