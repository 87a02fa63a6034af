# SPDX-License-Identifier: Apache-2.0
"""Processes of one command pass tensors on the device to one another, and load data for one another."""
import torch
import torch.multiprocessing as multiprocessing
from torch.utils.data import DataLoader, TensorDataset


def answer(questions, answers):
    tensor = questions.get()
    assert torch.equal(tensor.cpu(), torch.arange(1000.)) and tensor.is_cuda
    tensor.copy_(torch.arange(1000.) * 2)
    torch.cuda.synchronize()
    del tensor
    answers.put("done")


def share():
    context = multiprocessing.get_context("spawn")
    questions, answers = context.Queue(), context.Queue()
    child = context.Process(target=answer, args=(questions, answers))
    child.start()
    tensor = torch.arange(1000.).cuda()
    questions.put(tensor)
    child.join()
    assert child.exitcode == 0 and answers.get() == "done"
    assert torch.equal(tensor.cpu(), torch.arange(1000.) * 2)


def load():
    """The workers are forks of a process that uses the device; they touch host memory only."""
    data = TensorDataset(torch.arange(1000.).reshape(100, 10))
    for (batch,) in DataLoader(data, batch_size=10, num_workers=2, pin_memory=True):
        assert torch.equal(batch.cuda(non_blocking=True).cpu(), batch)


if __name__ == "__main__":
    share()
    load()
