# SPDX-License-Identifier: Apache-2.0
"""Runs one of Liger Kernel's benchmark scripts, without timing anything: liger_rows.py ROWS SCRIPT.

Appends a line of JSON to the file ROWS for each figure of memory: kernel, provider, mode, x, the other settings, MiB.
What is timed runs twice all the same, since what it leaves behind counts as memory afterwards.
"""
import json
import os
import runpy
import sys
import traceback

rows, script = sys.argv[1:]
sys.path.insert(0, os.path.dirname(script))

import triton.testing  # noqa: E402
import utils  # noqa: E402  the benchmark scripts' own

run_benchmarks = utils.run_benchmarks


def run_untimed(function, quantiles=(), grad_to_none=(), **_):
    for _ in range(2):
        for tensor in grad_to_none or ():
            tensor.grad = None
        function()
    return [0.0 for _ in quantiles]


def run_apart(*args, **kwargs):
    """One benchmark fails alone."""
    try:
        run_benchmarks(*args, **kwargs)
    except Exception:
        traceback.print_exc()


def keep(benchmark_data_list, *_, **__):
    with open(rows, "a") as file:
        for data in benchmark_data_list:
            if data.metric_name != "memory":
                continue
            for x, found in zip(data.x_values, data.y_values_50):
                key = (data.kernel_name, data.kernel_provider, data.kernel_operation_mode, x,
                       data.extra_benchmark_config_str)
                file.write(json.dumps([*key, found]) + "\n")


triton.testing.do_bench = run_untimed
utils.run_benchmarks, utils.update_benchmark_data_csv = run_apart, keep
sys.argv = [script]
runpy.run_path(script, run_name="__main__")
