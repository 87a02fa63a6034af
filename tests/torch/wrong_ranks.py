# SPDX-License-Identifier: Apache-2.0
"""Programs of several ranks that are wrong: each ends with an error that says who, where and what, within 10 seconds
of the moment when nothing can go on, and leaves no process behind."""
import os
import signal
import sys
import threading
import time

import forked_ranks
import torch
import torch._dynamo  # what each rank would import by itself
import torch.distributed as dist
import torch.distributed.fsdp
import torch.distributed.pipelining
import torch.utils._python_dispatch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

WIDTH = 64
NEW = forked_ranks.VERSION >= (2, 15)
# Before PyTorch 2.10 their groups and messages have communicators of their own, made at their first use: other errors,
# or none.
SINCE_10 = "other_mesh", "send_alone", "small_send_alone", "from_itself"


def tensor(count=8, dtype=torch.float32):
    return torch.ones(count, dtype=dtype, device="cuda")


def missing_rank(rank, ranks):
    if rank != 1:
        dist.all_reduce(tensor())
        torch.cuda.synchronize()


def other_order(rank, ranks):
    first, second = (dist.all_reduce, lambda x: dist.broadcast(x, 0))[::-1 if rank else 1]
    first(tensor())
    second(tensor())
    torch.cuda.synchronize()


def other_count(rank, ranks):
    dist.all_reduce(tensor(8 + rank))
    torch.cuda.synchronize()


def other_type(rank, ranks):
    dist.all_reduce(tensor(8, torch.float32 if rank else torch.int32))
    torch.cuda.synchronize()


def other_root(rank, ranks):
    dist.broadcast(tensor(), rank)
    torch.cuda.synchronize()


def other_operation(rank, ranks):
    dist.all_reduce(tensor(), dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM)
    torch.cuda.synchronize()


def two_groups(rank, ranks):
    groups = [dist.new_group([0, 1]), dist.new_group([0, 1])]
    for group in groups:
        dist.all_reduce(tensor(), group=group)
    torch.cuda.synchronize()
    for group in groups[::-1 if rank else 1]:
        dist.all_reduce(tensor(), group=group)
        torch.cuda.synchronize()


def both_receive(rank, ranks):
    dist.recv(tensor(), 1 - rank)
    torch.cuda.synchronize()


def large_sends(rank, ranks):
    dist.send(tensor(1 << 20), 1 - rank)
    dist.recv(tensor(1 << 20), 1 - rank)
    torch.cuda.synchronize()


def other_message(rank, ranks):
    if rank:
        dist.recv(tensor(9), 0)
    else:
        dist.send(tensor(8), 1)
    torch.cuda.synchronize()


def dies(rank, ranks):
    dist.all_reduce(tensor())
    torch.cuda.synchronize()
    if rank == 1:
        os.kill(os.getpid(), 9)
    dist.all_reduce(tensor())
    torch.cuda.synchronize()


def runs_out(rank, ranks):
    dist.all_reduce(tensor())
    if rank == 1:
        tensor(1 << 40)
    dist.all_reduce(tensor())
    torch.cuda.synchronize()


def leaves(rank, ranks):
    dist.all_reduce(tensor())
    torch.cuda.synchronize()
    if rank == 1:
        dist.destroy_process_group()
        time.sleep(8)
        sys.exit(0)
    dist.all_reduce(tensor())
    torch.cuda.synchronize()


def circle(rank, ranks):
    groups = {pair: dist.new_group(pair) for pair in ((0, 1), (1, 2), (0, 2))}
    for pair in groups:
        if rank in pair:
            dist.all_reduce(tensor(), group=groups[pair])
            torch.cuda.synchronize()
    order = {0: ((0, 1), (0, 2)), 1: ((1, 2), (0, 1)), 2: ((0, 2), (1, 2))}[rank]
    for pair in order:
        dist.all_reduce(tensor(), group=groups[pair])
        torch.cuda.synchronize()


def one_device(rank, ranks):
    dist.all_reduce(tensor())


# Groups

def sum_up(group=None, count=8):
    dist.all_reduce(tensor(count), group=group)
    torch.cuda.synchronize()


def missing_in_group(rank, ranks):
    """Every rank of the world must call new_group."""
    sum_up(dist.new_group([0, 1]) if rank == 0 else None)


