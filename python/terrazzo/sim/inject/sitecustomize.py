# SPDX-License-Identifier: Apache-2.0
"""Comes first in PYTHONPATH of a program that runs under `terrazzo sim`: runs ../recorder.py, which records PyTorch's
memory, once the program has imported it, ../generation.py once the program has imported transformers' loops, and
../serving.py once it has imported vLLM's scheduler. It also runs the sitecustomize module that is next on the path, if
there is one."""
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
    recorder = load("terrazzo_recorder", os.path.join(SIM, "recorder.py"))
    recorder.record(torch)
    if os.environ.get("TERRAZZO_SIM_SCALARS", "computed") == "computed":
        recorder.follow_values(torch)


startup = load("terrazzo_startup", os.path.join(os.path.dirname(SIM), "startup.py"))
if os.environ.get("TERRAZZO_SIM_REPORT"):
    sys.meta_path[:0] = [
        startup.AfterImport("torch", follow),
        startup.AfterImport("transformers.generation.utils", lambda utils: load(
            "terrazzo_generation", os.path.join(SIM, "generation.py")).follow(utils)),
        startup.AfterImport("vllm.v1.core.sched.scheduler", lambda scheduler: load(
            "terrazzo_serving", os.path.join(SIM, "serving.py")).follow(scheduler))]
startup.run_next(HERE)
