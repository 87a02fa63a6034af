# SPDX-License-Identifier: Apache-2.0
"""Each operation gives on the device what it gives on the host, or 0 if that is not known: never an older value."""
import pickle
import threading

import torch
import torch.nn.functional as F

D = "cuda"
torch.manual_seed(0)


def everywhere(program, *made):
    """Runs it on the host's tensors and the device's. Returns the results of both."""
    both = []
    for device in "cpu", D:
        torch.manual_seed(0)
        results = program(*[make().to(device) for make in made])
        results = [x for x in (results if isinstance(results, (list, tuple)) else [results]) if x is not None]
        both.append([x.detach().cpu().resolve_conj().resolve_neg() for x in results])
    return zip(*both, strict=True)


def same(program, *made):
    for host, device in everywhere(program, *made):
        assert host.dtype == device.dtype and torch.equal(host, device), (host, device)


def same_or_zero(program, *made):
    for host, device in everywhere(program, *made):
        assert host.shape == device.shape and (torch.equal(host, device) or not device.any()), (host, device)


def forget_nothing():
    """Leaves values in memory that the next tensors get."""
    held = [torch.full((size,), 7, device=D) for size in (1, 4, 16, 64, 200, 1000) for _ in range(4)]
    assert all(x.cpu().min() == 7 for x in held)


def numbers():
    return torch.arange(24.0).view(4, 6)


def integers():
    return torch.arange(-12, 12).view(4, 6)


def complexes():
    return torch.complex(numbers(), numbers() + 1)


# Part of a tensor, by operations that PyTorch makes of others, which see only what it has not finished
def part(x):
    x[:, ::2].cumsum_(1)
    return x


same(part, integers)
same(lambda x: torch.cumprod(x, 1, out=x.new_ones(4, 12)[:, ::2]), integers)
same(lambda x: torch.cumsum(x, 1, out=torch.ones(4, 12, dtype=x.dtype, device=x.device)[:, ::2])._base, numbers)
same(lambda x: torch.linalg.inv(x @ x.t() + 99 * torch.eye(4, device=x.device)).shape.numel() * x, numbers)
same(lambda x: x[1:].add_(x[:-1].clone()), integers)
same(lambda x: x.add_(x), integers)

# Memory whose order is another's, and complex numbers whose conjugate is a view
same(lambda x: x.sum(0), lambda: integers().t())
same(lambda x: x.contiguous(memory_format=torch.channels_last) + 1, lambda: integers().view(2, 2, 2, 3))
same(lambda x: [x.conj(), x.conj() + 1, x.conj().imag, x.mul(1j).conj().real], complexes)
same(lambda x: [x.conj().add_(1j), x], complexes)

