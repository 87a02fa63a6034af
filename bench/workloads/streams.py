# SPDX-License-Identifier: Apache-2.0
"""Programs that use several streams, as people run them: generators like those of programs.py.

Programs that train on several ranks run as one rank of a larger world (terrazzo sim --world-size).
"""
import os
import queue
import random
import threading

import torch
import torch.nn.functional as F
from torch import nn

from programs import BF16, MIB, llama, make, tokens

VOCABULARY = 32000


def language_loss(model, batch, length):
    x = tokens(batch, length, VOCABULARY)
    return model(input_ids=x, labels=x, use_cache=False).loss


def train_step(model, optimizer, batch, length):
    language_loss(model, batch, length).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


# ---- several ranks ----

def join():
    """Makes the default process group, over a store of the rank's own."""
    import torch.distributed as dist
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    return dist


def fsdp2(rng, steps):
    """A 7B LLaMA under fully_shard, one group for each layer, bf16 with gradients reduced in fp32; one rank of 8. The
    length varies by batch, as in fine-tuning."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    dist = join()
    with torch.device("meta"):
        model = llama()
    policy = {"mp_policy": MixedPrecisionPolicy(param_dtype=BF16, reduce_dtype=torch.float32)}
    model.float()
    for layer in model.model.layers:
        fully_shard(layer, **policy)
    fully_shard(model, **policy)
    model.to_empty(device="cuda")
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for _ in range(steps):
        train_step(model, optimizer, 2, rng.randint(512, 2048))
        yield
    dist.destroy_process_group()


def fsdp1(rng, steps):
    """A 7B LLaMA under FullyShardedDataParallel with checkpointing; one rank of 8, batch 1 to 4 of 512 to 4096."""
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    dist = join()
    with torch.device("meta"):
        model = llama()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = FullyShardedDataParallel(
        model, auto_wrap_policy=ModuleWrapPolicy({type(model.model.layers[0])}), use_orig_params=True,
        device_id=torch.cuda.current_device(), mixed_precision=MixedPrecision(param_dtype=BF16, reduce_dtype=BF16),
        param_init_fn=lambda module: module.to_empty(device="cuda", recurse=False))
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for _ in range(steps):
        train_step(model, optimizer, rng.choice([1, 2, 4]), rng.randint(512, 4096))
        yield
    dist.destroy_process_group()


class Stage(nn.Module):
    """Some of a LLaMA's layers, from one rank to the next."""

    def __init__(self, config, layers):
        super().__init__()
        from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding
        self.layers = nn.ModuleList(LlamaDecoderLayer(config, i) for i in range(layers))
        self.rotary = LlamaRotaryEmbedding(config)

    def forward(self, x):
        positions = torch.arange(x.shape[1], device=x.device).unsqueeze(0)
        embeddings = self.rotary(x, positions)
        for layer in self.layers:
            x = layer(x, position_embeddings=embeddings)
        return x


