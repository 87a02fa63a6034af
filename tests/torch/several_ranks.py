# SPDX-License-Identifier: Apache-2.0
"""Ranks on a simulated device each: small collectives bring what gloo brings, also launched by graphs, objects arrive,
DDP and FSDP2 train.

    several_ranks.py RANKS NAME...
"""
import sys

import forked_ranks
import torch
import torch._dynamo  # what each rank would import by itself
import torch.distributed as dist
import torch.distributed.fsdp
import torch.utils._python_dispatch

COUNT = 24  # more than 16 bytes in every type
INTEGERS = torch.uint8, torch.int8, torch.int32, torch.int64
FLOATS = torch.float16, torch.bfloat16, torch.float32, torch.float64


def numbers(dtype, rank, count=COUNT):
    generator = torch.Generator().manual_seed(rank + 1)
    if dtype in INTEGERS:
        return torch.randint(0, 100, (count,), generator=generator).to(dtype)
    return (torch.randn(count, generator=generator, dtype=torch.float64) * 3).to(dtype)


def expect_alike(what, found, wanted, ranks):
    """Bit by bit, but for floats of more than two ranks: within a rounding a rank."""
    found = found.cpu()
    if ranks == 2 or not wanted.dtype.is_floating_point:
        assert torch.equal(found, wanted), f"{what}: {found}, not {wanted}"
        return
    distance = (found.double() - wanted.double()).abs()
    bound = torch.finfo(wanted.dtype).eps * ranks * wanted.double().abs().clamp(min=10)
    assert (distance <= bound).all(), f"{what}: {found}, not {wanted}"


def reductions(rank, ranks, gloo):
    for dtype in INTEGERS + FLOATS:
        for op in dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MAX, dist.ReduceOp.MIN:
            mine = numbers(dtype, rank)
            wanted, found = mine.clone(), mine.cuda()
            dist.all_reduce(wanted, op, group=gloo)
            dist.all_reduce(found, op)
            expect_alike(f"all_reduce {op} {dtype}", found, wanted, ranks)
            found = mine.cuda()
            dist.reduce(found, ranks - 1, op)
            if rank == ranks - 1:
                expect_alike(f"reduce {op} {dtype}", found, wanted, ranks)
        mine = numbers(dtype, rank, COUNT * ranks)
        found, wanted = torch.empty(COUNT, dtype=dtype, device="cuda"), mine.clone()
        dist.all_reduce(wanted, group=gloo)
        dist.reduce_scatter_tensor(found, mine.cuda())
        expect_alike(f"reduce_scatter {dtype}", found, wanted.chunk(ranks)[rank], ranks)


def averages(rank, ranks):
    for dtype in FLOATS:
        found = torch.full((COUNT,), rank + 1, dtype=dtype).cuda()
        dist.all_reduce(found, dist.ReduceOp.AVG)
        assert torch.equal(found.cpu(), torch.full((COUNT,), (ranks + 1) / 2, dtype=dtype)), found
        if dtype == torch.bfloat16 and forked_ranks.VERSION < (2, 14):
            continue  # PyTorch gives NCCL a float's first half for the factor: 0
        found = torch.full((COUNT,), rank + 1, dtype=dtype).cuda()
        dist.all_reduce(found, dist._make_nccl_premul_sum(0.5))
        assert torch.equal(found.cpu(), torch.full((COUNT,), ranks * (ranks + 1) / 4, dtype=dtype)), found


