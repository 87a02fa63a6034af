#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What torchtune's authors measured on an A100, one technique after the other, and what `terrazzo sim` finds.

    compare_torchtune.py --env ENV [--terrazzo CLI] [--steps 3] [--ways WAY,WAY,...] [CASE...]

ENV has torchtune in it. Its recipes run unchanged, on a tokenizer, a text and weights made up here (made_up.py).
Published figures: README.md of torchtune since commit 1814feb17, "Optimization flags". docs/sim.md has the results, and
says how to set ENV up and why figures differ.
"""
import argparse
import json
import re
import tempfile
from pathlib import Path

import made_up
import ways

MEMORY = "80GiB"
MODEL = "torchtune.models.llama3_2.llama3_2_3b"
FULL = ["full_finetune_single_device", "--config", "llama3_2/3B_full_single_device"]
LORA = ["lora_finetune_single_device", "--config", "llama3_2/3B_lora_single_device"]
QLORA = ["lora_finetune_single_device", "--config", "llama3_2/3B_qlora_single_device"]
COMMON = {"batch_size": 2, "tokenizer.max_seq_len": 4096, "gradient_accumulation_steps": 1, "epochs": 1,
          "dataset.packed": True, "loss": "torch.nn.CrossEntropyLoss", "optimizer._component_": "torch.optim.AdamW",
          "optimizer.fused": True, "optimizer_in_bwd": False, "compile": False,
          "enable_activation_checkpointing": False, "enable_activation_offloading": False}
COMPILE = {"compile": True}
CHUNKED = {**COMPILE, "loss": "torchtune.modules.loss.CEWithChunkedOutputLoss"}
CHECKPOINT = {**CHUNKED, "enable_activation_checkpointing": True}
IN_BACKWARD = {**CHECKPOINT, "optimizer_in_bwd": True}
OFFLOAD = {**IN_BACKWARD, "enable_activation_offloading": True}
EIGHT_BIT = {**OFFLOAD, "optimizer._component_": "torchao.prototype.low_bit_optim.AdamW8bit",
             "optimizer.fused": None}  # it has no such option
ADAPTERS = {**OFFLOAD, "optimizer_in_bwd": False, "model.lora_rank": 8,  # docs/sim.md says why not the recipe's 64
            "save_adapter_weights_only": True}
CASES = {  # name: (name in the table, recipe, what it changes in COMMON, GiB published)
    "packed": ("packed dataset", FULL, {}, 60.0),
    "compile": ("+ torch.compile", FULL, COMPILE, 51.0),
    "chunked": ("+ chunked cross entropy", FULL, CHUNKED, 42.9),
    "checkpoint": ("+ activation checkpointing", FULL, CHECKPOINT, 24.9),
    "in_backward": ("+ optimizer step in the backward pass", FULL, IN_BACKWARD, 23.1),
    "offload": ("+ activation offloading", FULL, OFFLOAD, 21.8),
    "8bit": ("+ 8-bit AdamW", FULL, EIGHT_BIT, 17.6),
    "lora": ("LoRA", LORA, ADAPTERS, 8.5),
    "qlora": ("QLoRA", QLORA, ADAPTERS, 4.6),
}


def make_inputs(folder):
    made_up.write_tokenizer(folder / "tokenizer.model")
    rows = [{"instruction": text, "input": "", "output": text} for text in made_up.texts(40, 2000)]
    (folder / "data.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def program(folder, steps, recipe, changes):
    made = {"tokenizer.path": folder / "tokenizer.model", "dataset.source": "json", "seed": 0,
            "dataset.data_files": folder / "data.json", "checkpointer._component_": "made_up.Checkpointer",
            "checkpointer.model": MODEL, "metric_logger.log_dir": folder / "log", "output_dir": folder / "out",
            "max_steps_per_epoch": steps}
    settings = {**COMMON, **made, **changes}
    return ["tune", "run", *recipe, *(f"{key}={value}" for key, value in settings.items() if value is not None)]


def largest(log, what):
    return max(float(number) for number in re.findall(rf"{what}:([0-9.]+)", log))


def run(args, folder, way, command):
    """The largest of the steps' figures, as the program logged them."""
    for old in (folder / "log").glob("*"):
        old.unlink()
    words, done = ways.run(args, way, [f"--memory={MEMORY}"], command, folder, folder / "cache",
                           Path(__file__).resolve().parent)
    log = "".join(file.read_text() for file in (folder / "log").glob("*.txt"))
    if "peak_memory_active" not in log:
        ways.fail(words, done)
    return largest(log, "peak_memory_active"), largest(log, "peak_memory_reserved")


def compare(args, folder, name):
    title, recipe, changes, published = CASES[name]
    found = [run(args, folder, way, program(folder, args.steps, recipe, changes)) for way in args.ways]
    active = found[0][0]
    cells = [title, published, f"{active:.2f}", f"{active / published - 1:+.1%}",
             *(f"{reserved:.2f}" for _, reserved in found)]
    ways.print_row(cells)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways.add_options(parser, CASES, 3)
    args = ways.parse(parser)
    ways.print_comparison_head("technique", args.ways)
    with tempfile.TemporaryDirectory() as folder:
        make_inputs(Path(folder))
        for name in args.names or CASES:
            compare(args, Path(folder), name)


if __name__ == "__main__":
    main()
