# SPDX-License-Identifier: Apache-2.0
"""Programs of several ranks: tells the stand-in for NCCL where in its program a rank calls a collective, and makes
sending objects work. recorder.py loads it once PyTorch has been imported.

PyTorch sends an object as two tensors, its size and its bytes, and computes with sizes on the device. Kernels compute
nothing here, so while such a function runs the host does those few operations. The bytes of an object are real where
those of another collective of the same size would not be.
"""
import contextlib
import ctypes
import functools
import os
import re
import sys
import threading

FRAMES = 6
Place = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t)
OBJECTS = ("all_gather_object", "gather_object", "send_object_list", "recv_object_list", "broadcast_object_list",
           "scatter_object_list")


class Places:
    """Says where a thread is, briefly and fast: each collective asks."""

    def __init__(self, is_library, calling_backward):
        self.is_library = functools.lru_cache(None)(is_library)
        self.calling_backward = calling_backward
        self.callback = Place(self.write)

    def frames(self, frame):
        """The program's own frames, innermost first; if there are none, all."""
        own, other = [], []
        while frame and len(own) < FRAMES:
            code = frame.f_code
            if not code.co_filename.startswith("<"):
                text = f"{code.co_filename}:{frame.f_lineno} {code.co_name}"
                if not self.is_library(code.co_filename):
                    own.append(text)
                elif len(other) < FRAMES:
                    other.append(text)
            frame = frame.f_back
        return own or other

    def here(self):
        thread = threading.get_ident()
        frames = self.frames(sys._getframe(1).f_back)  # none in autograd's threads
        if thread in threading._active and not isinstance(threading._active[thread], threading._DummyThread):
            return frames
        calling = self.calling_backward(thread)  # autograd's threads have no frames of the program
        return [f"{name}:{line} {function}" for name, line, function in reversed(calling)
                if not self.is_library(name)][:FRAMES] or frames

    def write(self, to, size):
        try:
            text = "\n".join(self.here()).encode("utf-8", "replace")[:size - 1] + b"\0"
        except Exception:  # a thread that ends with the interpreter
            text = b"\0"
        ctypes.memmove(to, text, len(text))


def host_mode(torch):
    """A mode in which the host computes what sending objects computes."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_map_only
    aten = torch.ops.aten
    on_host = {aten.add, aten.cat, aten.gt, aten.lt, aten.max, aten.stack, aten.sum}
    in_place = {aten.add_}

    class OnHost(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            packet = getattr(function, "overloadpacket", None)
            if packet is aten.zeros and torch.device(kwargs.get("device") or "cpu").type == "cuda":
                return torch.zeros(args[0], dtype=kwargs.get("dtype")).to(kwargs["device"])
            if packet not in on_host and packet not in in_place:
                return function(*args, **kwargs)
            devices = set()

            def to_host(tensor):
                devices.add(tensor.device)
                return tensor.cpu()

            result = function(*tree_map_only(torch.Tensor, to_host, args), **kwargs)
            device = next((device for device in devices if device.type == "cuda"), None)
            if packet in in_place:
                return args[0].copy_(result)
            return result.to(device) if device else result

    return OnHost


@contextlib.contextmanager
def large_objects():
    """Meanwhile this thread's collectives bring objects."""
    sends = ctypes.CDLL("libcuda.so.1").trz_lookalike_sends_objects
    sends.restype, sends.argtypes = ctypes.c_bool, [ctypes.c_bool]
    before = sends(True)
    try:
        yield
    finally:
        sends(before)


def sends_objects(torch, function):
    mode = []

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        if not mode:
            mode.append(host_mode(torch))
        with large_objects(), mode[0]():
            return function(*args, **kwargs)
    return wrapped


def follow_zero(module):
    """The optimizer of torch.distributed that is spread over ranks sends objects by a function of its own."""
    module._broadcast_object = sends_objects(module.torch, module._broadcast_object)


def send_objects(torch):
    """Wraps PyTorch's functions that send objects."""
    c10d = torch.distributed.distributed_c10d
    for name in OBJECTS:
        function = getattr(c10d, name, None)
        if function:
            wrapped = sends_objects(torch, function)
            setattr(c10d, name, wrapped)
            setattr(torch.distributed, name, wrapped)


