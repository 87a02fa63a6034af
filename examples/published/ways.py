# SPDX-License-Identifier: Apache-2.0
"""The allocators to compare, and running a program on the simulated device under one of them."""
import os
import subprocess
import sys
from pathlib import Path

WAYS = {  # name: (options of terrazzo sim, whether terrazzo serves)
    "native": (["--allocator=native"], False),
    "expandable": (["--allocator=expandable"], False),
    "terrazzo": ([], True),
    "late": (["--work=late"], True),
}


def add_options(parser, cases, steps):
    known = {"choices": [[], *cases], "help": ", ".join(cases)} if cases else {}
    parser.add_argument("names", nargs="*", metavar="CASE", **known)
    parser.add_argument("--env", required=True, type=Path)
    parser.add_argument("--terrazzo", default="terrazzo")
    if steps:
        parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--ways", type=lambda text: [name for name in WAYS if name in text.split(",")],
                        default=list(WAYS), help=", ".join(WAYS))


def parse_paths(parser):
    """Paths are made absolute, since programs run in other folders."""
    args = parser.parse_args()
    args.env = args.env.resolve()
    if "/" in args.terrazzo:
        args.terrazzo = Path(args.terrazzo).resolve()
    return args


def parse(parser):
    args = parse_paths(parser)
    if not args.ways:
        parser.error(f"--ways: {', '.join(WAYS)}")
    return args


def print_head(columns):
    print_row(columns)
    print("|---" * len(columns) + "|", flush=True)


def print_row(cells):
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def start(args, way, options, command, where, cache, path):
    """Runs the command in folder `where` with Python's modules of folder `path`. Returns the words of the call, and
    what subprocess.run found. Ends this program if terrazzo was to serve and did not."""
    chosen, terrazzo = WAYS[way]
    words = [args.terrazzo, "sim", f"--env={args.env}", *options, *chosen, "--",
             *[args.terrazzo, "run", "--"] * terrazzo, *command]
    environment = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": str(cache),
                   "TOKENIZERS_PARALLELISM": "false", **os.environ, "PYTHONPATH": str(path)}
    done = subprocess.run(words, cwd=where, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    if "could not be installed" in done.stdout:
        fail(words, done)
    return words, done


def run(*args):
    """As start(), but ends this program if the command failed, too."""
    words, done = start(*args)
    if done.returncode:
        fail(words, done)
    return words, done


def fail(words, done):
    sys.exit(f"{' '.join(map(str, words))}: status {done.returncode}\n{done.stdout[-4000:]}")
