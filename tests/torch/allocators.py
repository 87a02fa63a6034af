# SPDX-License-Identifier: Apache-2.0
"""allocators.py [switch]: 4 GiB by whichever allocator; or by two, the second chosen while the program runs. Then it
asks for more than there is, in a request that nobody catches."""
import sys

import torch

GIB = 1 << 30
held = torch.empty(4 * GIB, dtype=torch.uint8, device="cuda")
if "switch" in sys.argv:
    getattr(torch._C, "_accelerator_setAllocatorSettings", torch.cuda.memory._set_allocator_settings)(
        "expandable_segments:True")
held = torch.empty(1000 * GIB, dtype=torch.uint8, device="cuda")
