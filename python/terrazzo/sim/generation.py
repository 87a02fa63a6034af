# SPDX-License-Identifier: Apache-2.0
"""Ends generate() of transformers on a device that computes nothing. Whether all sequences are finished is a value on
the device, which here is never true or, in a beam search, always. The host knows when the length limit is reached:
generation goes on until then, as if no sequence ended before, or until a criterion of the program's holds of which the
host knows. A beam search asks the device besides how long its result is: as long as that limit. What runs on the host
ends as it does elsewhere.

inject/sitecustomize.py runs this file once the program has imported transformers.generation.utils.
"""
import functools
import os
import threading

# Whether values are followed: then those that nobody knows end nothing.
FOLLOWED = os.environ.get("TERRAZZO_SIM_SCALARS", "computed") == "computed"


class Length(threading.local):
    """What the length limit last said in this thread; None: nothing, or it has been acted on."""
    reached = None
    is_believed = False  # whether a loop runs of which what it finds on the device is right


def follow(utils):
    limit, mixin = getattr(utils, "MaxLengthCriteria", None), getattr(utils, "GenerationMixin", None)
    if not hasattr(mixin, "_has_unfinished_sequences") or limit is None:
        return  # a version with other loops
    length, is_over, goes_on = Length(), limit.__call__, mixin._has_unfinished_sequences

    @functools.wraps(is_over)
    def judged(self, input_ids, *arguments, **named):
        length.reached = input_ids.shape[1] >= self.max_length if input_ids.is_cuda else None
        return is_over(self, input_ids, *arguments, **named)

    @functools.wraps(goes_on)
    def goes_on_until(self, this_peer_finished, *arguments, **named):
        if length.reached is not None:
            this_peer_finished = length.reached or length.is_believed and bool(this_peer_finished)
            length.reached = None
        return goes_on(self, this_peer_finished, *arguments, **named)

    limit.__call__, mixin._has_unfinished_sequences = judged, goes_on_until
    if FOLLOWED and hasattr(mixin, "_sample"):
        mixin._sample = believed(mixin._sample, length)
    if hasattr(mixin, "_update_finished_beams"):
        mixin._update_finished_beams = full_length(mixin._update_finished_beams, length)


def believed(sample, length):
    """The loop without beams."""
    @functools.wraps(sample)
    def sampled(*arguments, **named):
        before, length.is_believed = length.is_believed, True
        try:
            return sample(*arguments, **named)
        finally:
            length.is_believed = before

    return sampled


def full_length(update, length):
    """The step of a beam search that notes which beams' tokens make up the finished sequences, -1 where there is none.
    At the limit they are of full length; of which beams makes no difference."""
    @functools.wraps(update)
    def updated(self, *arguments, **named):
        sequences, scores, beams, *rest = update(self, *arguments, **named)
        if length.reached:
            beams.zero_()
        return sequences, scores, beams, *rest

    return updated
