# SPDX-License-Identifier: Apache-2.0
"""python3 -m terrazzo.sim setup DIR [--torch VERSION] [--compile] [--with PACKAGE]...
python3 -m terrazzo.sim standins PROGRAM DIR [--open LIBRARY]..."""
import argparse
import sys
from pathlib import Path

if not __package__:  # run by path, as the command `terrazzo sim --setup` does
    sys.path[0] = str(Path(__file__).resolve().parents[2])
from terrazzo.sim import environment  # noqa: E402


def make_standins(args):
    """Stand-ins for the CUDA libraries that a program needs."""
    sys.path.append("/usr/lib/python3/dist-packages")  # pyelftools, if this is not Debian's Python
    try:
        from terrazzo.sim import standins
    except ImportError as error:
        raise environment.Failure("pyelftools is missing; install it by pip, or Debian's python3-pyelftools") from error
    try:
        made = standins.make_for_program(args.program, environment.find_libraries(args.libraries), args.folder,
                                         environment.find_sources(), environment.find_compiler(), args.opened)
    except standins.Failure as failure:
        raise environment.Failure(str(failure)) from failure
    print(f"{sum(made.values())} functions of {len(made)} libraries; put {args.folder} first in LD_LIBRARY_PATH")


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
    standins = commands.add_parser("standins", help="stand-ins for the CUDA libraries that a program needs")
    standins.add_argument("program", type=Path, help="the program, or a library of it")
    standins.add_argument("folder", type=Path, help="where to put them")
    standins.add_argument("--open", dest="opened", action="append", default=[], metavar="LIBRARY",
                          help="also one that it opens by this name while it runs, such as libcublas.so.12")
    standins.add_argument("--libraries", type=Path, help="folder of the look-alike libraries")
    args = parser.parse_args()
    try:
        if args.command == "standins":
            make_standins(args)
            return
        environment.setup(args.folder, args.torch, args.compile, args.packages, args.libraries)
    except environment.Failure as failure:
        sys.exit(f"terrazzo: {failure}")


if __name__ == "__main__":
    main()