def pipeline_1f1b(_rng, steps):
    """The second of four stages of a 7B LLaMA, 1F1B with 16 microbatches of one sequence of 2048."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    from transformers import LlamaConfig
    dist = join()
    rank, ranks, length = dist.get_rank(), dist.get_world_size(), 2048
    config = LlamaConfig(hidden_size=4096, intermediate_size=11008, num_attention_heads=32, num_key_value_heads=32,
                         max_position_embeddings=8192, use_cache=False, attn_implementation="sdpa")
    stage = make(lambda c: Stage(c, 32 // ranks), config, BF16)
    shapes = [torch.empty(1, length, 4096, device="meta", dtype=BF16, requires_grad=grad) for grad in (rank > 0, True)]
    schedule = Schedule1F1B(PipelineStage(stage, rank, ranks, torch.device("cuda", torch.cuda.current_device()),
                                          *shapes), 16, loss_fn=lambda out, _: out.float().pow(2).mean())
    optimizer = torch.optim.AdamW(stage.parameters(), lr=1e-5)
    for _ in range(steps):
        x = [torch.zeros(16, length, 4096, dtype=BF16, device="cuda")] if rank == 0 else []
        schedule.step(*x, target=torch.zeros(16, device="cuda") if rank == ranks - 1 else None)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield
    dist.destroy_process_group()


# ---- copies beside the computation ----

class OffloadedAdamW:
    """AdamW whose moments live in pinned host memory: while it updates parameters, one stream brings the moments of the
    next, and another takes the last ones back."""

    def __init__(self, parameters, ahead=2):
        self.parameters, self.ahead, self.steps = list(parameters), ahead, torch.zeros((), device="cuda")
        self.bring, self.back = torch.cuda.Stream(), torch.cuda.Stream()
        self.homes = [torch.zeros(2, *p.shape, dtype=p.dtype, pin_memory=True) for p in self.parameters]

    def fetch(self, home):
        with torch.cuda.stream(self.bring):
            moments = home.cuda(non_blocking=True)
            return moments, self.bring.record_event()

    def step(self):
        self.steps += 1
        main = torch.cuda.current_stream()
        self.bring.wait_stream(self.back)
        coming = [self.fetch(home) for home in self.homes[:self.ahead]]
        for i, parameter in enumerate(self.parameters):
            moments, ready = coming.pop(0)
            if i + self.ahead < len(self.homes):
                coming.append(self.fetch(self.homes[i + self.ahead]))
            main.wait_event(ready)
            moments.record_stream(main)
            torch._fused_adamw_([parameter.data], [parameter.grad], [moments[0]], [moments[1]], [], [self.steps],
                                lr=1e-5, beta1=0.9, beta2=0.999, weight_decay=0.01, eps=1e-8, amsgrad=False,
                                maximize=False)
            self.back.wait_stream(main)
            with torch.cuda.stream(self.back):
                self.homes[i].copy_(moments, non_blocking=True)
            moments.record_stream(self.back)
            parameter.grad = None


def offload_optimizer(rng, steps):
    """A 0.5B LLaMA whose moments live on the host, batches of up to 8 sequences of 512 to 2048."""
    model = llama(1024, 24, 4096, 16, VOCABULARY)
    model.train()
    optimizer = OffloadedAdamW(model.parameters())
    for _ in range(steps):
        language_loss(model, rng.choice([2, 4, 8]), rng.randint(512, 2048)).backward()
        optimizer.step()
        yield


class OffloadedActivations:
    """Moves what autograd saves, of `least` bytes and more, to pinned host memory on a copy stream, and back on it a
    few tensors before backward asks. Holds the device's copy until it has waited for the copy out."""

    def __init__(self, least=MIB, most_leaving=3, ahead=2):
        self.least, self.most_leaving, self.ahead = least, most_leaving, ahead
        self.copies = torch.cuda.Stream()
        self.leaving, self.hosts, self.back, self.pinned = [], {}, {}, {}

    def pack(self, tensor):
        stays = not tensor.is_cuda or tensor.nbytes < self.least or isinstance(tensor, nn.Parameter)
        if stays or not tensor.is_contiguous():
            return tensor
        main = torch.cuda.current_stream()
        self.copies.wait_stream(main)
        key = len(self.hosts)
        with torch.cuda.stream(self.copies):
            kept = self.pinned.setdefault((tensor.shape, tensor.dtype), [])
            host = kept.pop() if kept else torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            host.copy_(tensor, non_blocking=True)
            self.leaving.append((tensor, self.copies.record_event()))
        self.hosts[key] = host
        self.let_go(self.most_leaving)
        return key

    def let_go(self, most):
        while len(self.leaving) > most:
            tensor, left = self.leaving.pop(0)
            torch.cuda.current_stream().wait_event(left)
            del tensor

    def fetch(self, key):
        if key in self.hosts and key not in self.back:
            with torch.cuda.stream(self.copies):
                self.back[key] = self.hosts[key].cuda(non_blocking=True), self.copies.record_event()

    def unpack(self, packed):
        if isinstance(packed, torch.Tensor):
            return packed
        self.let_go(0)
        for key in range(packed, packed - self.ahead - 1, -1):
            self.fetch(key)
        tensor, arrived = self.back.pop(packed)
        host = self.hosts.pop(packed)
        self.pinned[(host.shape, host.dtype)].append(host)
        main = torch.cuda.current_stream()
        main.wait_event(arrived)
        tensor.record_stream(main)
        return tensor

    def saved(self):
        return torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack)


