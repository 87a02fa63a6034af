# SPDX-License-Identifier: Apache-2.0
"""Ranks that are made by fork() of a process that has imported PyTorch and not used it: what they import is imported
once."""
import os
import sys
import tempfile
import time
import traceback

import torch
import torch.distributed as dist


VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])


def let_go():
    """PyTorch before 2.15 holds what a collective has used until a thread of its own looks, ten times a second: that
    may be some steps later."""
    if VERSION < (2, 15):
        torch.cuda.synchronize()
        time.sleep(0.3)


def _be_rank(rank, ranks, store, function, args, device, early):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(device), WORLD_SIZE=str(ranks))
    status = 1
    try:
        torch.cuda.set_device(device)
        bound = {"device_id": torch.device("cuda", device)} if early and VERSION < (2, 15) else {}
        dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=ranks, **bound)
        function(rank, ranks, *args)
        dist.destroy_process_group()
        status = 0
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def run(ranks, function, *args, limit=60, device=None, early=False):
    """[status of each rank, -N for signal N], their common output, seconds. A rank's device has its number, or is
    `device`. `early`: communicators are made before they are used, as always from PyTorch 2.15 on. Where the others
    are absent (terrazzo sim --world-size) there is one rank, that of the environment."""
    start = time.monotonic()
    alone = os.environ.get("TERRAZZO_SIM_ALONE")
    wanted = [int(os.environ["RANK"])] if alone else range(ranks)
    device = int(os.environ["LOCAL_RANK"]) if alone else device
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as output:
        pids = []
        for rank in wanted:
            pid = os.fork()
            if pid == 0:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                _be_rank(rank, ranks, os.path.join(folder, "store"), function, args,
                         rank if device is None else device, early)
            pids.append(pid)
        found = {}
        while len(found) < len(wanted):
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid:
                found[pid] = os.waitstatus_to_exitcode(status)
                continue
            time.sleep(0.05)
            if time.monotonic() - start > limit:
                for left in set(pids) - set(found):
                    os.kill(left, 9)
        output.seek(0)
        return [found[pid] for pid in pids], output.read().decode(errors="replace"), time.monotonic() - start
