# SPDX-License-Identifier: Apache-2.0
"""Tokens for the schedulers of vLLM and SGLang on a device that computes nothing. Which tokens a step has sampled, and
with vLLM's newer model runner also how many, are values on the device. The host knows which requests the step has
brought to the end of what they had: each of those gets a token that does not end it; vLLM's is one that its grammar
allows. So a request goes on until its length limit, as if no sequence ended before.

inject/sitecustomize.py runs this file once the program has imported one of the schedulers.
"""
import functools


def starts(scheduled):
    """How many of its tokens each request had computed when the step began."""
    cached = scheduled.scheduled_cached_reqs
    found = {new.req_id: new.num_computed_tokens for new in scheduled.scheduled_new_reqs}
    found.update(zip(cached.req_ids, cached.num_computed_tokens))
    return found


def token_of(request, vocabulary):
    """The first token that does not end the request; if its grammar allows no such token, the first that it allows."""
    structured = getattr(request, "structured_output_request", None)
    grammar, ends, allowed = structured and structured.grammar, request.sampling_params.all_stop_token_ids, None
    for token in range(vocabulary):
        if grammar and grammar.validate_tokens([token]) != [token]:
            continue
        if token not in ends:
            return token
        allowed = token if allowed is None else allowed
    return allowed or 0


def rows_of(scheduler, scheduled, output):
    """The tokens of each request in the step's output, in its order."""
    rows, began = list(output.sampled_token_ids), starts(scheduled)
    vocabulary = scheduler.vllm_config.model_config.get_vocab_size()
    for name, count in scheduled.num_scheduled_tokens.items():
        request, row = scheduler.requests.get(name), output.req_id_to_index.get(name)
        if request is None or row is None or request.sampling_params is None:
            continue
        due = began[name] + count >= request.num_tokens
        rows[row] = [token_of(request, vocabulary)] * max(len(rows[row]), 1) if due else []
    return rows


def follow_vllm(module):
    scheduler = getattr(module, "Scheduler", None)
    update = getattr(scheduler, "update_from_output", None)
    if update is None:
        return  # a version with another scheduler

    @functools.wraps(update)
    def updated(self, scheduler_output, model_runner_output, *arguments, **named):
        if model_runner_output.sampled_token_ids:  # none, of models that generate nothing
            model_runner_output.sampled_token_ids = rows_of(self, scheduler_output, model_runner_output)
        return update(self, scheduler_output, model_runner_output, *arguments, **named)

    scheduler.update_from_output = updated


def ends_of(request):
    """The tokens that end a request of SGLang."""
    tokenizer, ends = request.tokenizer, set(request.sampling_params.stop_token_ids or ())
    if tokenizer is not None:
        ends |= {tokenizer.eos_token_id, *(getattr(tokenizer, "additional_stop_token_ids", None) or ())}
    return ends | set(request.eos_token_ids or ())


def goes_on(request):
    ends = ends_of(request)
    return next(token for token in range(len(ends) + 1) if token not in ends)


def told_tokens(process):
    """The method of a processor of results, which is told tokens that go on. Drafts stay as the device says."""
    @functools.wraps(process)
    def processed(self, batch, result, *arguments, **named):
        tokens = getattr(result, "next_token_ids", None)  # none, of models that generate nothing
        if getattr(tokens, "ndim", 0) == 1 and len(tokens) == len(batch.reqs):
            if result.copy_done is not None:
                result.copy_done.synchronize()
            result.next_token_ids = tokens.new_tensor([goes_on(request) for request in batch.reqs], device="cpu")
        return process(self, batch, result, *arguments, **named)
    return processed


def follow_sglang(module):
    processor = getattr(module, "SchedulerBatchResultProcessor", None)
    for name in ("process_batch_result_prefill", "process_batch_result_decode"):
        process = getattr(processor, name, None)
        if process is not None:  # else a version with another processor
            setattr(processor, name, told_tokens(process))
