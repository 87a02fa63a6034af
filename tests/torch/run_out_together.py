# SPDX-License-Identifier: Apache-2.0
"""Several threads ask for more than there is, again and again: each is told so by PyTorch's own error."""
import threading

import torch

told = []


def run_out():
    for _ in range(20):
        try:
            torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            told.append(1)


torch.cuda.init()
threads = [threading.Thread(target=run_out) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(told) == 80, len(told)
