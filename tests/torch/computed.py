# SPDX-License-Identifier: Apache-2.0
"""What comes of values that the host has sent is what a device would give; of others it is 0, and checks of them
pass."""
import io
import threading

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

D = "cuda"
state = torch.get_rng_state()

sent = torch.tensor([1, 2, 3, 0, 5]).to(D)
assert sent.sum().item() == 11 and sent[4] == 5 and int(sent.max()) == 5
assert (sent == 0).nonzero().tolist() == [[3]] and sent[sent > 1].cpu().tolist() == [2, 3, 5]
assert [x.tolist() for x in sent.unique(return_counts=True)] == [[0, 1, 2, 3, 5], [1] * 5]
assert sent.repeat_interleave(sent).tolist() == [1, 2, 2, 3, 3, 3] + [5] * 5
assert sent.float().mean().item() == torch.tensor(11 / 5).item()
assert torch.equal(sent, sent.clone()) and not torch.equal(sent, sent + 1)
assert torch.arange(5, device=D).cumsum(0).tolist() == [0, 1, 3, 6, 10]
large = torch.tensor([2**63 + 5], dtype=torch.uint64)  # a seed, say
assert large.item() == large.to(D).item() == 2**63 + 5

# TorchScript passes operations its own stack
@torch.jit.script
def doublings(values, most: int):
    for done in range(most):
        if bool(values.sum() > 100):
            return values, done
        values = values * 2
    return values, most


assert [doublings(sent, 20)[1] for _ in range(3)] == [4] * 3

# Values that are copied into memory in another order than that in which they lie there
rows = sent[:4].view(2, 2)
assert rows.tile(1, 3).tolist() == [[1, 2] * 3, [3, 0] * 3] and rows.t().clone().tolist() == [[1, 3], [2, 0]]
assert rows.repeat(2, 2).nonzero().shape == (12, 2)

