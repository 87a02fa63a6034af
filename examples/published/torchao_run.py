# SPDX-License-Identifier: Apache-2.0
"""Runs torchao's benchmark of optimizers on images and weights made up here: torchao_run.py STEPS SCRIPT OPTION...

The script takes them from a network: RESISC45, of which only the number of images matters here, and timm's weights.
"""
import runpy
import sys

import datasets
import timm
from PIL import Image

steps, script, *options = sys.argv[1:]
batch = int(options[options.index("--batch_size") + 1])
create_model = timm.create_model


def load_dataset(_, split):
    count = batch * (int(steps) if split == "train" else 1)
    columns = {"image": [Image.new("RGB", (256, 256), (i % 256, 0, 0)) for i in range(count)],
               "label": [i % 45 for i in range(count)]}
    kinds = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    return datasets.Dataset.from_dict(columns, features=kinds)


def create_without_weights(*args, **kwargs):
    return create_model(*args, **{**kwargs, "pretrained": False})


datasets.load_dataset, timm.create_model = load_dataset, create_without_weights
sys.argv = [script, *options]
runpy.run_path(script, run_name="__main__")
