# SPDX-License-Identifier: Apache-2.0
"""What stands in for files that need a licence or a network: a tokenizer, and weights.

Words and weights do not affect how much memory a program takes, but their number does: the vocabulary has as many words
as Llama 3's, so that the logits are as large.
"""
import base64
import itertools
import random

WORDS = 128000  # in the tokenizer of Llama 3.1 and 3.2, without the 256 special ones, which programs add


def write_tokenizer(path):
    """Writes a file of tiktoken's format to `path`."""
    every = (bytes(word) for length in (1, 2, 3) for word in itertools.product(range(256), repeat=length))
    words = enumerate(itertools.islice(every, WORDS))
    path.write_text("".join(f"{base64.b64encode(word).decode()} {n}\n" for n, word in words))


def texts(words, count):
    """`count` texts of `words` words each, the same in each run."""
    choose = random.Random(0)
    return (" ".join("".join(choose.choices("abcdefgh", k=5)) for _ in range(words)) for _ in range(count))


class Checkpointer:
    """torchtune's interface to a model's files: weights that are all zero, and never written."""

    def __init__(self, model, **_):
        self.model = model

    def load_checkpoint(self):
        import torch
        from torchtune.config._utils import _get_component_from_path

        with torch.device("meta"):
            model = _get_component_from_path(self.model)()
        zero = torch.zeros((), dtype=torch.bfloat16)
        return {"model": {name: zero.expand(part.shape) for name, part in model.state_dict().items()}}

    def save_checkpoint(self, *_, **__):
        pass