def two_new_groups(rank, ranks):
    """Neither has been used before."""
    groups = [dist.new_group([0, 1]), dist.new_group([0, 1])]
    for group in groups[::-1 if rank else 1]:
        sum_up(group)


def other_mesh(rank, ranks):
    mesh = init_device_mesh("cuda", (1, 4) if rank == 3 else (2, 2), mesh_dim_names=("outer", "inner"))
    sum_up(mesh["inner"].get_group())


def other_axis(rank, ranks):
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("outer", "inner"))
    sum_up(mesh["inner" if rank == 3 else "outer"].get_group())
    sum_up()


def group_destroyed(rank, ranks):
    group = dist.new_group([0, 1])
    sum_up(group)
    if rank:
        dist.destroy_process_group(group)
        sum_up()
    else:
        sum_up(group)


# Tensors

def uneven_gather(rank, ranks):
    dist.all_gather_into_tensor(tensor(2 * (8 + rank)), tensor(8 + rank))
    torch.cuda.synchronize()


def uneven_list(rank, ranks):
    dist.all_gather([tensor(8), tensor(8 if rank else 9)], tensor(8))
    torch.cuda.synchronize()


def uneven_exchange(rank, ranks):
    """Rank 0 sends 5 where rank 1 expects 3."""
    dist.all_to_all_single(tensor(8), tensor(8), [3, 5], [3, 5])
    torch.cuda.synchronize()


def no_storage(rank, ranks):
    x = tensor()
    if rank:
        x.untyped_storage().resize_(0)
    dist.all_reduce(x)
    torch.cuda.synchronize()


class Borrowed:
    """Memory of another tensor, which it does not keep."""

    def __init__(self, owner):
        self.__cuda_array_interface__ = dict(owner.__cuda_array_interface__)


def freed(rank, ranks):
    owner = tensor(16 << 20)
    view = torch.as_tensor(Borrowed(owner), device="cuda")
    if rank:
        del owner
        torch.cuda.empty_cache()
    dist.all_reduce(view)
    torch.cuda.synchronize()


def other_device(rank, ranks):
    dist.all_reduce(torch.ones(8, device="cuda:0"))
    torch.cuda.synchronize()


def other_root_of_objects(rank, ranks):
    dist.broadcast_object_list([{"rank": rank}], rank)


# Messages

def send_alone(rank, ranks):
    if rank == 0:
        dist.send(tensor(1 << 20), 1)
    sum_up()


def small_send_alone(rank, ranks):
    if rank == 0:
        dist.send(tensor(), 1)
    sum_up()


def from_itself(rank, ranks):
    sum_up()
    dist.recv(tensor(), rank)


def batch(rank, ranks):
    second = dist.isend if rank else dist.irecv
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, tensor(1 << 20), 1 - rank),
                                        dist.P2POp(second, tensor(1 << 20), 1 - rank)]):
        work.wait()
    torch.cuda.synchronize()


def microbatches(rank, ranks):
    stage = dist.pipelining.PipelineStage(net(), rank, ranks, torch.device("cuda", rank))
    schedule = dist.pipelining.ScheduleGPipe(stage, 4 + 2 * rank, loss_fn=lambda out, _: out.sum())
    schedule.step(*[] if rank else [torch.ones(12, WIDTH, device="cuda")],
                  target=torch.zeros(12, device="cuda") if rank else None)
    torch.cuda.synchronize()


# Ranks that do something else, or end

def barrier_of_one(rank, ranks):
    sum_up()
    if rank == 0:
        dist.barrier()


def metric_of_one(rank, ranks):
    if rank == 0:
        dist.reduce(tensor(1), 0)
    sum_up()
    dist.barrier()


def other_branch(rank, ranks):
    for i in range(5):
        if rank != 2 or i != 3:
            sum_up()
    dist.barrier()


def racing_threads(rank, ranks):
    sum_up()

    def late(count, seconds):
        torch.cuda.set_device(rank)
        time.sleep(seconds)
        dist.all_reduce(tensor(count))

    threads = [threading.Thread(target=late, args=(8, rank)), threading.Thread(target=late, args=(9, 1 - rank))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()


def exits(rank, ranks):
    sum_up()
    if rank:
        os._exit(0)
    sum_up()


def crashes(rank, ranks):
    sum_up()
    if rank:
        os.kill(os.getpid(), signal.SIGSEGV)
    sum_up()


# Training

def net(layers=3):
    return nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(layers)]).cuda()


