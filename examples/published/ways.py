# SPDX-License-Identifier: Apache-2.0
"""The allocators to compare, running a program of a clone on the simulated device under one of them, and a table."""
import io
import os
import re
import subprocess
import sys
import tarfile
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


def print_comparison_head(what, chosen):
    print_head([what, "published", "simulated", "differs by", *(f"{way}, reserved" for way in chosen)])


def print_comparison(title, measured, results):
    """`results`: for each way what was allocated and reserved. None, also as `measured`: out of memory."""
    first = results[0] and results[0][0]
    differs = f"{first / measured - 1:+.1%}" if first and measured else ""
    print_row([title, measured or "out of memory", first or "out of memory", differs,
               *(f"{result[1]:.2f}" if result else "" for result in results)])


def git(clone, *words):
    return subprocess.run(["git", "-C", clone, *words], check=True, stdout=subprocess.PIPE).stdout


def unpack(clone, commit, parts, folder):
    """Puts parts of a clone, as they were in that commit, into the folder."""
    tarfile.open(fileobj=io.BytesIO(git(clone, "archive", commit, *parts))).extractall(folder, filter="data")


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


def find_lines(words, done, pattern, count):
    """What a pattern finds in what a run has printed, which must have it in `count` lines"""
    found = re.findall(pattern, done.stdout, re.MULTILINE)
    if len(found) != count:
        fail(words, done)
    return found
