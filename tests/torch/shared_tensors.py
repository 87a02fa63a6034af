# SPDX-License-Identifier: Apache-2.0
"""Processes of one command pass tensors on the device to one another, and load data for one another."""
import os

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


def make_model():
    return torch.nn.Sequential(torch.nn.Linear(100, 3000), torch.nn.Linear(3000, 5000)).requires_grad_(False).cuda()


def take_weights(states, answers):
    model = make_model()
    while (state := states.get()) is not None:
        model.load_state_dict(state)
        torch.cuda.synchronize()
        del state
        answers.put({float(value) for t in model.state_dict().values() for value in t.cpu().flatten()[::99]})


def hand_over():
    """A trainer gives its weights to another process after each step; views of them, too."""
    context = multiprocessing.get_context("spawn")
    states, answers = context.Queue(), context.Queue()
    child = context.Process(target=take_weights, args=(states, answers))
    child.start()
    model = make_model()
    for step in range(3):
        for parameter in model.parameters():
            parameter.copy_(torch.full(parameter.shape, float(step)))
        states.put(model.state_dict())
        assert answers.get() == {step}
    states.put(None)
    child.join()
    assert child.exitcode == 0


def die_with(questions, answers):
    tensor = questions.get()
    answers.put(tensor.cpu().tolist())
    answers.close()
    answers.join_thread()
    os._exit(3)


def outlive():
    """The receiver dies while it has a tensor: the sender goes on."""
    context = multiprocessing.get_context("spawn")
    questions, answers = context.Queue(), context.Queue()
    child = context.Process(target=die_with, args=(questions, answers))
    child.start()
    tensor = torch.arange(1000.).cuda()
    questions.put(tensor)
    assert answers.get() == list(range(1000))
    child.join()
    assert child.exitcode == 3
    del tensor
    torch.cuda.ipc_collect()
    others = [torch.full((1000,), float(i)).cuda() for i in range(20)]
    torch.cuda.empty_cache()
    assert all((t.cpu() == i).all() for i, t in enumerate(others))


def load():
    """The workers are forks of a process that uses the device; they touch host memory only."""
    data = TensorDataset(torch.arange(1000.).reshape(100, 10))
    for (batch,) in DataLoader(data, batch_size=10, num_workers=2, pin_memory=True):
        assert torch.equal(batch.cuda(non_blocking=True).cpu(), batch)


def followed(tensors, answers):
    tensor = tensors.get()
    answers.put(tensor.tolist())
    tensor.add_(1)
    torch.cuda.synchronize()
    answers.put("done")
    tensors.get()


def hand_over_what_is_known():
    """Values that only the host has computed so far. What comes of them in another process is not known."""
    context = multiprocessing.get_context("spawn")
    tensors, answers = context.Queue(), context.Queue()
    child = context.Process(target=followed, args=(tensors, answers))
    child.start()
    old = torch.full((10,), 7).cuda()  # whose memory the tensor gets
    assert old.tolist() == [7] * 10
    del old
    tensor = torch.arange(10, device="cuda")
    tensor.mul_(3)
    tensors.put(tensor)
    assert answers.get() == list(range(0, 30, 3)) and answers.get() == "done"
    assert tensor.tolist() == [0] * 10
    tensors.put(None)
    child.join()
    assert child.exitcode == 0


if __name__ == "__main__":
    share()
    hand_over()
    hand_over_what_is_known()
    outlive()
    load()
