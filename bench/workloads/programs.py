# SPDX-License-Identifier: Apache-2.0
"""Programs as people run them, each a generator that yields after every step.

They draw batch sizes and lengths from `rng`, so that a seed names one sequence of allocations. What a step leaves in a
local variable lives on into the next step, as in a plain training loop.
"""
import torch
import torch.nn.functional as F
from torch import nn

BF16 = torch.bfloat16
MIB = 1 << 20


def make(cls, config, dtype):
    """A model on the device, its parameters made there in `dtype`."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device("cuda"):
            return cls(config)
    finally:
        torch.set_default_dtype(before)


def llama(hidden=4096, layers=32, intermediate=11008, heads=32, vocabulary=32000):
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(vocab_size=vocabulary, hidden_size=hidden, intermediate_size=intermediate,
                         num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=heads,
                         max_position_embeddings=8192, use_cache=False)
    return make(LlamaForCausalLM, config, BF16)


def tokens(batch, length, vocabulary=32000):
    return torch.randint(0, vocabulary, (batch, length)).cuda()


def trainable(model):
    return [p for p in model.parameters() if p.requires_grad]


def language_step(model, optimizer, batch, length):
    x = tokens(batch, length, model.config.vocab_size)
    out = model(input_ids=x, labels=x, use_cache=False)
    out.loss.backward()
    torch.nn.utils.clip_grad_norm_(trainable(model), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def tiny(rng, steps):
    """A LLaMA of 4 layers, AdamW."""
    model = llama(256, 4, 688, 8, 1000)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        language_step(model, optimizer, 4, rng.randint(32, 512))
        yield


def llama7b_ckpt(rng, steps):
    """Full fine-tuning of a 7B LLaMA: bf16, AdamW, checkpointing, batch 1 to 4 of 128 to 4096 tokens."""
    model = llama()
    model.train()
    model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for _ in range(steps):
        language_step(model, optimizer, rng.choice([1, 2, 4]), rng.randint(128, 4096))
        yield


def llama7b_nockpt(rng, steps):
    """Full fine-tuning without checkpointing, one sequence of 128 to 1536 tokens."""
    model = llama()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for _ in range(steps):
        language_step(model, optimizer, 1, rng.randint(128, 1536))
        yield


def llama7b_sgd_nockpt(rng, steps):
    """Full fine-tuning without checkpointing, plain SGD, batch 1 to 2 of 128 to 2048 tokens."""
    model = llama()
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    for _ in range(steps):
        language_step(model, optimizer, rng.choice([1, 2]), rng.randint(128, 2048))
        yield


class LowRank(nn.Module):
    """A frozen linear layer with a trained low-rank correction."""

    def __init__(self, base, rank=16):
        super().__init__()
        self.base = base
        like = {"device": "cuda", "dtype": base.weight.dtype}
        self.down = nn.Parameter(torch.empty(rank, base.in_features, **like))
        self.up = nn.Parameter(torch.empty(base.out_features, rank, **like))

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(F.dropout(x, 0.05), self.down), self.up)


def lora7b(rng, steps):
    """A frozen 7B LLaMA with corrections of rank 16 at the attention's projections, AdamW on those."""
    model = llama()
    model.requires_grad_(False)
    for layer in model.model.layers:
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(layer.self_attn, name, LowRank(getattr(layer.self_attn, name)))
    model.train()
    optimizer = torch.optim.AdamW(trainable(model), lr=1e-4)
    for _ in range(steps):
        language_step(model, optimizer, rng.choice([1, 2, 4]), rng.randint(64, 1536))
        yield


class CountedGeneration:
    """Makes generate() stop after a number of tokens: whether a sequence has ended is a value on the device, which a
    simulated device does not compute."""

    def __init__(self):
        from transformers.generation.utils import GenerationMixin
        self.left = 0
        GenerationMixin._has_unfinished_sequences = lambda *args, **kwargs: self._unfinished()

    def _unfinished(self):
        self.left -= 1
        return self.left >= 0


