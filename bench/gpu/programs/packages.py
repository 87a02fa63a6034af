# SPDX-License-Identifier: Apache-2.0
"""Small programs over packages that have an allocator of their own; each prints RESULT lines that must not depend on
who allocates.

    packages.py NAME
"""
import sys


def cupy_work():
    import cupy
    x = cupy.arange(1 << 20, dtype=cupy.float32).reshape(1024, 1024) % 7
    total = 0.0
    for i in range(50):
        y = x @ x.T if i % 10 == 0 else x * (i + 1)
        z = cupy.sort(y.ravel()[: 1 << (10 + i % 9)])
        total += float(z[-1]) + float(y.sum() % 1009)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
    parts = []
    for i in range(64):
        with streams[i % 4]:
            parts.append(cupy.full(100003 + i, i, dtype=cupy.int64).sum())
    cupy.cuda.Device().synchronize()
    print("RESULT", round(total, 3), sum(int(part) for part in parts))


def cupy_pool():
    import cupy
    cupy_work()
    print("RESULT", cupy.get_default_memory_pool().used_bytes() >= 0)


def cupy_plain():
    import cupy
    cupy.cuda.set_allocator(None)
    cupy_work()


def cupy_async():
    import cupy
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    cupy_work()


def cupy_stream_ordered():
    import cupy
    cupy.cuda.set_allocator(cupy.cuda.malloc_async)
    cupy_work()


def jax_work():
    import jax
    import jax.numpy as jnp

    @jax.jit
    def step(w, x):
        return w - 0.01 * jax.grad(lambda w: jnp.mean((jnp.tanh(x @ w) - 0.5) ** 2))(w)

    x = jnp.arange(512 * 256, dtype=jnp.float32).reshape(512, 256) % 5 / 5
    w = jnp.ones((256, 128), jnp.float32) / 256
    for _ in range(30):
        w = step(w, x)
    big = [jnp.full((1 << 20, 8), i, jnp.float32) for i in range(16)]
    print("RESULT", jax.devices()[0].platform, round(float(w.sum()), 3), float(sum(b[0, 0] for b in big)))


def numba_cuda():
    import numpy
    from numba import cuda

    @cuda.jit
    def add(a, b, c):
        i = cuda.grid(1)
        if i < c.size:
            c[i] = a[i] + 2 * b[i]

    total = 0
    for n in (1000, 100000, 1 << 20, 3 << 20):
        a, b = cuda.to_device(numpy.arange(n, dtype=numpy.float32)), cuda.to_device(numpy.ones(n, numpy.float32))
        c = cuda.device_array(n, numpy.float32)
        add[(n + 255) // 256, 256](a, b, c)
        total += int(c.copy_to_host().astype(numpy.int64).sum())
    print("RESULT", total)


def torch_train():
    import torch
    torch.manual_seed(1)
    torch.backends.cudnn.deterministic = True
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    x = torch.randn(512, 256, generator=torch.Generator().manual_seed(2)).cuda()
    for _ in range(30):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
    print("RESULT", f"{loss.item():.5f}", torch.cuda.get_allocator_backend())


def triton_add():
    global tl   # a kernel's names must be its module's
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def add(x, y, out, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

    x = torch.arange(1 << 20, device="cuda", dtype=torch.float32)
    out = torch.empty_like(x)
    add[(1024,)](x, x, out, x.numel(), BLOCK=1024)
    print("RESULT", float(out.double().sum()))


def cuda_core():
    try:
        from cuda.core import Device
    except ImportError:
        from cuda.core.experimental import Device
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    buffers = [device.allocate(1 << (10 + i % 12), stream=stream) for i in range(200)]
    for buffer in buffers:
        buffer.close(stream)
    stream.sync()
    print("RESULT", len(buffers))


PROGRAMS = {"cupy_pool": cupy_pool, "cupy_plain": cupy_plain, "cupy_async": cupy_async,
            "cupy_stream_ordered": cupy_stream_ordered, "jax": jax_work, "numba_cuda": numba_cuda,
            "torch_train": torch_train, "triton_add": triton_add, "cuda_core": cuda_core}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]]()