# Memory that is written part by part, of which no part is left
sizes = torch.empty(2, 3, dtype=torch.long, device=D)
for i in range(6):
    assert (sizes.prod(0) == 12).sum().item() == 0
    sizes[i // 3, i % 3] = 3 + i // 3
assert (sizes.prod(0) == 12).all() and sizes.tolist() == [[3] * 3, [4] * 3]

# Small matrices, as of places in an image, are multiplied
assert (torch.eye(3, device=D) @ torch.full((3, 2), 2.0, device=D)).sum().item() == 12

copied = torch.empty(5, dtype=torch.long, device=D)
copied.copy_(sent.cpu().pin_memory(), non_blocking=True)
copied.add_(1)
copied[2:4] = 40
assert copied.tolist() == [2, 3, 40, 40, 6] and sent.tolist() == [1, 2, 3, 0, 5]
pinned = torch.empty(5, dtype=torch.long).pin_memory()
pinned.copy_(copied, non_blocking=True)
torch.cuda.synchronize()
assert pinned.tolist() == copied.tolist()
moved = copied.to("cpu", non_blocking=True)
torch.cuda.synchronize()
assert moved.tolist() == copied.tolist()

# One value that is not known, as of a token that a model writes; the others still are, and it equals none
copied[0] = torch.multinomial(torch.ones(9, device=D), 1)[0]
assert copied[:1].item() == 0 and copied[1:3].tolist() == [3, 40] and copied.tolist() == [0, 3, 40, 40, 6]
assert (copied == 40).nonzero().tolist() == [[2], [3]] and (copied != 40).sum() == 3 and not (copied == 2).any()
written = torch.nn.functional.pad((torch.randn(2, 300, device=D) @ torch.randn(300, 300, device=D)).argmax(-1), (0, 1),
                                  value=7)
assert (written == 7).nonzero().tolist() == [[2]]
copied[1:] = written[1:].repeat(2)[:4]  # nothing is left
assert copied.tolist() == [0] * 5

# The tokens of an image among a text's, and features in their places
tokens = torch.tensor([[1, 9, 9, 3, 4], [9, 2, 2, 2, 9]]).to(D)
embedded = torch.nn.Embedding(10, 64, device=D)(tokens)
embedded[tokens == 9] = torch.randn(4, 64, device=D)
assert embedded[tokens == 9].shape == (4, 64)
assert (tokens == 9).unsqueeze(-1).expand_as(embedded).sum() == 4 * 64
embedded.sum().backward()

norm = torch.nn.BatchNorm1d(64, momentum=None, device=D)  # divides by the number of batches
for _ in range(3):
    norm(embedded[0])
assert norm.num_batches_tracked.item() == 3

# Other threads and views are followed, a tensor that is printed shows its values, and stacks have no frame of ours
found = []
thread = threading.Thread(target=lambda: found.extend((torch.arange(6).to(D) * 2 + 1)[3:].tolist()))
thread.start()
thread.join()
assert found == [7, 9, 11]
square = torch.arange(12, device=D).view(3, 4)
square[1].fill_(9)
assert square.t()[1].tolist() == [1, 9, 9] and square[1:, ::2].sum().item() == 36
assert str(square[0] * 2) == f"tensor([0, 2, 4, 6], device='{square.device}')"
torch.cuda.memory._record_memory_history()
held = sent * 2
frames = [frame["filename"] for event in torch.cuda.memory._snapshot()["device_traces"][0] for frame in event["frames"]]
torch.cuda.memory._record_memory_history(None)
assert frames and not any("terrazzo" in name and name.endswith(".py") and name != __file__ for name in frames), frames

# Memory that something else writes, too: PyTorch's older way to load, and another library's tensor
file = io.BytesIO()
torch.save(sent, file, _use_new_zipfile_serialization=False)
file.seek(0)
assert torch.load(file).tolist() == sent.tolist()
other = torch.from_dlpack(held)
other.copy_(torch.arange(5))
assert held.tolist() == [0, 1, 2, 3, 4]
held = sent * 2

# Operations that are not PyTorch's own may change anything that they say they do
library = torch.library.Library("computed", "DEF")
library.define("change(Tensor(a!) x) -> ()")
library.impl("change", lambda x: None, "CUDA")
torch.ops.computed.change(held)
assert held[1:2].item() == 0

# Layers that the backward pass computes again decide as they did, also beside a mode of the program's
def layer(x):
    return x.sin().exp() if (sent > 4).any() else x.sin()


def policy(context, func, *args, **kwargs):
    save = func == torch.ops.aten.exp.default
    return CheckpointPolicy.MUST_SAVE if save else CheckpointPolicy.PREFER_RECOMPUTE


x = torch.randn(64, device=D, requires_grad=True)
for options in ({"use_reentrant": True}, {"use_reentrant": False},
                {"use_reentrant": False, "context_fn": lambda: create_selective_checkpoint_contexts(policy)}):
    checkpoint(layer, x, **options).sum().backward()

halves = torch.empty(4, device=D)  # a part is not known
halves[:2], halves[2:] = sent[0], torch.randn(2, device=D)
halves[:2] = sent[1]
assert halves[0].item() == 2 and halves[3].item() == 0 and halves.tolist() == [2, 2, 0, 0]
halves[1:].add_(1)
assert halves.tolist() == [2, 0, 0, 0]

# What kernels would have computed
noise = torch.randn(64, device=D)
assert noise.sum().item() == 0 and noise.nonzero().shape == (0, 1)
assert torch.isfinite(noise).all() and not noise.isnan().any()
assert torch.isfinite(noise.sum()).item() and not torch.isinf(noise.sum()) and noise[noise == noise].shape == (64,)
assert noise[noise == 7].shape == (0,) and noise[~noise.isinf() & ~noise.isneginf()].shape == (64,)
torch.full((64,), 7.0, device=D)  # whose memory the next tensor gets
drawn = torch.randn(64, device=D)
assert drawn.tolist() == [0] * 64 and (drawn.view(8, 8).t() * 2).cpu().sum() == 0 and "7" not in str(drawn[:9])

# The least of all values, such as of an overlap of windows or of labels, exceeds what all must exceed, and so on
assert noise.abs().min() > 1e-11 and not noise.min().lt(0) and noise.amin().ge(0).logical_not().logical_not()
assert noise.long().max() < 10 and not noise.max() > 1 and (noise.amax(0) <= 1).item() and noise.view(8, 8).min() >= 0
speech = torch.randn(1, 40000, device=D)
window = torch.hann_window(1024, device=D)
torch.istft(torch.stft(speech, 1024, window=window, return_complex=True), 1024, window=window)

# A number of frames that a model finds is at least what the program says
frames = noise.exp().sum().clamp_min(2).long()
assert torch.arange(frames.max(), device=D).shape == (2,) and noise.sum().clamp(max=9).item() == 0

# A router sends as much to each expert; gradients are finite
scores = torch.randn(12, 8, device=D)
assert scores.topk(2).indices.flatten().bincount(minlength=8).tolist() == [3] * 8
assert scores.topk(3, dim=0).indices.t()[1].tolist() == [3, 4, 5]
words = torch.randn(2, 5000, device=D).topk(6).indices  # read as different ones, and none that is known
assert words[0].tolist() == list(range(2500, 2506)) and words[1, 3].item() == 2503 and not (words == 2503).any()
assert scores.sort().indices[2].tolist() == list(range(8))
layer_of_many = torch.nn.Linear(300, 300, device=D)
scaler, optimizer = torch.amp.GradScaler(D), torch.optim.SGD(layer_of_many.parameters())
for _ in range(2):
    scaler.scale(layer_of_many(torch.randn(4, 300, device=D)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
assert scaler.get_scale() == 65536
torch.distributions.Normal(noise, noise.exp()).rsample()
drawn = torch.distributions.Categorical(logits=noise)
token = drawn.sample((3,))
drawn.log_prob(token)  # a token is a valid one, but not that which ends a text
assert not (token == 7).all() and (token != 0).sum().item() == 3 and not torch.isin(token, sent).any()
assert (torch.eye(32, device=D) @ torch.ones(32, 32, device=D)).sum().item() == 0  # a layer, not a place
weight = torch.zeros(1024, 1024, device=D)  # too large to follow
weight += 1
assert weight[0, 0].item() == 0

try:  # a result whose size is known still needs memory
    torch.cuda.set_per_process_memory_fraction(1e-4)
    torch.ones(1 << 22, dtype=torch.bool, device=D).nonzero()
    raise SystemExit("no failure")
except torch.OutOfMemoryError:
    torch.cuda.set_per_process_memory_fraction(1.0)

# Random integers are some, and leave the host's as they are
assert torch.randint(5, 9, (100,), device=D).min().item() >= 5
assert len(torch.randperm(100, device=D).unique()) == 100
assert torch.equal(torch.get_rng_state(), state)

# A graph that adds one is not known to have run, nor how often
with torch.no_grad():
    counter = torch.zeros(1, dtype=torch.long, device=D)
    assert counter.item() == 0
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        counter.add_(1)
    graph.replay()
    counter += 1
    assert counter.item() == 0
    counter.fill_(5)
    graph.replay()
    assert counter.item() == 0

torch.testing.assert_close(torch.get_rng_state(), state)
