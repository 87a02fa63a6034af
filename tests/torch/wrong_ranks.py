# SPDX-License-Identifier: Apache-2.0
"""Programs of several ranks that are wrong: each ends with an error that says who, where and what, within 10 seconds
of the moment when nothing can go on, and leaves no process behind."""
import os
import sys
import time

import forked_ranks
import torch
import torch.distributed as dist


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


# Function, ranks, what the output must have.
WRONG = [
    (missing_rank, 2, ["rank 1 (pid", "waits in all_reduce of 8 float32, sum", "missing_rank"]),
    (other_order, 2, ["ranks disagree on the kind of collective 1", "rank 0", "all_reduce of 8 float32, sum",
                      "broadcast of 8 float32, root 0", "other_order"]),
    (other_count, 2, ["ranks disagree on the count", "all_reduce of 8 float32", "all_reduce of 9 float32"]),
    (other_type, 2, ["ranks disagree on the type", "8 float32", "8 int32"]),
    (other_root, 2, ["ranks disagree on the root", "root 0", "root 1"]),
    (other_operation, 2, ["ranks disagree on the operation", "sum", "maximum"]),
    (two_groups, 2, ["deadlock: ranks wait for each other", "rank 0 (pid", "rank 1 (pid", "two_groups"]),
    (both_receive, 2, ["deadlock: ranks wait for each other", "recv of 8 float32 from rank 1",
                       "recv of 8 float32 from rank 0"]),
    (large_sends, 2, ["deadlock: ranks wait for each other", "send of 1048576 float32 to rank 1"]),
    (other_message, 2, ["ranks disagree on the count", "send of 8 float32 to rank 1", "recv of 9 float32 from rank 0"]),
    (dies, 2, ["rank 1 (pid", "has ended", "all_reduce of 8 float32, sum", "dies"]),
    (runs_out, 2, ["OutOfMemoryError", "has ended", "runs_out"]),
    (leaves, 2, ["has left the communicator", "leaves"]),
    (circle, 3, ["deadlock: ranks wait for each other", "rank 2 of the world", "circle"]),
    (one_device, 2, ["ranks 0 and 1 of a communicator of 2 are both on device 0", "--devices 2"]),
]


def main():
    names = sys.argv[1:]
    failed = []
    for function, ranks, wanted in WRONG:
        if names and function.__name__ not in names:
            continue
        statuses, output, seconds = forked_ranks.run(ranks, function, limit=30,
                                                     device=0 if function is one_device else None)
        missing = [text for text in wanted if text not in output]
        good = not missing and any(statuses) and -9 not in statuses[:1] and seconds < 20
        print(f"{function.__name__}: {'ok' if good else 'WRONG'}, {statuses}, {seconds:.1f} s", flush=True)
        if not good or names:
            print(f"missing {missing}\n{output}", flush=True)
        if not good:
            failed.append(function.__name__)
    sys.exit(f"wrong: {failed}" if failed else 0)


if __name__ == "__main__":
    main()
