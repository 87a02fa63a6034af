# SPDX-License-Identifier: Apache-2.0
"""Operations that go through each of the libraries that have stand-ins."""
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

a = torch.randn(64, 64, device="cuda")
b = torch.randn(8, 64, 64, device="cuda")
assert (a @ a).shape == (64, 64) and (b @ b).shape == b.shape
assert F.linear(a.bfloat16(), a.bfloat16(), a[0].bfloat16()).shape == (64, 64)
assert torch.fft.rfft2(b).shape == (8, 64, 33)
assert torch.fft.ifft(b).shape == b.shape
assert torch.linalg.cholesky(a).shape == a.shape
assert torch.linalg.svd(a)[1].shape == (64,)
assert torch.linalg.qr(a)[0].shape == a.shape
assert torch.linalg.qr(b[:, :16, :16])[0].shape == (8, 16, 16)
assert torch.linalg.lstsq(b, b)[0].shape == b.shape
assert torch.linalg.eigh(a)[0].shape == (64,)
assert torch.linalg.eigh(b)[0].shape == (8, 64)
assert torch.linalg.inv(a).shape == a.shape
x = torch.randn(4, 3, 32, 32, device="cuda", requires_grad=True)
convolution = torch.nn.Conv2d(3, 8, 3, padding=1).cuda()
normalise = torch.nn.BatchNorm2d(8).cuda()
normalise(convolution(x)).relu().sum().backward()
assert x.grad.shape == x.shape and convolution.weight.grad.shape == convolution.weight.shape
assert torch.nn.ConvTranspose2d(3, 8, 3).cuda()(x).shape == (4, 8, 34, 34)
assert F.scaled_dot_product_attention(b[None], b[None], b[None]).shape == (1, 8, 64, 64)
with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], set_priority=True):
    q = torch.randn(1, 8, 64, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    assert q.grad.shape == q.shape
assert torch.rand(1000, device="cuda").shape == (1000,)
assert torch.sparse.mm(torch.eye(64).to_sparse_csr().cuda(), a).shape == a.shape

kept = torch.tensor([0, 0, 1, 1], dtype=torch.float16).tile((128, 32)).cuda()
before = torch.cuda.memory_allocated()
sparse = torch.sparse.to_sparse_semi_structured(kept)
assert torch.cuda.memory_allocated() - before == kept.nbytes * 9 // 16
assert F.linear(torch.randn(64, 128, device="cuda", dtype=torch.float16), sparse).shape == (64, 128)


def recurrent(cls, **options):
    """Trains a recurrent layer: PyTorch keeps its weights where cuDNN tells that they lie, together and apart."""
    layer = cls(32, 64, **options).cuda()
    parts = sorted((w.data_ptr(), w.nbytes) for w in layer.parameters())
    assert len({w.untyped_storage().data_ptr() for w in layer.parameters()}) == 1
    assert all(at + size <= next_at for (at, size), (next_at, _) in zip(parts, parts[1:])), parts
    assert sum(size for _, size in parts) == next(layer.parameters()).untyped_storage().nbytes()
    step = torch.randn(5, 2, 32, device="cuda", requires_grad=True)
    out, _ = layer(step)
    out.sum().backward()
    assert out.shape == (5, 2, options.get("proj_size", 64) * (2 if layer.bidirectional else 1))
    assert all(w.grad.shape == w.shape for w in layer.parameters()) and step.grad.shape == step.shape
    with torch.no_grad():
        assert layer(step)[0].shape == out.shape
    lengths = torch.nn.utils.rnn.pack_padded_sequence(step, [5, 3])
    layer(lengths)[0].data.sum().backward()


for cls in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
    recurrent(cls)
    recurrent(cls, num_layers=3, bidirectional=True, dropout=0.1)
recurrent(torch.nn.LSTM, num_layers=2, bidirectional=True, proj_size=16)
without_bias = torch.nn.GRU(32, 64, bias=False).cuda()
without_bias(torch.randn(5, 2, 32, device="cuda"))[0].sum().backward()

try:
    torch.eye(64).to_sparse_csr().cuda() @ torch.eye(64).to_sparse_csr().cuda()
except RuntimeError as error:
    assert "cuSPARSE" in str(error), error
else:
    raise AssertionError("a sparse product, whose size only the device knows, was not refused")
# Kernels that are compiled while the program runs.
assert torch.lcm(torch.arange(9).cuda(), torch.arange(9).cuda()).shape == (9,)
assert torch.special.bessel_j0(a).shape == a.shape
twice = torch.cuda.jiterator._create_jit_fn("template <typename T> T twice(T x) { return x + x; }")
assert twice(a).shape == a.shape
