# SPDX-License-Identifier: Apache-2.0
"""ends.py exit|kill|worker: 7 GiB, then 3, and an end without atexit: by os._exit, by a signal, or in a process made by
fork that ends so as a worker of multiprocessing."""
import multiprocessing
import os
import signal
import sys

import torch


def work():
    for gib in 7, 3:
        held = torch.empty(gib << 30, dtype=torch.uint8, device="cuda")
        del held
        torch.cuda.empty_cache()


if sys.argv[1] == "worker":
    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start()
    worker.join()
else:
    work()
    if sys.argv[1] == "exit":
        os._exit(3)
    os.kill(os.getpid(), signal.SIGKILL)
