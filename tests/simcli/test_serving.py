#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The schedulers of vLLM and SGLang under `terrazzo sim`, in packages that stand for them: they are told which tokens a
device that computes nothing has sampled."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CLI = os.environ["TERRAZZO_CLI"]
SCHEDULER = """
from types import SimpleNamespace as Space

class Scheduler:
    vllm_config = Space(model_config=Space(get_vocab_size=lambda: 100))
    def __init__(self, **requests):
        self.requests = requests
    def update_from_output(self, scheduler_output, model_runner_output):
        rows = model_runner_output.sampled_token_ids
        return {name: rows[row] for name, row in model_runner_output.req_id_to_index.items()} if rows else {}
"""
PROGRAM = """
from types import SimpleNamespace as Space
from vllm.v1.core.sched.scheduler import Scheduler

def request(tokens, ends=(), grammar=None):
    return Space(num_tokens=tokens, sampling_params=Space(all_stop_token_ids=set(ends)),
                 structured_output_request=Space(grammar=grammar))

class Grammar:
    def __init__(self, *allowed):
        self.allowed = allowed
    def validate_tokens(self, tokens):
        return [token for token in tokens if token in self.allowed]

scheduler = Scheduler(whole=request(16), part=request(50), decodes=request(31), ends=request(9, [0, 1]),
                      shaped=request(9, [5], Grammar(5, 7)), closed=request(9, [5], Grammar(5)))
new = [Space(req_id=name, num_computed_tokens=start)
       for name, start in (("whole", 0), ("part", 16), ("ends", 8), ("shaped", 8), ("closed", 8), ("aborted", 0))]
scheduled = Space(scheduled_new_reqs=new, scheduled_cached_reqs=Space(req_ids=["decodes"], num_computed_tokens=[30]),
                  num_scheduled_tokens=dict(whole=16, part=16, decodes=3, ends=1, shaped=1, closed=1, aborted=4))
for device in ([], [4711] * 3):
    names = list(scheduled.num_scheduled_tokens)
    output = Space(sampled_token_ids=[list(device) for _ in names],
                   req_id_to_index={name: i for i, name in enumerate(names)})
    told = scheduler.update_from_output(scheduled, output)
    print(*(f"{name}={told[name]}".replace(" ", "") for name in sorted(scheduler.requests)))
print(scheduler.update_from_output(scheduled, model_runner_output=Space(sampled_token_ids=[], req_id_to_index={})))
"""
PROCESSOR = """
class SchedulerBatchResultProcessor:
    def process_batch_result_decode(self, batch, result):
        return result.next_token_ids
"""
PROCESSES = """
from types import SimpleNamespace as Space
from sglang.srt.managers.scheduler_components.batch_result_processor import SchedulerBatchResultProcessor

class Tokens(list):
    ndim = 1
    def new_tensor(self, tokens, device):
        return tokens

class Event:
    def synchronize(self):
        print("waited")

def request(stops=None, tokenizer=None, ends=None):
    return Space(sampling_params=Space(stop_token_ids=stops), tokenizer=tokenizer, eos_token_ids=ends)

batch = Space(reqs=[request(), request([0], Space(eos_token_id=1)), request(None, None, {0})])
for result in (Space(next_token_ids=Tokens([-5, 4711, 8]), copy_done=Event()),
               Space(next_token_ids=Tokens([1, 2, 3, 4, 5, 6]), copy_done=None),
               Space(next_token_ids=None, copy_done=None)):
    print(SchedulerBatchResultProcessor().process_batch_result_decode(batch, result))
"""


class Serving(unittest.TestCase):
    def run_program(self, scheduler, program, *command, module="vllm/v1/core/sched/scheduler.py"):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / module
            file.parent.mkdir(parents=True)
            file.write_text(scheduler)
            done = subprocess.run([*command, sys.executable, "-c", program], cwd=folder, capture_output=True, text=True,
                                  check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split("\n")[:-1]

    def test_a_request_goes_on_until_its_limit(self):
        """One token for each request whose tokens are all computed, as many as the device says for a draft."""
        lines = self.run_program(SCHEDULER, PROGRAM, CLI, "sim", "--")
        self.assertEqual(lines, ["closed=[5] decodes=[0] ends=[2] part=[] shaped=[7] whole=[0]",
                                 "closed=[5,5,5] decodes=[0,0,0] ends=[2,2,2] part=[] shaped=[7,7,7] whole=[0,0,0]",
                                 "{}"])

    def test_elsewhere_it_stays_as_it_is(self):
        lines = self.run_program(SCHEDULER, PROGRAM)
        self.assertEqual(lines[0], "closed=[] decodes=[] ends=[] part=[] shaped=[] whole=[]")

    def test_a_scheduler_of_another_form(self):
        program = "from vllm.v1.core.sched import scheduler; print(scheduler.Scheduler.__name__)"
        lines = self.run_program("class Scheduler:\n    pass\n", program, CLI, "sim", "--")
        self.assertEqual(lines, ["Scheduler"])

    def test_sglang_gets_tokens_that_end_nothing(self):
        module = "sglang/srt/managers/scheduler_components/batch_result_processor.py"
        drafts = ["[1, 2, 3, 4, 5, 6]", "None"]  # stay as the device says
        self.assertEqual(self.run_program(PROCESSOR, PROCESSES, CLI, "sim", "--", module=module),
                         ["waited", "[0, 2, 1]", *drafts])
        self.assertEqual(self.run_program(PROCESSOR, PROCESSES, module=module), ["[-5, 4711, 8]", *drafts])


if __name__ == "__main__":
    unittest.main()
