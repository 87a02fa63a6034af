# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's ZeRO on a small model, by PyTorch's own AdamW. No check runs it: no environment has DeepSpeed unless it
is installed there (docs/ranks.md).

    zero.py STAGE [optimizer] [parameters]    stage 0 to 3; what is kept on the host
"""
import sys

import deepspeed
import torch

WIDTH, LAYERS, STEPS, BUCKET = 1024, 6, 3, 2_000_000


def main():
    words = [word for word in sys.argv[1:] if not word.startswith("--")]  # DeepSpeed's launcher adds an option
    plan = {"stage": int(words[0]), "reduce_bucket_size": BUCKET, "allgather_bucket_size": BUCKET}
    if "optimizer" in words:
        plan["offload_optimizer"] = {"device": "cpu"}
    if "parameters" in words:
        plan["offload_param"] = {"device": "cpu"}
    deepspeed.init_distributed()
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
        "train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": True}, "gradient_clipping": 1.0,
        "zero_optimization": plan, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}}})
    for _ in range(STEPS):
        batch = torch.randn(4, WIDTH, device=engine.device, dtype=torch.bfloat16)
        loss = engine(batch).float().pow(2).mean()
        engine.backward(loss)
        engine.step()
    print(torch.distributed.get_rank(), torch.cuda.max_memory_allocated(), flush=True)


if __name__ == "__main__":
    main()
