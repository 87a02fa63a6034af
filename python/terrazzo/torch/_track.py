# SPDX-License-Identifier: Apache-2.0
"""The purpose of live memory: weights, gradients, optimizer state, activations, temporary, cache."""
from __future__ import annotations

import ctypes
import threading
from typing import Iterable

import torch

CATEGORIES = ("weights", "gradients", "optimizer", "activations", "temporary", "cache")
# Values of trz_category, by which the heap itself counts.
NUMBERS = {"weights": 1, "gradients": 2, "optimizer": 3, "activations": 4}


def _addresses(tensors: Iterable[object]) -> set[int]:
    found = set()
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and tensor.is_cuda:
            found.add(tensor.untyped_storage().data_ptr())
    return found - {0}


def _leaves(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


# The categories when a look at them found most in use, for reports.
most: dict[str, int] = {}


def _keep_most(sizes: dict[str, int]) -> None:
    global most
    if sum(sizes.values()) - sizes["cache"] > sum(most.values()) - most.get("cache", 0):
        most = dict(sizes)


class Tracker:
    """Made by track(). The model's forward carries the tag "activations" until close()."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None):
        from . import history
        self.model, self.optimizer = model, optimizer
        self._inside = threading.local()  # its `tags`: one for each call that the thread is in
        self._told: dict[str, set[int]] = {"weights": set(), "gradients": set(), "optimizer": set()}
        history(True, frames=False)
        self._hooks = [model.register_forward_pre_hook(self._enter),
                       model.register_forward_hook(self._leave, always_call=True)]
        if optimizer is not None:  # gradients are all there before a step, the optimizer's state after it
            self._hooks += [optimizer.register_step_pre_hook(self._tell), optimizer.register_step_post_hook(self._tell)]
        self._tell()

    def _sets(self) -> dict[str, set[int]]:
        parameters = list(self.model.parameters())
        return {"weights": _addresses([*parameters, *self.model.buffers()]),
                "gradients": _addresses(p.grad for p in parameters),
                "optimizer": _addresses(_leaves(self.optimizer.state) if self.optimizer else ())}

    def _tell(self, *_: object) -> None:
        """Tells the heaps what is new in each set, so that reports need not walk over it."""
        from . import _native_library
        library = _native_library()
        for name, addresses in self._sets().items():
            # Gradients come and go, often at addresses that others have had.
            for address in addresses if name == "gradients" else addresses - self._told[name]:
                library.categorize(address, NUMBERS[name])
            self._told[name] = addresses

    def _set_category(self, name: str | None) -> None:
        from . import _native_library
        _native_library().trz_set_category(NUMBERS[name] if name else 0)

    def _enter(self, *_: object) -> None:
        from . import tag
        self._set_category("activations")
        context = tag("activations")
        context.__enter__()
        self._inside.__dict__.setdefault("tags", []).append(context)

    def _leave(self, *_: object) -> None:
        tags = getattr(self._inside, "tags", None)
        if tags:
            tags.pop().__exit__(None, None, None)
        if not tags:
            self._set_category(None)

    def close(self) -> None:
        """Removes the hooks from the model. The history goes on."""
        for hook in self._hooks:
            hook.remove()

    def categories(self, device: int | str | torch.device | None = None) -> dict[str, int]:
        """Bytes of each category on a device now. Memory that a forward allocates, and is not the model's or the
        optimizer's, is an activation; other live memory is temporary; cache is reserved and free."""
        from . import _device, _native, _native_library
        library, index = _native_library(), _device(device)
        sets = self._sets()
        self._tell()
        sizes = dict.fromkeys(CATEGORIES, 0)

        def visit(_: object, pointer: ctypes._Pointer) -> None:
            block = pointer.contents
            if block.state != _native.BLOCK_HELD:
                return
            known = next((name for name, addresses in sets.items() if block.address in addresses), None)
            sizes[known or ("activations" if block.tag == b"activations" else "temporary")] += block.size

        visitor = _native.Visitor(block=_native.VISIT_BLOCK(visit))
        library.trz_walk(library.heap(index), ctypes.byref(visitor))
        now = library.stats(index)
        sizes["cache"] = now["reserved_bytes.all.current"] - now["allocated_bytes.all.current"]
        _keep_most(sizes)
        return sizes


def track(model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None) -> Tracker:
    """Sorts live memory by purpose: `track(model, optimizer).categories()`. Starts the history."""
    return Tracker(model, optimizer)
