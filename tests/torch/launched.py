# SPDX-License-Identifier: Apache-2.0
"""A program of 2 ranks, however they are started: each says which rank it is, and all find each other by NCCL.

    launched.py                   by a launcher, with torchrun's variables
    launched.py spawn             by torch.multiprocessing
    launched.py OMPI_COMM_WORLD   as mpirun does, each rank with one visible device: also SLURM
"""
import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist

NAMES = {"OMPI_COMM_WORLD": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
         "SLURM": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")}


def be_rank(rank, ranks, device, store=None):
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", rank=rank, world_size=ranks, init_method=store or "env://")
    total = torch.full((8,), rank + 1).cuda()
    dist.all_reduce(total)
    assert total.tolist() == [ranks * (ranks + 1) // 2] * 8, total
    found = [None] * ranks
    dist.all_gather_object(found, (rank, str(torch.cuda.get_device_properties(device).uuid)))
    assert [r for r, _ in found] == list(range(ranks)) and len({uuid for _, uuid in found}) == ranks, found
    print(f"rank {rank} of {ranks}, device {device} of {torch.cuda.device_count()}", flush=True)
    dist.destroy_process_group()


def spawned(rank, store):
    be_rank(rank, 2, rank, store)


def start_as(launcher, store):
    ranks = []
    for r in range(2):
        own = dict(zip(NAMES[launcher], (str(r), "2", str(r))), CUDA_VISIBLE_DEVICES=str(r))
        ranks.append(subprocess.Popen([sys.executable, __file__, launcher, store], env={**os.environ, **own}))
    sys.exit(max(abs(rank.wait()) for rank in ranks))


def main():
    launcher, store = (sys.argv[1:] + ["", ""])[:2]
    if launcher == "":
        be_rank(*(int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")))
    elif launcher == "spawn":
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(spawned, (f"file://{folder}/store",), nprocs=2)
    elif store:
        rank, ranks = (int(os.environ[name]) for name in NAMES[launcher][:2])
        be_rank(rank, ranks, 0, store)
    else:
        with tempfile.TemporaryDirectory() as folder:
            start_as(launcher, f"file://{folder}/store")


if __name__ == "__main__":
    main()
