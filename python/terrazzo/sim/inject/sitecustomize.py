# SPDX-License-Identifier: Apache-2.0
"""Comes first in PYTHONPATH of a program that runs under `terrazzo sim`: runs ../recorder.py, which records PyTorch's
memory, once the program has imported it, and ../ranks.py, ../generation.py and ../serving.py once the program has
imported what they follow. It also runs the sitecustomize module that is next on the path, if there is one."""
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SIM = os.path.dirname(HERE)


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def follow(torch):
    load("terrazzo_environment", os.path.join(SIM, "environment.py")).warn_of_old_standins(sys.prefix)
    recorder = load("terrazzo_recorder", os.path.join(SIM, "recorder.py"))
    recorder.record(torch)
    if os.environ.get("TERRAZZO_SIM_SCALARS", "computed") == "computed":
        recorder.follow_values(torch)


startup = load("terrazzo_startup", os.path.join(os.path.dirname(SIM), "startup.py"))
# Module of the program -> our file, and its function that is told of the module.
FOLLOWED = {
    "torch.distributed.optim.zero_redundancy_optimizer": ("ranks", "follow_zero"),
    "transformers.generation.utils": ("generation", "follow"),
    "vllm.v1.core.sched.scheduler": ("serving", "follow_vllm"),
    "sglang.srt.managers.scheduler_components.batch_result_processor": ("serving", "follow_sglang"),
}


def tell(file, function):
    return lambda module: getattr(load(f"terrazzo_{file}", os.path.join(SIM, f"{file}.py")), function)(module)


if os.environ.get("TERRAZZO_SIM_REPORT"):
    sys.meta_path[:0] = [startup.AfterImport("torch", follow),
                         *(startup.AfterImport(name, tell(*where)) for name, where in FOLLOWED.items())]
startup.run_next(HERE)
