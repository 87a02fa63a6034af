# SPDX-License-Identifier: Apache-2.0
"""Control flow that depends on what the host has sent, for `terrazzo sim --scalars computed`. Kernels compute nothing
here, so this computes on the host what PyTorch's operations make of values that the host has sent, such as token ids,
masks, sizes and counters. It keeps those values beside the device's memory, which stays as it is: they are what the
program reads, and they decide the sizes of results. What comes of other values is not known; but a check that asks
whether all of something holds, or any, finds that all does and not any.

Only small tensors are followed, those of floating point only far below the size of weights. What a graph or compiled
code changes is not seen, nor what other libraries do, nor threads that the program starts.

inject/sitecustomize.py runs this file once the program has imported PyTorch.
"""
import contextlib
import ctypes
import functools

import torch
import torch.utils.checkpoint
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import (TorchDispatchMode, _get_current_dispatch_mode_stack,
                                          _pop_mode_temporarily)

INTEGER_BYTES, FLOAT_BYTES = 1 << 24, 1 << 18  # no larger tensors are followed
ELEMENTS = 1 << 27                             # and no larger views of them, of which some repeat their elements
ASKED_BYTES = 1 << 16
NO_SUBCLASS = torch.Tensor.__torch_dispatch__


def is_plain(tensor):
    return type(tensor).__torch_dispatch__ is NO_SUBCLASS and tensor.layout is torch.strided


def bytes_of(tensor):
    return tensor.numel() * tensor.itemsize


def is_whole(tensor):
    return tensor.is_contiguous() and bytes_of(tensor) == tensor.untyped_storage().nbytes()


def fits(tensor, size):
    is_real = tensor.dtype.is_floating_point or tensor.dtype.is_complex
    return size <= (FLOAT_BYTES if is_real else INTEGER_BYTES)


def tensors_in(values):
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


def with_tensors(values, change):
    """The same values, with each tensor changed."""
    if isinstance(values, torch.Tensor):
        return change(values)
    if isinstance(values, (list, tuple)):
        changed = [with_tensors(value, change) for value in values]
        return changed if isinstance(values, list) else tuple(changed)
    return values


class Operation:
    """What there is to know of one of PyTorch's operations."""

    def __init__(self, func):
        schema, name = func._schema, func._schema.name.partition("::")[2]
        self.written = [(i, a.name) for i, a in enumerate(schema.arguments) if a.alias_info and a.alias_info.is_write]
        self.gives_arguments = any(result.alias_info for result in schema.returns)
        self.can_be_computed = func.namespace == "aten" and not name.startswith(
            ("empty", "new_empty", "_empty", "resize", "set_"))
        self.if_unknown = {"all": True, "_is_all_true": True, "any": False, "_is_any_true": False}.get(name)
        self.is_random = torch.Tag.nondeterministic_seeded in func.tags
        if self.is_random and not name.startswith(("randint", "randperm")):
            self.can_be_computed = False
        self.decides = torch.Tag.dynamic_output_shape in func.tags or "unique" in name or name == "equal"
        self.takes_masks = name in ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put")
        self.copies, self.overwrites = name == "copy_", name in ("copy_", "fill_", "zero_")
        self.reads = name in ("_local_scalar_dense", "_to_copy", "copy_")

    def changed(self, args, kwargs):
        """The arguments that it changes."""
        given = [args[i] if i < len(args) else kwargs.get(name) for i, name in self.written]
        return list(tensors_in(given))


def at_once(operation, args, kwargs):
    """The arguments of a copy to the host that does not come later, when it would replace what is known."""
    if operation.copies and not args[0].is_cuda:
        return args[:2], {}
    to_host = kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cpu"
    return args, {**kwargs, "non_blocking": False} if to_host else kwargs


class Unknown(Exception):
    """A value that the host has not sent, or that is too large to follow."""


