# SPDX-License-Identifier: Apache-2.0
"""Runs a script of LitGPT's on a model, a tokenizer and texts made up here: litgpt_run.py FOLDER MODEL LONGEST
MICROBATCH SCRIPT, in LitGPT's folder.

The script takes them from a network. Weights and words do not affect how much memory it takes; the longest text does.
The script begins with that. Here a step of the optimizer follows 2 batches, not 128 texts, and there are 2 steps.
"""
import dataclasses
import importlib
import json
import sys
from pathlib import Path

import torch

folder, name, longest, microbatch, script = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:5]), sys.argv[5]
sys.path.insert(0, "")
config = importlib.import_module("lit_gpt.lora" if script == "finetune.lora" else "lit_gpt").Config.from_name(name)


def write_inputs(checkpoint, data):
    checkpoint.mkdir()
    data.mkdir()
    words = {"<unk>": 0, **{f"word{n}": n for n in range(1, config.vocab_size)}}
    model = {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"}
    (checkpoint / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))
    (checkpoint / "tokenizer_config.json").write_text("{}")
    (checkpoint / "lit_config.json").write_text(json.dumps(dataclasses.asdict(config)))
    (checkpoint / "lit_model.pth").touch()  # never read
    for kind, count in ("train", 400), ("test", 10):
        lengths = [longest, *[100 + n % 60 for n in range(count)]] if kind == "train" else [100] * count
        rows = [{"input_ids": torch.ones(n, dtype=torch.int64), "labels": torch.ones(n, dtype=torch.int64)}
                for n in lengths]
        torch.save(rows, data / f"{kind}.pt")


def load_weights(_):
    """Zeros, by name."""
    with torch.device("meta"):
        model = importlib.import_module("lit_gpt.model").GPT(importlib.import_module("lit_gpt").Config.from_name(name))
    zero = torch.zeros((), dtype=torch.bfloat16)
    return {key: zero.expand(part.shape) for key, part in model.state_dict().items()}


write_inputs(folder / name, folder / "data")
program = importlib.import_module(script)
importlib.import_module("lit_gpt.utils").lazy_load = load_weights
common = {"checkpoint_dir": folder / name, "precision": "bf16-true"}
torch.set_float32_matmul_precision("high")
torch.multinomial = lambda weights, num_samples: weights.argmax(-1, keepdim=True)  # which asks whether they are finite
if script.startswith("finetune"):
    program.micro_batch_size, program.gradient_accumulation_iters, program.max_iters = microbatch, 2, 4
    program.eval_iters = 2
    program.setup(data_dir=folder / "data", out_dir=folder / "out", **common)
else:
    program.main(**common)