def gen7b(rng, steps):
    """Inference on a 7B LLaMA with a growing cache: batch 1 to 16, prompts of 64 to 1024, 64 to 256 new tokens."""
    generation = CountedGeneration()
    model = llama()
    model.eval()
    model.config.use_cache = model.generation_config.use_cache = True
    for _ in range(steps):
        batch, length, new = rng.choice([1, 4, 8, 16]), rng.randint(64, 1024), rng.choice([64, 128, 256])
        generation.left = new
        model.generate(tokens(batch, length), attention_mask=torch.ones(batch, length, dtype=torch.long).cuda(),
                       max_new_tokens=new, do_sample=False, pad_token_id=0, eos_token_id=None)
        yield


def gpt1b3_offload(rng, steps):
    """A 1.3B decoder with checkpointing; tensors for backward are saved to pinned host memory."""
    model = llama(2048, 24, 8192, 32, 50304)
    model.train()
    model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for _ in range(steps):
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            x = tokens(rng.choice([2, 4]), rng.randint(256, 2048), 50304)
            out = model(input_ids=x, labels=x, use_cache=False)
        out.loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield


def vit(rng, steps):
    """ViT-L with automatic mixed precision, batch 16 to 128."""
    from transformers import ViTConfig, ViTForImageClassification
    config = ViTConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096,
                       num_labels=1000)
    model = make(ViTForImageClassification, config, torch.float32)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        batch = rng.choice([16, 32, 64, 96, 128])
        x = torch.empty(batch, 3, 224, 224, device="cuda")
        y = torch.empty(batch, dtype=torch.long, device="cuda")
        with torch.autocast("cuda", dtype=BF16):
            loss = F.cross_entropy(model(x).logits, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield


def resnet50(rng, steps):
    """ResNet-50, SGD with momentum, batch 32 to 256 of images of 160 to 288 pixels."""
    from transformers import ResNetConfig, ResNetForImageClassification
    model = make(ResNetForImageClassification, ResNetConfig(num_labels=1000), torch.float32)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(steps):
        batch, pixels = rng.choice([32, 64, 96, 128, 160, 256]), rng.choice([160, 192, 224, 288])
        x = torch.empty(batch, 3, pixels, pixels, device="cuda")
        y = torch.empty(batch, dtype=torch.long, device="cuda")
        F.cross_entropy(model(x).logits, y).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield


def block(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def fsdp_like(rng, steps):
    """The memory pattern of sharded training: gathering on one side stream, reducing on another, then a graph."""
    main, gather, reduce = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()
    shards = [block(rng.randint(8, 64) * MIB) for _ in range(32)]
    for _ in range(steps):
        activations, whole = [], None
        batch = rng.randint(1, 8)
        for shard in shards:
            with torch.cuda.stream(gather):
                following = block(shard.numel() * 8)
            following.record_stream(main)
            main.wait_stream(gather)
            whole = following
            activations.append(block(batch * rng.randint(4, 12) * MIB))
            block(batch * 4 * MIB)
        for shard in reversed(shards):
            with torch.cuda.stream(gather):
                whole = block(shard.numel() * 8)
            whole.record_stream(main)
            gradient = torch.empty_like(whole)
            with torch.cuda.stream(reduce):
                reduce.wait_stream(main)
                reduced = torch.empty_like(shard)
                gradient.record_stream(reduce)
            del gradient
            activations.pop()
        yield
    graph, x = torch.cuda.CUDAGraph(), torch.zeros(MIB, device="cuda")
    with torch.cuda.graph(graph):
        y = [x * i for i in range(8)]
    for _ in range(5):
        graph.replay()
    del reduced, y


# Name -> (program, steps).
PROGRAMS = {program.__name__: (program, steps) for program, steps in (
    (tiny, 50), (llama7b_ckpt, 30), (llama7b_nockpt, 30), (llama7b_sgd_nockpt, 40), (lora7b, 40), (gen7b, 3),
    (gpt1b3_offload, 25), (vit, 40), (resnet50, 40), (fsdp_like, 20))}