# Sizes
same(lambda x: [x.unique(), (x > 0).unique(), (x > -99).unique(), (x > 99).unique(return_inverse=True)[1]], integers)
same(lambda x: torch.unique(x > 2, return_counts=True)[1], integers)
for dim in 0, 1, -1:
    same(lambda x, dim=dim: torch.unique_consecutive(x // 4, dim=dim, return_counts=True), integers)
    same(lambda x, dim=dim: torch.unique(x > 0, dim=dim), integers)

# What an operation changes without saying so, or by no other operation
for cudnn in True, False:
    with torch.backends.cudnn.flags(enabled=cudnn):
        same_or_zero(lambda x, m, v, w: (F.batch_norm(x, m, v, w, None, True), m, v)[1:], numbers,
                     lambda: torch.zeros(6), lambda: torch.ones(6), lambda: torch.ones(6))
same(lambda x, m, v: (F.batch_norm(x, m, v), m, v)[1:], numbers, lambda: torch.zeros(6), lambda: torch.ones(6))
same(lambda x, m, v: torch.native_batch_norm(x, None, None, m, v, True, 0.5, 1e-5)[1], numbers,
     lambda: torch.zeros(6), lambda: torch.ones(6))
forget_nothing()
same_or_zero(lambda x: torch.mode(x, 1, out=(x.new_full((4,), 5), torch.full((4,), 5, device=x.device))), integers)
same_or_zero(lambda x: x.conj_physical_(), complexes)
same_or_zero(lambda x: torch.nanmean(x, out=torch.ones((), device=x.device)), numbers)

# What nobody knows is 0, not what memory held before
forget_nothing()
same_or_zero(lambda x: F.pad(x[None], (1, 1), mode="circular"), numbers)
same_or_zero(lambda x: torch.empty_like(x)[:, :3].copy_(x[:, :3]), integers)
grown = integers().flatten().to(D)
grown.tolist()
grown.add_(1)
grown.resize_(400)
assert not grown[:24].cpu().any() or grown[:24].tolist() == list(range(-11, 13))
shared = integers().to(D)
shared.tolist()
shared.add_(1)
alias = torch.from_dlpack(shared)
assert torch.equal(alias.cpu(), integers() + 1)
alias.add_(1)
assert not shared.cpu().any() and not alias.cpu().any()
for _ in range(2):
    forget_nothing()
    assert not torch.randn(4, 6, device=D)[:, ::2].clone().add_(1).cpu().any()
graph, still, noise = torch.cuda.CUDAGraph(), torch.ones(40, dtype=torch.long, device=D), torch.randn(40, device=D)
still.tolist()
torch.cuda.synchronize()
with torch.cuda.graph(graph):
    still.add_(1)
graph.replay()
assert not still.cpu().any() and not still.clone().cpu().any()

# Of values that are not known there is one at least
unknown = torch.randn(3000, device=D)
assert len(unknown.unique()) == 1 and len(unknown.unique_consecutive()) == 1 and len((unknown > 0).unique()) == 2
assert torch.isin(unknown, unknown[:99]).shape == (3000,) and unknown.mode().indices.shape == ()
assert torch.matrix_exp(unknown[:36].view(4, 3, 3)).shape == (4, 3, 3)
assert torch.arange(3000, device=D).mode().values == 0

# What changes nothing
kept = integers().to(D)
kept.record_stream(torch.cuda.Stream())
for broken in (lambda: kept.add_(torch.ones(7, device=D)), lambda: kept.addcmul_(kept, kept[:3, :5]),
               lambda: kept.remainder_(0.5)):
    try:
        broken()
        raise SystemExit("no failure")
    except RuntimeError:
        pass
assert torch.equal(kept.cpu(), integers())
torch._foreach_copy_([made := torch.empty(4, 6, dtype=torch.long, device=D)], [kept])
assert torch.equal(made.cpu(), integers())

# In a thread that has called nothing yet, and on another device than the thread's
for device in range(torch.cuda.device_count()):
    numbered = torch.arange(9, device=f"cuda:{device}") * 3
    read = []
    thread = threading.Thread(target=lambda tensor=numbered: read.extend(tensor.tolist()))
    thread.start()
    thread.join()
    assert read == list(range(0, 27, 3)) and (numbered + 1).tolist() == list(range(1, 28, 3))

# Through the host and back, before the host waits
stage = torch.full((4, 6), 9).pin_memory()
back, second = torch.zeros_like(kept), torch.zeros_like(kept)
for number in range(3):
    stage.copy_(kept.add_(1), non_blocking=True)
    back.copy_(stage, non_blocking=True)
    assert torch.equal(back.cpu(), integers() + number + 1)
    second.copy_(stage, non_blocking=True)
assert torch.equal(second.sum(0).cpu(), (integers() + 3).sum(0))

# Unpickled: the values come by a plain copy into memory that no operation has filled
for sent in integers(), numbers().bool(), torch.tensor([3, 5]):
    loaded = pickle.loads(pickle.dumps(sent.to(D)))
    forget_nothing()
    assert torch.equal((loaded + 1).cpu(), sent + 1) and torch.equal(torch.stack([loaded[0]])[0].cpu(), sent[0])
    assert bool((loaded == sent.to(D)).all())
