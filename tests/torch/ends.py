# SPDX-License-Identifier: Apache-2.0
"""ends.py exit|kill|worker|outlived: 7 GiB, then 3, and an end without atexit: by os._exit, by a signal, or in a
process made by fork that ends so as a worker of multiprocessing. Or with a process left behind, which ends after the
run."""
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import torch


def work():
    for gib in 7, 3:
        held = torch.empty(gib << 30, dtype=torch.uint8, device="cuda")
        del held
        torch.cuda.empty_cache()


if sys.argv[1] == "left":
    torch.cuda.init()
    print(flush=True)
    while os.path.isdir(os.environ["TERRAZZO_SIM_REPORT"]):
        time.sleep(0.1)
elif sys.argv[1] == "outlived":
    subprocess.Popen([sys.executable, __file__, "left"], stdout=subprocess.PIPE).stdout.readline()
elif sys.argv[1] == "worker":
    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start()
    worker.join()
else:
    work()
    if sys.argv[1] == "exit":
        os._exit(3)
    os.kill(os.getpid(), signal.SIGKILL)