def moves(rank, ranks, gloo):
    everyone = [numbers(torch.int32, r) for r in range(ranks)]
    mine = everyone[rank].cuda()
    gathered = torch.empty(COUNT * ranks, dtype=torch.int32, device="cuda")
    dist.all_gather_into_tensor(gathered, mine)
    assert torch.equal(gathered.cpu(), torch.cat(everyone))
    listed = [torch.empty_like(mine) for _ in range(ranks)]
    dist.all_gather(listed, mine)
    assert all(torch.equal(a.cpu(), b) for a, b in zip(listed, everyone))
    for root in range(ranks):
        sent = mine.clone() if rank != root else everyone[root].cuda()
        dist.broadcast(sent, root)
        assert torch.equal(sent.cpu(), everyone[root])
    exchanged = torch.empty(ranks * COUNT, dtype=torch.int64, device="cuda")
    dist.all_to_all_single(exchanged, (torch.arange(ranks * COUNT) + 1000 * rank).cuda())
    own = torch.arange(COUNT) + rank * COUNT
    assert torch.equal(exchanged.cpu(), torch.cat([own + 1000 * r for r in range(ranks)]))
    listed = [torch.empty_like(mine) for _ in range(ranks)] if rank == 0 else None
    dist.gather(mine, listed, 0)
    assert rank or all(torch.equal(a.cpu(), b) for a, b in zip(listed, everyone))
    got = torch.empty_like(mine)
    dist.scatter(got, [part.cuda() for part in everyone] if rank == 0 else None, 0)
    assert torch.equal(got.cpu(), everyone[rank])
    messages(rank, ranks, mine, everyone)
    dist.barrier()


def messages(rank, ranks, mine, everyone):
    """In a ring, all at once; a large one moves nothing and arrives all the same."""
    got, large = torch.empty_like(mine), torch.empty(1 << 20, device="cuda")
    before, after = (rank - 1) % ranks, (rank + 1) % ranks
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, after), dist.P2POp(dist.irecv, got, before),
                                    dist.P2POp(dist.isend, large, after),
                                    dist.P2POp(dist.irecv, torch.empty_like(large), before)])
    for work in works:
        work.wait()
    assert torch.equal(got.cpu(), everyone[before])
    if rank == 0:
        dist.send(mine, 1)
    elif rank == 1:
        dist.recv(got, 0)
        assert torch.equal(got.cpu(), everyone[0])


def collectives(rank, ranks):
    gloo = dist.new_group(backend="gloo")
    reductions(rank, ranks, gloo)
    averages(rank, ranks)
    moves(rank, ranks, gloo)


def objects(rank, ranks):
    everyone = [{"rank": r, "text": "x" * r} for r in range(ranks)]
    found = [None] * ranks
    dist.all_gather_object(found, everyone[rank])
    assert found == everyone, found
    found = [None] * ranks if rank == 0 else None
    dist.gather_object(everyone[rank], found, 0)
    assert rank or found == everyone, found
    found = [("a", 1), 3] if rank == 0 else [None, None]
    dist.broadcast_object_list(found, 0)
    assert found == [("a", 1), 3], found
    found = [None]
    dist.scatter_object_list(found, everyone if rank == 0 else None, 0)
    assert found == [everyone[rank]], found
    if rank == 0:
        dist.send_object_list(everyone, 1)
    elif rank == 1:
        found = [None] * ranks
        dist.recv_object_list(found, 0)
        assert found == everyone, found
    large = [bytes([r]) * (2 << 20) for r in range(ranks)]  # more than other collectives move
    found = [None] * ranks
    dist.all_gather_object(found, large[rank])
    assert found == large


