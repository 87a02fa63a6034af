# SPDX-License-Identifier: Apache-2.0
"""Holds memory of device 0 until standard input ends: torch_ballast.py hold|leave MIB. Says how much it got.

By the driver alone, without PyTorch, so that it is there at once.
"""
import ctypes
import sys

MIB = 1 << 20
PIECE = 256 * MIB


def check(what, status):
    if status:
        sys.exit(f"ballast: {what}: driver error {status}")


def main():
    cuda = ctypes.CDLL("libcuda.so.1")
    context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    check("cuInit", cuda.cuInit(0))
    check("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check("cuCtxSetCurrent", cuda.cuCtxSetCurrent(context))
    check("cuMemGetInfo", cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
    wanted = int(sys.argv[2]) * MIB
    if sys.argv[1] == "leave":
        wanted = max(0, free.value - wanted)
    held = 0
    while held < wanted:
        size, address = min(PIECE, (wanted - held + 2 * MIB - 1) // (2 * MIB) * 2 * MIB), ctypes.c_uint64()
        check("cuMemAlloc", cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)))
        held += size
    check("cuMemGetInfo", cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
    print(f"held {held / MIB:.0f} MiB, {free.value / MIB:.0f} of {total.value / MIB:.0f} MiB are free", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