def replace_everywhere(name, old, new):
    """Replaces a function in the modules of torch.distributed that have imported it by name."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("torch.distributed") and vars(module).get(name) is old:
            setattr(module, name, new)


NCCL_ID = re.compile(r"\d+|\d+:\d+|nccl_storekey_\w+")


def make_store(torch):
    """A store for one rank of a world whose other ranks are absent."""
    class Alone(torch.distributed.Store):
        def __init__(self):
            super().__init__()
            self.values = {}

        def set(self, key, value):
            self.values[key] = value if isinstance(value, bytes) else str(value).encode()

        def compare_set(self, key, expected, value):
            if self.values.get(key, b"").decode() in ("", expected):
                self.set(key, value)
            return self.values[key]

        def get(self, key):
            if key not in self.values and NCCL_ID.fullmatch(key.rpartition("/")[2]):
                return bytes(128)  # any communicator's id will do, since no other rank joins
            if key not in self.values:
                raise RuntimeError(f"terrazzo: key {key} of the store would come from a rank that is absent "
                                   "(--world-size, --ranks)")
            return self.values[key]

        def add(self, key, value):
            self.values[key] = str(int(self.values.get(key, b"0")) + value).encode()
            return int(self.values[key])

        def wait(self, keys, timeout=None):
            for key in keys:
                self.get(key)

        def check(self, keys):
            return all(key in self.values for key in keys)

        def delete_key(self, key):
            return self.values.pop(key, None) is not None

        def num_keys(self):
            return len(self.values)

    return Alone()


def be_alone(torch):
    """Runs as one rank of a world whose other ranks are absent: looks for none and waits for none."""
    c10d = torch.distributed.distributed_c10d
    init, rank, ranks = c10d.init_process_group, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    stores = []  # older PyTorch only keeps the C++ part, which has no methods without its Python object

    @functools.wraps(init)
    def init_alone(backend=None, init_method=None, **options):
        stores.append(make_store(torch))
        options.update(store=stores[-1], rank=rank, world_size=ranks)
        return init(backend, **options)

    c10d.init_process_group = torch.distributed.init_process_group = init_alone
    c10d._store_based_barrier = lambda *_, **__: None
    if hasattr(c10d, "_get_split_source"):
        c10d._get_split_source = lambda *_, **__: None  # a split does not tell which ranks are in a part

    split = getattr(c10d, "split_group", None)
    if split:
        @functools.wraps(split)
        def split_alone(parent_pg=None, split_ranks=None, *args, **options):
            here = torch.distributed.get_group_rank(parent_pg, rank) if parent_pg else rank
            own = next((sorted(part) for part in split_ranks or () if here in part), None)
            if own:  # the stand-in for NCCL cannot ask the others
                os.environ["TERRAZZO_SIM_SPLIT"] = f"{len(own)}:{own.index(here)}"
            return split(parent_pg, split_ranks, *args, **options)
        replace_everywhere("split_group", split, split_alone)

    def need(name, position):
        function = getattr(c10d, name)

        @functools.wraps(function)
        def checked(*args, **options):
            source = options.get("src", args[position] if len(args) > position else 0)
            if source is not None and source != rank:
                raise RuntimeError(f"terrazzo: {name} brings what only rank {source} knows, which is absent "
                                   "(--world-size, --ranks)")
            return function(*args, **options)
        setattr(c10d, name, checked)
        setattr(torch.distributed, name, checked)

    need("broadcast_object_list", 1)
    need("recv_object_list", 1)
    need("scatter_object_list", 2)


class Ranks:
    def __init__(self, torch, is_library, calling_backward):
        self.places = Places(is_library, calling_backward)
        if torch.distributed.is_available():
            send_objects(torch)
            if os.environ.get("TERRAZZO_SIM_ALONE"):
                be_alone(torch)

    def attach(self, driver):
        driver.trz_lookalike_on_place(self.places.callback)

    def detach(self, driver):
        """Called when Python ends."""
        driver.trz_lookalike_on_place(None)
