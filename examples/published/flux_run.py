# SPDX-License-Identifier: Apache-2.0
"""Makes an image by FLUX.1-dev as diffusers' authors did: flux_run.py FOLDER STEPS KIND

KIND says in what the transformer and the larger text encoder have their weights. The checkpoints are sparse files of
zeros in FOLDER, which from_pretrained() loads like those of a hub; tokens are made up.
"""
import json
import sys
from pathlib import Path

import torch
import diffusers
import transformers

KINDS = {  # kind: settings of bitsandbytes
    "bf16": None,
    "4-bit": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": torch.bfloat16},
    "8-bit": {"load_in_8bit": True},
}


def save(model, folder, file):
    """Writes the settings of a model that has no memory, and its weights in bf16 as a hole."""
    head, end = {}, 0
    for name, tensor in model.state_dict().items():
        kind, size = ("BF16", 2) if tensor.is_floating_point() else ("I64", 8)
        head[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [end, end + tensor.numel() * size]}
        end += tensor.numel() * size
    text = json.dumps({"__metadata__": {"format": "pt"}, **head}).encode()
    text += b" " * (-len(text) % 8)
    (model.save_config if hasattr(model, "save_config") else model.config.save_pretrained)(folder)
    with open(folder / file, "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        out.truncate(8 + len(text) + end)


def make():
    """The parts of the pipeline with weights, as they are in the checkpoint that the authors name."""
    blocks = {"down_block_types": ["DownEncoderBlock2D"] * 4, "up_block_types": ["UpDecoderBlock2D"] * 4,
              "block_out_channels": [128, 256, 512, 512], "layers_per_block": 2}
    yield "text_encoder", transformers.CLIPTextModel(transformers.CLIPTextConfig(
        hidden_size=768, intermediate_size=3072, projection_dim=768, num_hidden_layers=12, num_attention_heads=12))
    yield "text_encoder_2", transformers.T5EncoderModel(transformers.T5Config(
        d_model=4096, d_ff=10240, num_layers=24, num_heads=64, d_kv=64, feed_forward_proj="gated-gelu"))
    yield "transformer", diffusers.FluxTransformer2DModel(guidance_embeds=True)
    yield "vae", diffusers.AutoencoderKL(**blocks, latent_channels=16, sample_size=1024, scaling_factor=0.3611,
                                         shift_factor=0.1159, use_quant_conv=False, use_post_quant_conv=False)


def load(folder, kind):
    parts = {}
    with torch.device("meta"):
        models = dict(make())
    for name, model in models.items():
        library = diffusers if hasattr(model, "save_config") else transformers
        file = "diffusion_pytorch_model.safetensors" if library is diffusers else "model.safetensors"
        if not (folder / name / file).exists():
            save(model, folder / name, file)
        options = {}
        if KINDS[kind] and name in ("text_encoder_2", "transformer"):
            options["quantization_config"] = library.BitsAndBytesConfig(**KINDS[kind])
        parts[name] = type(model).from_pretrained(folder / name, torch_dtype=torch.bfloat16, **options)
    return parts


class Tokenizer:
    def __init__(self, length):
        self.model_max_length = length

    def __call__(self, texts, max_length=None, **_):
        tokens = torch.arange(max_length or self.model_max_length).repeat(len(texts), 1)
        return transformers.BatchEncoding({"input_ids": tokens})

    def tokenize(self, _):
        return []

    def batch_decode(self, _):
        return [""]


def say(when):
    print(f"{when}: allocated {torch.cuda.max_memory_allocated() / 2**30:.3f}",
          f"reserved {torch.cuda.max_memory_reserved() / 2**30:.3f}", flush=True)


folder, steps, kind = sys.argv[1:]
scheduler = diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True)
pipe = diffusers.FluxPipeline(scheduler=scheduler, tokenizer=Tokenizer(77), tokenizer_2=Tokenizer(512),
                              **load(Path(folder), kind))
pipe.to("cuda")
say("loaded")
pipe(prompt="a palace", height=1024, width=1024, guidance_scale=3.5, num_inference_steps=int(steps),
     max_sequence_length=512)
say("in all")
