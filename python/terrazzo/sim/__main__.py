# SPDX-License-Identifier: Apache-2.0
"""python3 -m terrazzo.sim setup DIR [--torch VERSION] [--compile] [--with PACKAGE]..."""
import argparse
import sys
from pathlib import Path

if not __package__:  # run by path, as the command `terrazzo sim --setup` does
    sys.path[0] = str(Path(__file__).resolve().parents[2])
from terrazzo.sim import environment  # noqa: E402


def main():
    parser = argparse.ArgumentParser(prog="terrazzo.sim", description="PyTorch on a simulated device.")
    commands = parser.add_subparsers(dest="command", required=True)
    setup = commands.add_parser("setup", help="set up a virtual environment with PyTorch")
    setup.add_argument("folder", type=Path)
    setup.add_argument("--torch", default=environment.TORCH, help="version of PyTorch (%(default)s)")
    setup.add_argument("--compile", action="store_true", help="install triton too, for torch.compile")
    setup.add_argument("--with", dest="packages", action="append", default=[], metavar="PACKAGE",
                       help="install this too, such as transformers; may be given several times")
    setup.add_argument("--libraries", type=Path, help="folder of the look-alike libraries")
    args = parser.parse_args()
    try:
        environment.setup(args.folder, args.torch, args.compile, args.packages, args.libraries)
    except environment.Failure as failure:
        sys.exit(f"terrazzo: {failure}")


if __name__ == "__main__":
    main()