def optimizer_of_all(rank, ranks):
    """An optimizer whose states are spread over the ranks, and larger than what other collectives move."""
    from torch.distributed.optim import ZeroRedundancyOptimizer
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(ranks)]).cuda()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW)
    model(torch.randn(8, 512, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.consolidate_state_dict(0)
    assert rank or len(optimizer.state_dict()["state"]) == 2 * ranks


def groups(rank, ranks):
    """Communicators of a part of the ranks, made of the others and split."""
    pair = [rank // 2 * 2, rank // 2 * 2 + 1]
    made = [dist.new_group([r, r + 1]) for r in range(0, ranks, 2)][rank // 2]
    mesh = torch.distributed.device_mesh.init_device_mesh("cuda", (ranks // 2, 2), mesh_dim_names=("outer", "inner"))
    for group in made, mesh["inner"].get_group():
        x = torch.full((COUNT,), rank, dtype=torch.int32).cuda()
        dist.all_reduce(x, group=group)
        assert torch.equal(x.cpu(), torch.full((COUNT,), sum(pair), dtype=torch.int32)), x


def model(width=512, layers=4):
    return torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU())
                                 for _ in range(layers)]).cuda()


def train(net, width=512):
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(2):
        net(torch.randn(8, width, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()


def ddp(rank, ranks):
    train(torch.nn.parallel.DistributedDataParallel(model()))


def fsdp2(rank, ranks):
    from torch.distributed.fsdp import fully_shard
    net = model()
    for layer in net:
        fully_shard(layer)
    fully_shard(net)
    train(net)


def captured(rank, ranks):
    """Replays between collectives of no graph, asynchronous ones among them, and of a group of its own."""
    pool = dist.new_group()
    given, summed = torch.zeros(COUNT, device="cuda"), torch.zeros(COUNT, device="cuda")
    gathered, scattered = torch.zeros(COUNT * ranks, device="cuda"), torch.zeros(COUNT, device="cuda")
    dist.all_reduce(summed)
    dist.all_reduce(summed, group=pool)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        summed.copy_(given)
        work = dist.all_reduce(summed, async_op=True)
        dist.all_gather_into_tensor(gathered, given, group=pool)
        dist.reduce_scatter_tensor(scattered, gathered, group=pool)
        work.wait()
        dist.all_reduce(summed)
    for i in range(1, 4):
        mine = [numbers(torch.int32, r + 100 * i).float() for r in range(ranks)]
        given.copy_(mine[rank])
        graph.replay()
        outside = given.clone()
        dist.all_reduce(outside)
        assert torch.equal(outside.cpu(), sum(mine)), f"{outside}, not {sum(mine)}"
        assert torch.equal(summed.cpu(), ranks * sum(mine)), f"replay {i}: {summed}, not {ranks * sum(mine)}"
        assert torch.equal(gathered.cpu(), torch.cat(mine)), gathered
        assert torch.equal(scattered.cpu(), ranks * mine[rank]), scattered


def known(rank, ranks):
    """What comes of values that the hosts have sent is known beyond collectives, whatever happens meanwhile."""
    kernel = torch.zeros(8, device="cuda")
    for i in range(3):
        count = torch.tensor([rank + i], device="cuda") * 2
        dist.all_reduce(count)
        kernel += 1
        everyone = sum(2 * (r + i) for r in range(ranks))
        assert (count + 1).item() == everyone + 1, count
        listed = [torch.empty(1, dtype=torch.int64, device="cuda") for _ in range(ranks)]
        dist.all_gather(listed, count + rank)
        assert torch.stack(listed).flatten().tolist() == [everyone + r for r in range(ranks)], listed
        sent = torch.arange(5, device="cuda") * i if rank == 0 else torch.empty(5, dtype=torch.int64, device="cuda")
        dist.broadcast(sent, 0)
        assert torch.ones(int(sent[4] + 1), device="cuda").numel() == 4 * i + 1
        sizes = torch.arange(ranks, device="cuda") + i  # as a mixture of experts tells how many tokens it sends
        sizes_there = torch.empty_like(sizes)
        dist.all_to_all_single(sizes_there, sizes)
        assert (sizes + 1).tolist() == [r + i + 1 for r in range(ranks)]
        assert (sizes_there + 1).tolist() == [rank + i + 1] * ranks
        others = [r for r in range(ranks) if r != rank]  # messages bring a part each
        parts = torch.empty(ranks - 1, dtype=torch.int64, device="cuda")
        dist.batch_isend_irecv([dist.P2POp(dist.isend, sizes[:1] + rank, r) for r in others] +
                               [dist.P2POp(dist.irecv, parts[n:n + 1], r) for n, r in enumerate(others)])[0].wait()
        assert (parts + 1).tolist() == [r + i + 1 for r in others]
        drawn = torch.randn(4, device="cuda").long()
        dist.all_reduce(drawn)
        assert (drawn + 1)[0].item() == 0, "it would be known if the device had computed it"


def main():
    ranks = int(sys.argv[1])
    names = sys.argv[2:] or ["collectives", "known", "objects", "optimizer_of_all", "groups", "captured", "ddp",
                             "fsdp2"]
    for name in names:
        statuses, output, seconds = forked_ranks.run(ranks, globals()[name], limit=120)
        print(f"{name}: {statuses}, {seconds:.1f} s", flush=True)
        if any(statuses):
            sys.exit(output)


if __name__ == "__main__":
    main()