class Computing(TorchDispatchMode):
    """`driver` is the simulated one."""

    def __init__(self, driver):
        super().__init__()
        self.driver = driver
        driver.trz_lookalike_is_known.restype = driver.trz_lookalike_is_captured.restype = ctypes.c_bool
        self.known = {}  # by the number of a storage: a reference, which keeps the number taken; the host's storage
        self.swept_at = 64
        self.random = torch.Generator().manual_seed(0).get_state()
        self.operation = functools.lru_cache(None)(Operation)
        self.backward_needs_it = False  # it may index by masks that are known

    @classmethod
    def is_infra_mode(cls):
        """False would keep torch.compile from compiling; so would that of the next function."""
        return True

    @classmethod
    def ignore_compile_internals(cls):
        return True

    # ---- what is known ----

    def on_host(self, tensor):
        """The tensor's values. A tensor of the device gives a view of what is kept for its storage."""
        if tensor.numel() > ELEMENTS or tensor.is_conj() or tensor.is_neg():
            raise Unknown
        if not tensor.is_cuda:
            if not fits(tensor, bytes_of(tensor)):
                raise Unknown
            return tensor
        storage = tensor.untyped_storage()
        if storage._cdata not in self.known:
            self.ask(tensor, storage)
        _, data = self.known.get(storage._cdata, (None, None))
        if data is None or data.nbytes() != storage.nbytes():
            raise Unknown
        place = tensor.storage_offset(), tensor.size(), tensor.stride()
        return torch.empty(0, dtype=tensor.dtype).set_(data, *place)

    def ask(self, tensor, storage):
        """torch.tensor() sends values in a call that no mode sees. The driver knows them until the next kernel."""
        if storage.nbytes() <= ASKED_BYTES and is_whole(tensor) and self.driver.trz_lookalike_is_known(
                ctypes.c_uint64(storage.data_ptr()), ctypes.c_uint64(storage.nbytes())):
            self.learn(tensor, tensor.cpu())

    def learn(self, tensor, values):
        """Keeps the values of a tensor of the device, unless they are too large. A view's are kept already."""
        storage = tensor.untyped_storage()
        if storage._cdata in self.known or not fits(tensor, storage.nbytes()):
            return
        if len(self.known) >= self.swept_at:
            for number in [number for number, (reference, _) in self.known.items() if reference.expired()]:
                del self.known[number]
            self.swept_at = 2 * len(self.known) + 64
        self.known[storage._cdata] = StorageWeakRef(storage), torch.UntypedStorage(storage.nbytes())
        self.on_host(tensor).copy_(values)

    def forget(self, tensors):
        for tensor in tensors:
            if tensor.is_cuda:
                self.known.pop(tensor.untyped_storage()._cdata, None)

    def read(self, func, args, kwargs):
        """Reads from the device. What comes is replaced by what is known, so the driver shall not count the read."""
        storages = [tensor.untyped_storage() for tensor in tensors_in(args) if tensor.is_cuda]
        ranges = [(ctypes.c_uint64(storage.data_ptr()), ctypes.c_uint64(storage.nbytes())) for storage in storages]
        for place in ranges:
            self.driver.trz_lookalike_note_known(*place, True)
        try:
            return func(*args, **kwargs)
        finally:
            for place in ranges:
                self.driver.trz_lookalike_note_known(*place, False)

    # ---- operations ----

    def prepare(self, operation, args, kwargs):
        """The arguments on the host; Unknown unless all of them are known."""
        if not operation.can_be_computed:
            raise Unknown
        if operation.overwrites and args[0].is_cuda and is_whole(args[0]):
            for tensor in tensors_in(args[1:]):
                self.on_host(tensor)
            self.forget(args[:1])
            self.learn(args[0], torch.zeros((), dtype=args[0].dtype))
        kwargs = {name: with_tensors(value, self.on_host) for name, value in kwargs.items()}
        if kwargs.get("device") is not None:
            kwargs["device"] = torch.device("cpu")
        return with_tensors(args, self.on_host), kwargs

    def compute(self, func, operation, args, kwargs):
        """What the operation gives on the host. It changes there what it changes on the device."""
        try:
            return self.draw(func, args, kwargs) if operation.is_random else func(*args, **kwargs)
        except (RuntimeError, IndexError, ValueError) as error:  # what the host cannot compute, or no device could
            raise Unknown from error

    def draw(self, func, args, kwargs):
        """Random numbers; the program's own stay as they are."""
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self.random)
            values = func(*args, **kwargs)
            self.random = torch.get_rng_state()
            return values

    def take(self, result, values):
        """The device's result, once its values are known. What is no tensor is a value itself."""
        if isinstance(result, torch.Tensor):
            if result.is_cuda:
                self.learn(result, values)
            else:
                result.copy_(values)
            return result
        if isinstance(result, (list, tuple)):
            return type(result)(self.take(*pair) for pair in zip(result, values))
        return values

    def make(self, values, device):
        """The device's result of an operation whose values decide its size, or that has no other result."""
        def made(value):
            result = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=device)
            self.learn(result, value)
            return result
        return with_tensors(values, made)

    def follow(self, func, operation, args, kwargs, device):
        try:
            given = self.prepare(operation, args, kwargs)
            if operation.decides:
                values = self.compute(func, operation, *given)
        except Unknown:
            return self.leave(operation, args, kwargs, func(*args, **kwargs))
        if operation.decides:
            return self.make(values, device)
        result = self.read(func, args, kwargs) if operation.reads else func(*args, **kwargs)
        try:
            if not all(fits(tensor, bytes_of(tensor)) for tensor in tensors_in((result,))):
                raise Unknown
            values = self.compute(func, operation, *given)
        except Unknown:
            return self.leave(operation, args, kwargs, result)
        return result if operation.gives_arguments else self.take(result, values)

    def leave(self, operation, args, kwargs, result):
        """The device's result, of which nothing is known."""
        changed = operation.changed(args, kwargs)
        self.forget(changed)
        if operation.if_unknown is not None and isinstance(result, torch.Tensor) and not changed:
            self.learn(result, torch.tensor(operation.if_unknown))
        return result

    def without_masks(self, indices):
        """The indices of indexing, with numbers in the place of masks that are known, as ATen does it."""
        numbers = []
        for index in indices:
            try:
                is_mask = index is not None and index.is_cuda and index.dtype in (torch.bool, torch.uint8)
                chosen = self.on_host(index).nonzero() if is_mask else None
            except Unknown:
                chosen = None
            numbers += [index] if chosen is None else self.make(chosen, index.device).unbind(1)
            self.backward_needs_it |= chosen is not None
        return numbers

    def is_captured(self, device):
        if not torch.cuda.is_initialized():
            return False
        stream = torch._C._cuda_getCurrentRawStream(torch.device(device).index or 0)
        return self.driver.trz_lookalike_is_captured(ctypes.c_void_p(stream))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = list(tensors_in((args, list(kwargs.values()))))
        device = next((tensor.device for tensor in given if tensor.is_cuda), None) or kwargs.get("device")
        if not device or torch.device(device).type != "cuda" or not all(map(is_plain, given)) or not isinstance(
                func, torch._ops.OpOverload):
            return func(*args, **kwargs)
        operation = self.operation(func)
        if self.is_captured(device):
            self.forget(operation.changed(args, kwargs))
            return func(*args, **kwargs)
        if operation.takes_masks:
            args = args[0], self.without_masks(args[1]), *args[2:]
        if operation.reads and all(tensor.untyped_storage()._cdata in self.known for tensor in given if tensor.is_cuda):
            args, kwargs = at_once(operation, args, kwargs)
        return self.follow(func, operation, args, kwargs, device)


