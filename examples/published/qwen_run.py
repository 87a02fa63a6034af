# SPDX-License-Identifier: Apache-2.0
"""Generates with Qwen2.5 of a size from prompts of given lengths: qwen_run.py SIZE STEPS TOKENS...

Prints, for each length, the most that PyTorch had allocated in GiB. Attention is PyTorch's flash attention, which needs
what the flash-attn package needs: no mask, and keys and values of each group once. Weights and tokens are made up.
"""
import gc
import sys

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

SIZES = {  # size: width, width of the MLP, layers, heads, heads of keys, words, whether the last layer is the first
    "0.5B": (896, 4864, 24, 14, 2, 151936, True),
    "1.5B": (1536, 8960, 28, 12, 2, 151936, True),
    "3B": (2048, 11008, 36, 16, 2, 151936, True),
    "7B": (3584, 18944, 28, 28, 4, 152064, False),
    "14B": (5120, 13824, 48, 40, 8, 152064, False),
    "32B": (5120, 27648, 64, 40, 8, 152064, False),
}


def attend(_, q, k, v, mask, scaling, **__):
    assert mask is None
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1, scale=scaling,
                                                           enable_gqa=True)
    return out.transpose(1, 2).contiguous(), None


size, steps, *lengths = sys.argv[1:]
width, mlp, layers, heads, groups, words, tied = SIZES[size]
ALL_ATTENTION_FUNCTIONS["sdpa"] = attend
with torch.device("meta"):
    model = Qwen2ForCausalLM(Qwen2Config(
        hidden_size=width, intermediate_size=mlp, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=groups, vocab_size=words, tie_word_embeddings=tied, sliding_window=None)).bfloat16()
model = model.to_empty(device="cuda").eval()
model.tie_weights()
model.model.rotary_emb.float()
for length in lengths:
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    tokens = torch.zeros(1, int(length), dtype=torch.long, device="cuda")
    model.generate(tokens, max_new_tokens=int(steps), do_sample=False)
    print(f"{length}: allocated {torch.cuda.max_memory_allocated() / 2**30:.2f}",
          f"reserved {torch.cuda.max_memory_reserved() / 2**30:.2f}", flush=True)
