#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What torchtitan's authors measured on real GPUs, and what `terrazzo sim` finds for one rank of a world of that size.

    compare_torchtitan.py --env ENV --titan DIR [--terrazzo CLI] [--steps 10] [--ways WAY,WAY,...] [--real] [CASE...]

DIR holds torchtitan's sources at the commit that was measured (COMMIT below); none of them are in this tree. The
program runs unchanged, on a tokenizer and a text made up here (made_up.py). Published figures:
benchmarks/llama3_h100_202412_torchtitan.md of torchtitan, tables 1 to 4. docs/ranks.md has the results, and says how to
set ENV up and why the figures differ.
"""
import argparse
import json
import tempfile
from pathlib import Path

import made_up
import ways

COMMIT = "9dec370ad26b5f8e9a7333a0e36165018262644b"
GIB = 1 << 30
MEMORY = "95GiB"  # "H100(95GB)" in torchtitan's docs/performance.md; these runs do not come near it

EIGHT, SEVENTY = "train_configs/llama3_8b.toml", "train_configs/llama3_70b.toml"
COMPILE = ["--training.compile"]
FLOAT8 = [*COMPILE, "--float8.enable_float8_linear", "--float8.enable_fsdp_float8_all_gather",
          "--float8.precompute_float8_dynamic_scale_for_fsdp"]  # docs/float8.md of torchtitan
FULL = ["--activation_checkpoint.mode=full"]


def context_parallel(degree, length):
    return [*FLOAT8, *FULL, "--training.batch_size=1", f"--training.seq_len={length}",
            f"--training.data_parallel_shard_degree={8 // degree}",
            f"--experimental.context_parallel_degree={degree}"]


CASES = {  # name: (name in the table, options besides the common ones, {GPUs: GiB published})
    "fsdp": ("8B: FSDP", [], {8: 82.4, 128: 67.0}),
    "compile": ("8B: FSDP, torch.compile", COMPILE, {8: 77.0, 128: 62.0}),
    "float8": ("8B: FSDP, torch.compile, Float8", FLOAT8, {8: 76.8, 128: 61.8}),
    "cp1": ("8B: as before, full checkpointing, 32768 tokens", context_parallel(1, 32768), {8: 83.9}),
    "cp2": ("8B: FSDP 4, CP 2, 65536 tokens", context_parallel(2, 65536), {8: 84.2}),
    "cp4": ("8B: FSDP 2, CP 4, 131072 tokens", context_parallel(4, 131072), {8: 84.0}),
    "cp8": ("8B: CP 8, 262144 tokens", context_parallel(8, 262144), {8: 84.5}),
    "70b": ("70B: FSDP 32, TP 8, torch.compile, Float8, full checkpointing, batch 16", [
        f"--job.config_file={SEVENTY}", "--training.batch_size=16", "--training.data_parallel_shard_degree=32",
        "--training.tensor_parallel_degree=8", *FLOAT8, *FULL], {256: 71.9}),
}


def make_inputs(folder):
    made_up.write_tokenizer(folder / "tokenizer.model")
    (folder / "text").mkdir()
    text = "".join(json.dumps({"text": part}) + "\n" for part in made_up.texts(400, 2000))
    (folder / "text" / "data.json").write_text(text)


class Titan:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        make_inputs(folder)

    def program(self, options):
        return ["train.py", f"--job.config_file={EIGHT}", f"--job.dump_folder={self.folder}",
                "--training.batch_size=2", f"--training.steps={self.args.steps}", "--training.dataset=c4_test",
                f"--training.dataset_path={self.folder / 'text'}",
                f"--model.tokenizer_path={self.folder / 'tokenizer.model'}", *options]

    def run(self, way, world, *command):
        """The report's row of each rank."""
        file = self.folder / "report.json"
        file.unlink(missing_ok=True)
        words, done = ways.run(self.args, way, [f"--memory={MEMORY}", f"--json={file}", world], command,
                               self.args.titan, self.folder / "cache", self.args.titan)
        ranks = [p for p in json.loads(file.read_text())["processes"] if "rank" in p] if file.exists() else []
        if not ranks:
            ways.fail(words, done)
        return ranks

    def one_rank(self, way, world, options):
        return self.run(way, f"--world-size={world}", "python", *self.program(options))[0]

    def all_ranks(self, way, world, options):
        return self.run(way, f"--devices={world}", "torchrun", f"--nproc-per-node={world}", *self.program(options))


def gib(number):
    return f"{number / GIB:.2f}"


def compare(titan, name):
    title, options, published = CASES[name]
    for world, measured in published.items():
        found = {way: titan.one_rank(way, world, options) for way in titan.args.ways}
        reserved = {way: rank["peak_reserved_bytes"] for way, rank in found.items()}
        cells = [title, world, measured, gib(next(iter(found.values()))["peak_allocated_bytes"]),
                 *(f"{gib(size)} ({size / GIB / measured - 1:+.1%})" for size in reserved.values())]
        ways.print_row(cells)


def compare_with_all(titan, name):
    """Whether 8 running ranks find the same as one whose others are absent."""
    keys = ("peak_allocated_bytes", "peak_reserved_bytes", "device_peak_bytes", "collectives")
    options = CASES[name][1]
    alone = titan.one_rank("native", 8, options)
    ranks = titan.all_ranks("native", 8, options)
    differ = [(rank["rank"], key, rank[key], alone[key]) for rank in ranks for key in keys if rank[key] != alone[key]]
    print(f"{CASES[name][0]}: {len(ranks)} ranks that run, and one alone: {differ or 'the same'}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways.add_options(parser, CASES, 10)
    parser.add_argument("--titan", required=True, type=Path, metavar="DIR")
    parser.add_argument("--real", action="store_true", help="run 8 ranks, too, and compare them with the one")
    args = ways.parse(parser)
    args.titan = args.titan.resolve()
    if not (args.titan / "train_configs" / "llama3_8b.toml").exists():
        parser.error(f"{args.titan}: not torchtitan of December 2024; git checkout {COMMIT}")
    names = args.names or ["fsdp"]
    with tempfile.TemporaryDirectory() as folder:
        titan = Titan(args, Path(folder))
        if args.real:
            for name in names:
                compare_with_all(titan, name)
            return
        columns = ["settings", "GPUs", "published", "allocated", *args.ways]
        ways.print_head(columns)
        for name in names:
            compare(titan, name)


if __name__ == "__main__":
    main()
