# SPDX-License-Identifier: Apache-2.0
"""Ends generate() of transformers on a device that computes nothing. Whether all sequences are finished is a value on
the device, which here is never true or, in a beam search, always. The host knows when the length limit is reached:
generation goes on until then, as if no sequence ended before.

inject/sitecustomize.py runs this file once the program has imported transformers.generation.utils.
"""
import functools
import threading


class Length(threading.local):
    """What the length limit last said in this thread; None: nothing, or it has been acted on."""
    reached = None


def follow(utils):
    limit, mixin = getattr(utils, "MaxLengthCriteria", None), getattr(utils, "GenerationMixin", None)
    if not hasattr(mixin, "_has_unfinished_sequences") or limit is None:
        return  # a version with other loops
    length, is_over, goes_on = Length(), limit.__call__, mixin._has_unfinished_sequences

    @functools.wraps(is_over)
    def judged(self, input_ids, *arguments, **named):
        length.reached = input_ids.shape[1] >= self.max_length
        return is_over(self, input_ids, *arguments, **named)

    @functools.wraps(goes_on)
    def goes_on_until(self, this_peer_finished, *arguments, **named):
        if length.reached is not None:
            this_peer_finished, length.reached = length.reached, None
        return goes_on(self, this_peer_finished, *arguments, **named)

    limit.__call__, mixin._has_unfinished_sequences = judged, goes_on_until