def offload_activations(rng, steps):
    """A 3B LLaMA with checkpointing whose checkpoints travel to the host and back on a copy stream."""
    model = llama(2560, 32, 6912, 20, VOCABULARY)
    model.train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    offload = OffloadedActivations()
    for _ in range(steps):
        with offload.saved():
            loss = language_loss(model, rng.choice([2, 4, 8]), rng.randint(512, 2048))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield


class Prefetcher:
    """Brings the next batch on a stream of its own while the current one is used, as NVIDIA's examples do."""

    def __init__(self, batches):
        self.batches, self.stream = iter(batches), torch.cuda.Stream()
        self.preload()

    def preload(self):
        batch = next(self.batches, None)
        with torch.cuda.stream(self.stream):
            self.next = batch and [part.cuda(non_blocking=True) for part in batch]
            if self.next:
                images, labels = self.next
                self.next = [images.float().sub_(127.5).div_(127.5), labels]

    def __iter__(self):
        while self.next:
            torch.cuda.current_stream().wait_stream(self.stream)
            batch = self.next
            for part in batch:
                part.record_stream(torch.cuda.current_stream())
            self.preload()
            yield batch


def loader(rng, steps):
    """ViT-L with mixed precision; images, 48 to 96 a batch, come as bytes on a side stream and become floats on it."""
    from transformers import ViTConfig, ViTForImageClassification
    config = ViTConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096,
                       num_labels=1000)
    model = make(ViTForImageClassification, config, torch.float32)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())
    sizes = [rng.choice([48, 64, 80, 96]) for _ in range(steps)]
    batches = ((torch.zeros(size, 3, 224, 224, dtype=torch.uint8).pin_memory(),
                torch.zeros(size, dtype=torch.long).pin_memory()) for size in sizes)
    for images, labels in Prefetcher(batches):
        with torch.autocast("cuda", dtype=BF16):
            loss = F.cross_entropy(model(images).logits, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield


# ---- inference ----

class Decoder(nn.Module):
    """A LLaMA's layers over a cache of keys and values with room for all sequences."""

    def __init__(self, hidden=4096, layers=16, heads=32, slots=32, room=2048):
        super().__init__()
        self.heads, self.hidden = heads, hidden
        like = {"device": "cuda", "dtype": BF16}
        self.embedding = nn.Embedding(VOCABULARY, hidden, **like)
        self.layers = nn.ModuleList(nn.ModuleDict({
            "qkv": nn.Linear(hidden, 3 * hidden, False, **like), "out": nn.Linear(hidden, hidden, False, **like),
            "up": nn.Linear(hidden, 8 * hidden // 3, False, **like),
            "down": nn.Linear(8 * hidden // 3, hidden, False, **like)}) for _ in range(layers))
        self.head = nn.Linear(hidden, VOCABULARY, False, **like)
        self.cache = [torch.empty(2, slots, room, hidden, **like) for _ in range(layers)]

    def forward(self, x, cached):
        """Logits of the last tokens of x; `cached`: how many earlier tokens to read from the cache."""
        batch, length = x.shape
        h = self.embedding(x)
        for layer, cache in zip(self.layers, self.cache):
            q, k, v = layer["qkv"](F.rms_norm(h, (self.hidden,))).split(self.hidden, -1)
            cache[0, :batch, cached:cached + length], cache[1, :batch, cached:cached + length] = k, v
            q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                       for t in (q, cache[0, :batch, :cached + length], cache[1, :batch, :cached + length]))
            h = h + layer["out"](F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
            h = h + layer["down"](F.silu(layer["up"](F.rms_norm(h, (self.hidden,)))))
        return self.head(h[:, -1])


def capture_decoding(model, sizes, position):
    """A graph of one token's step for each size of batch, all in one pool: by size the graph, its input and output."""
    pool, captured = torch.cuda.graph_pool_handle(), {}
    side = torch.cuda.Stream()
    for size in sizes:
        x = torch.zeros(size, 1, dtype=torch.long, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            model(x, position)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            captured[size] = graph, x, model(x, position)
    return captured


def graphs(rng, steps):
    """Text generation: prompts of any length run without graphs; each later token runs by a graph for the batch's size,
    captured largest first into one pool."""
    model = Decoder()
    sizes = [32, 24, 16, 12, 8, 4, 2, 1]
    with torch.no_grad():
        captured = capture_decoding(model, sizes, 1024)
        for _ in range(steps):
            batch, length = rng.randint(1, 32), rng.randint(64, 1024)
            logits = model(tokens(batch, length), 0)
            graph, x, out = captured[min(size for size in sizes if size >= batch)]
            for _ in range(rng.randint(8, 64)):
                x[:batch].copy_(logits.argmax(-1, keepdim=True))
                graph.replay()
                logits = out[:batch]
            logits.argmax(-1).cpu()
            yield


def service(rng, steps):
    """Requests of four classes, each served on the class's own stream: some run at a time, and the host waits for the
    oldest. Answers go to the host on the class's stream."""
    models = {"embed": (llama(1024, 24, 4096, 16).eval(), (8, 64), (32, 512)),
              "classify": (llama(2048, 16, 5504, 16).eval(), (1, 16), (128, 1024)),
              "chat": (llama(4096, 16, 11008, 32).eval(), (1, 4), (64, 2048)),
              "summarize": (llama(4096, 16, 11008, 32).eval(), (1, 2), (2048, 6144))}
    streams = {name: torch.cuda.Stream() for name in models}
    torch.cuda.synchronize()
    running = []
    with torch.no_grad():
        for _ in range(steps):
            name = rng.choice(list(models))
            model, batches, lengths = models[name]
            with torch.cuda.stream(streams[name]):
                x = tokens(rng.randint(*batches), rng.randint(*lengths))
                hidden = model.model(input_ids=x, use_cache=False).last_hidden_state
                answer = hidden.mean(1).float() if name == "embed" else model.lm_head(hidden[:, -1]).float().softmax(-1)
                running.append((answer.to("cpu", non_blocking=True), streams[name].record_event()))
            del x, hidden, answer
            if len(running) > 6:
                running.pop(0)[1].synchronize()
            yield
    for _, done in running:
        done.synchronize()


def threads(rng, steps):
    """Eight threads, each with a stream and a model of its own, encode batches of 16 to 512 images; each waits for a
    batch before it enqueues the next but one."""
    from transformers import ViTConfig, ViTModel
    config = ViTConfig(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072)
    models = [make(lambda c: ViTModel(c, add_pooling_layer=False), config, BF16).eval() for _ in range(8)]
    torch.cuda.synchronize()
    work, done = queue.Queue(), queue.Queue()

    def serve(model, seed):
        own, stream, before = random.Random(seed), torch.cuda.Stream(), None
        with torch.no_grad(), torch.cuda.stream(stream):
            while work.get():
                x = torch.empty(own.randint(16, 512), 3, 224, 224, dtype=BF16, device="cuda")
                features = model(x).last_hidden_state[:, 0].float()
                answer = F.normalize(features, dim=-1).to("cpu", non_blocking=True)
                after = stream.record_event()
                if before:
                    before[1].synchronize()
                before = answer, after
                done.put(True)
        stream.synchronize()

    pool = [threading.Thread(target=serve, args=(model, rng.random())) for model in models]
    for thread in pool:
        thread.start()
    for _ in range(steps):
        for _ in pool:
            work.put(True)
        for _ in pool:
            done.get()
        yield
    for _ in pool:
        work.put(False)
    for thread in pool:
        thread.join()


# Name -> (program, steps).
PROGRAMS = {program.__name__: (program, steps) for program, steps in (
    (fsdp2, 12), (fsdp1, 12), (pipeline_1f1b, 8), (offload_optimizer, 8), (offload_activations, 10), (loader, 30),
    (graphs, 60), (service, 200), (threads, 25))}
