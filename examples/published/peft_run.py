# SPDX-License-Identifier: Apache-2.0
"""Runs PEFT's comparison of methods on a model, a tokenizer and texts made up here: peft_run.py LONGEST OTHERS FOLDER
EXPERIMENT, in method_comparison/MetaMathQA.

The program takes them from a network. Weights and words do not affect how much memory it takes, but the lengths of the
texts do: of 40 batches the 21st is as long as LONGEST tokens, all others as OTHERS. FOLDER gets the weights' file, all
of whose bytes are 0; it takes no room. A loss means nothing here, so that the check that it is right passes.
"""
import json
import sys
from pathlib import Path

import datasets
import tokenizers
import transformers

longest, others, folder, experiment = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
sys.path.insert(0, "")

MODEL = {"hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 24,
         "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256, "max_position_embeddings": 131072,
         "tie_word_embeddings": True, "dtype": "bfloat16", "rms_norm_eps": 1e-5, "bos_token_id": 128000,
         "eos_token_id": 128001,
         "rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "high_freq_factor": 4.0,
                             "low_freq_factor": 1.0, "original_max_position_embeddings": 8192}}  # Llama 3.2 3B
STEPS, BATCH = 40, 4


def write_model():
    import torch

    config = transformers.LlamaConfig(architectures=["LlamaForCausalLM"], **MODEL)
    config.save_pretrained(folder)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, part in model.named_parameters():
        size = part.numel() * 2
        header[name] = {"dtype": "BF16", "shape": list(part.shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def make_tokenizer():
    """A letter is a token."""
    words = [chr(33 + n) for n in range(94)] + [" ", "\n"] + [f"word{n}" for n in range(96, 128000)]
    every = {word: n for n, word in enumerate([*words, "<start>", "<end>"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(every, unk_token="!"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(r"[\s\S]"), "isolated")
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="<start> $A", special_tokens=[("<start>", 128000)])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<start>", eos_token="<end>")


def pair(length):
    """A question and an answer that have so many tokens with what the program puts around them."""
    around = len("<Question:  Think step by step.\nAnswer:")  # with the token that each text begins with
    answer = "The answer is: 5"
    return "q" * (length - around - len(answer)), answer


def load_dataset(name, *_, **options):
    if "streaming" in options:
        return datasets.Dataset.from_dict({"text": ["w" * 2000] * BATCH})
    if name == "openai/gsm8k":
        rows = datasets.Dataset.from_dict({"question": ["q" * 100] * 50, "answer": ["#### 5"] * 50})
        return datasets.DatasetDict(train=rows, test=rows.select(range(2)))
    half = STEPS * BATCH // 2
    lengths = [others - n % BATCH for n in range(half)] + [longest, *[longest - 1] * (BATCH - 1)]
    lengths += [others - n % BATCH for n in range(half - BATCH)]
    questions, answers = zip(*map(pair, lengths))
    rows = {"query": questions, "response": answers, "original_question": questions, "type": ["GSM"] * len(questions)}
    return datasets.DatasetDict(train=datasets.Dataset.from_dict(rows))


datasets.load_dataset = load_dataset
if not (folder / "model.safetensors").exists():
    write_model()
load_model = transformers.AutoModelForCausalLM.from_pretrained
transformers.AutoModelForCausalLM.from_pretrained = lambda pretrained_model_name_or_path, **options: load_model(
    folder, **options)
transformers.AutoTokenizer.from_pretrained = lambda *_, **__: make_tokenizer()

import run  # noqa: E402  the program
import utils  # noqa: E402  its own

loss_of = run.calculate_mean_per_token_loss
get_train_config = run.get_train_config


def loss_that_is_right(**options):
    loss_of(**options)
    return 1.5


def get_short_config(path):
    config = get_train_config(path)
    config.max_steps, config.eval_steps = STEPS, STEPS // 2
    config.generation_kwargs = {**config.generation_kwargs, "max_new_tokens": 2}
    return config


run.calculate_mean_per_token_loss, run.get_train_config = loss_that_is_right, get_short_config
run.get_base_model_info = run.get_dataset_info = lambda _: None
run.get_peft_branch = utils.get_peft_branch = lambda: "published"
utils.get_peft_worktree_is_dirty = lambda: False
utils.RESULT_PATH_TEST = str(folder)
utils.get_git_hash = lambda _: None
run.print_verbose = lambda *words, **_: print(*words, flush=True)
run.main(path_experiment=f"experiments/{experiment}", experiment_name=experiment, clean=True, bucket_name=None)
