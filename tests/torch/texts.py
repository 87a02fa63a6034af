# SPDX-License-Identifier: Apache-2.0
"""generate() of transformers ends at its limit, or where a criterion of the program's holds of which the host knows."""
import torch
import transformers


def is_long(tokens, scores, **_):
    return torch.full((len(tokens),), tokens.shape[1] >= 10, dtype=torch.bool, device=tokens.device)


config = transformers.LlamaConfig(vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                                  num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=64)
model = transformers.LlamaForCausalLM(config).cuda()
options = {"max_new_tokens": 6, "min_new_tokens": 6}
for more, length in (({}, 13), ({"num_beams": 3}, 13), ({"stopping_criteria": [is_long]}, 10)):
    found = model.generate(torch.arange(5, 12).view(1, 7).cuda(), **options, **more)
    assert found.shape == (1, length), found.shape