def shard(model, layers=True):
    for layer in model if layers else ():
        dist.fsdp.fully_shard(layer)
    return dist.fsdp.fully_shard(model)


def step(model, tokens=4):
    model(torch.ones(tokens, WIDTH, device="cuda")).sum().backward()
    torch.cuda.synchronize()


class Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("no gradient today")


def raises_in_backward(rank, ranks):
    model = nn.parallel.DistributedDataParallel(net())
    x = model(torch.ones(4, WIDTH, device="cuda"))
    (Raises.apply(x) if rank else x).sum().backward()
    torch.cuda.synchronize()


def runs_out_in_forward(rank, ranks):
    model = shard(net())
    step(model)
    room = torch.cuda.mem_get_info()[0] - (4 << 20) if rank else 0
    held = torch.empty(room, dtype=torch.uint8, device="cuda")
    step(model, 1 << 18)
    del held


class Sometimes(nn.Module):
    def __init__(self, uses):
        super().__init__()
        self.first, self.second, self.uses = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), uses

    def forward(self, x):
        return self.second(self.first(x)) if self.uses else self.first(x)


def unused_parameter(rank, ranks):
    model = nn.parallel.DistributedDataParallel(Sometimes(rank == 0).cuda())
    for _ in range(3):
        step(model)


def checkpoint_of_one(rank, ranks):
    model = shard(net())
    step(model)
    if rank == 0:
        for parameter in model.state_dict().values():
            parameter.full_tensor()
    dist.barrier()


def fewer_batches(rank, ranks):
    model = shard(net())
    for _ in range(3 - rank):
        step(model)


def other_layers(rank, ranks):
    nn.parallel.DistributedDataParallel(net(3 + rank))


def other_wrapping(rank, ranks):
    step(shard(net(), layers=rank > 0))


