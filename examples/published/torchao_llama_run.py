# SPDX-License-Identifier: Apache-2.0
"""torchao's program that generates texts with Llama: torchao_llama_run.py MODEL STEPS TOKENS [kv] [mask]

TOKENS is the size of the cache; kv quantizes it, mask makes the causal mask row by row. Weights and tokens are made up.
"""
import sys
import tempfile
from pathlib import Path

import torch
from torchao._models.llama import generate


class Tokenizer:
    def eos_id(self):
        return 2

    def decode(self, _):
        return ""


def load(path, device, precision):
    with torch.device("meta"):
        model = generate.Transformer.from_name(path.parent.name)
    return model.to(precision).to_empty(device=device).eval()


model, steps, tokens, *how = sys.argv[1:]
generate._load_model = load
generate.get_tokenizer = lambda *_: Tokenizer()
generate.encode_tokens = lambda *_, device, **__: torch.arange(1, 7, dtype=torch.int, device=device)
with tempfile.TemporaryDirectory() as folder:
    checkpoint = Path(folder) / model / "model.pth"
    checkpoint.parent.mkdir()
    checkpoint.touch()
    (checkpoint.parent / "tokenizer.model").touch()
    generate.main(num_samples=2, max_new_tokens=int(steps), checkpoint_path=checkpoint, cache_size=int(tokens),
                  kv_cache_quantization="kv" in how, linear_causal_mask="mask" in how, compile=False)
print(f"allocated {torch.cuda.max_memory_allocated() / 1e9:.3f} reserved {torch.cuda.max_memory_reserved() / 1e9:.3f}")