# ---- backward passes ----

def left_out(mode, function):
    """Runs a backward pass without the mode, if it can do without: under any mode autograd adds gradients to others in
    new memory, which it does not do otherwise."""
    @functools.wraps(function)
    def run(*args, **kwargs):
        if mode.backward_needs_it or _get_current_dispatch_mode_stack() != [mode]:
            return function(*args, **kwargs)
        with _pop_mode_temporarily():
            return function(*args, **kwargs)
    return run


class Again:
    """Follows what a backward pass computes again. It is entered before `inner`, so that modes of the program's stay
    above this one."""

    def __init__(self, mode, inner):
        self.mode, self.inner, self.entered = mode, inner, []

    def __enter__(self):
        contexts = contextlib.ExitStack()
        if self.mode not in _get_current_dispatch_mode_stack():
            contexts.enter_context(self.mode)
        contexts.enter_context(self.inner)
        self.entered.append(contexts)

    def __exit__(self, *error):
        return self.entered.pop().__exit__(*error)


def followed_again(mode, checkpoint):
    """What backward passes compute again decides as it did at first."""
    def contexts_of(context_fn):
        first, again = context_fn()
        return first, Again(mode, again)

    @functools.wraps(checkpoint)
    def run(function, *args, **kwargs):
        if torch.compiler.is_compiling():
            return checkpoint(function, *args, **kwargs)
        if kwargs.get("use_reentrant") is False:
            context_fn = kwargs.pop("context_fn", torch.utils.checkpoint.noop_context_fn)
            return checkpoint(function, *args, context_fn=lambda: contexts_of(context_fn), **kwargs)

        @functools.wraps(function)
        def follow(*inputs, **named):
            with Again(mode, contextlib.nullcontext()):
                return function(*inputs, **named)
        return checkpoint(follow, *args, **kwargs)
    return run


def begin():
    mode = Computing(ctypes.CDLL("libcuda.so.1"))
    torch.autograd.backward = left_out(mode, torch.autograd.backward)
    torch.autograd.grad = left_out(mode, torch.autograd.grad)
    torch.utils.checkpoint.checkpoint = followed_again(mode, torch.utils.checkpoint.checkpoint)
    mode.__enter__()