DEADLOCK = "deadlock: ranks wait for each other"
# Function, ranks, what the output must have.
WRONG = [
    (missing_rank, 2, ["rank 1 (pid", "has left the communicator", "all_reduce of 8 float32, sum", "missing_rank"]),
    (other_order, 2, ["ranks disagree on the kind of collective 1", "rank 0", "all_reduce of 8 float32, sum",
                      "broadcast of 8 float32, root 0", "other_order"]),
    (other_count, 2, ["ranks disagree on the count", "all_reduce of 8 float32", "all_reduce of 9 float32"]),
    (other_type, 2, ["ranks disagree on the type", "8 float32", "8 int32"]),
    (other_root, 2, ["ranks disagree on the root", "root 0", "root 1"]),
    (other_operation, 2, ["ranks disagree on the operation", "sum", "maximum"]),
    (two_groups, 2, [DEADLOCK, "rank 0 (pid", "rank 1 (pid", "two_groups"]),
    (both_receive, 2, [DEADLOCK, "recv of 8 float32 from rank 1",
                       "recv of 8 float32 from rank 0"]),
    (large_sends, 2, [DEADLOCK, "send of 1048576 float32 to rank 1"]),
    (other_message, 2, ["ranks disagree on the count", "send of 8 float32 to rank 1", "recv of 9 float32 from rank 0"]),
    (dies, 2, ["rank 1 (pid", "has ended", "all_reduce of 8 float32, sum", "dies"]),
    (runs_out, 2, ["OutOfMemoryError", "has ended", "runs_out"]),
    (leaves, 2, ["has left the communicator", "leaves"]),
    (circle, 3, [DEADLOCK, "rank 2 of the world", "circle"]),
    (one_device, 2, ["ranks 0 and 1 of a communicator of 2 are both on device 0", "--devices 2"]),
    (missing_in_group, 2, ["ranks disagree on the kind", "split", "all_reduce of 8 float32", "missing_in_group"]),
    (two_new_groups, 2, [DEADLOCK, "rank 0 (pid", "rank 1 (pid", "two_new_groups"]),
    (other_mesh, 4, ["ranks disagree on the kind", "split", "other_mesh"]),
    (other_axis, 4, [DEADLOCK, "rank 0 (rank 2 of the world", "other_axis"]),
    (group_destroyed, 2, ["rank 1 (pid", "has left the communicator", "group_destroyed"]),
    (uneven_gather, 2, ["ranks disagree on the count", "all_gather of 8 float32", "all_gather of 9 float32"]),
    (uneven_list, 2, ["ranks disagree on the count", "broadcast of 8 float32", "broadcast of 9 float32"] if NEW else
     ["ranks disagree on the kind", "broadcast of 8 float32", "all_gather of 8 float32"]),
    (uneven_exchange, 2, ["ranks disagree on the count", "float32 to rank", "float32 from rank", "uneven_exchange"]),
    (no_storage, 2, ["rank 1 of a communicator of 2 calls all_reduce of 8 float32", "a tensor without storage"]),
    (freed, 2, ["illegal access by collective all_reduce", "nothing is mapped", "rank 1 (pid", "has ended"]),
    (other_device, 2, ["tensor on cuda:0" if NEW else "Tensor found on device cuda:0", "rank 1 (pid", "has ended"]),
    (other_root_of_objects, 2, ["ranks disagree on the root", "root 0", "root 1", "other_root_of_objects"]),
    (send_alone, 2, [DEADLOCK, "send of 1048576 float32 to rank 1", "all_reduce of 8 float32", "send_alone"]),
    (small_send_alone, 2, ["rank 1 has left", "not received a message", "send of 8 float32 to rank 1",
                           "small_send_alone"]),
    (from_itself, 2, ["recv of 8 float32 from rank 1, which is itself", "from_itself"]),
    (batch, 2, [DEADLOCK, "send of 1048576 float32 to rank 1", "send of 1048576 float32 to rank 0", "batch"]),
    (microbatches, 2, [DEADLOCK, "recv of 192 float32 from rank 0", "microbatches"]),
    (barrier_of_one, 2, ["rank 1 (pid", "has left the communicator", "barrier_of_one"]),
    (metric_of_one, 2, ["ranks disagree on the kind", "reduce of 1 float32, sum, root 0", "metric_of_one"]),
    (other_branch, 3, ["ranks disagree", "rank 2 (pid", "all_reduce of 1 float32", "other_branch"]),
    (racing_threads, 2, ["ranks disagree on the count", "all_reduce of 8", "all_reduce of 9", "late"]),
    (exits, 2, ["rank 1 (pid", "has ended", "exits"]),
    (crashes, 2, ["rank 1 (pid", "has ended", "crashes"]),
    (raises_in_backward, 2, ["no gradient today", "rank 1 (pid", "has ended", "raises_in_backward"]),
    (runs_out_in_forward, 2, ["OutOfMemoryError", "rank 1 (pid", "has ended", "all_gather", "runs_out_in_forward"]),
    (unused_parameter, 2, ["Expected to have finished reduction", "rank 1 (pid", "has ended", "unused_parameter"]),
    (checkpoint_of_one, 2, ["ranks disagree", "all_gather of 2048 float32", "all_reduce of 1", "checkpoint_of_one"]),
    (fewer_batches, 2, ["rank 1 (pid", "has left the communicator", "all_gather", "fewer_batches"]),
    (other_layers, 2, ["DDP expects same model across all ranks"]),
    (other_wrapping, 2, ["ranks disagree on the count", "all_gather of 2080", "all_gather of 6240", "other_wrapping"]),
]


def main():
    names = sys.argv[1:]
    failed = []
    for function, ranks, wanted in WRONG:
        if names and function.__name__ not in names:
            continue
        if function.__name__ in SINCE_10 and forked_ranks.VERSION < (2, 10):
            print(f"{function.__name__}: skipped: it is of PyTorch from 2.10 on")
            continue
        # Twice: a rank that waits in the store for one that has just been ended is ended by the limit alone.
        for _ in range(2):
            statuses, output, seconds = forked_ranks.run(ranks, function, limit=30, early=True,
                                                         device=0 if function is one_device else None)
            missing = [text for text in wanted if text not in output]
            good = not missing and any(statuses) and -9 not in statuses[:1] and seconds < 20
            if good or missing:
                break
        print(f"{function.__name__}: {'ok' if good else 'WRONG'}, {statuses}, {seconds:.1f} s", flush=True)
        if not good or names:
            print(f"missing {missing}\n{output}", flush=True)
        if not good:
            failed.append(function.__name__)
    sys.exit(f"wrong: {failed}" if failed else 0)


if __name__ == "__main__":
    main()
