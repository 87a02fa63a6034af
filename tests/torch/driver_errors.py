# SPDX-License-Identifier: Apache-2.0
"""What a driver refuses is an error of PyTorch's, after which the program goes on; streams of other libraries, events
in graphs and the allocator's look at a capture under way work as with a driver. Needs two devices, and native's option
graph_capture_record_stream_reuse, which PyTorch has from 2.9 on."""
import torch

REUSES = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 9)


def refused(call, *words):
    try:
        call()
    except RuntimeError as error:
        text = str(error)
        assert any(word in text for word in words), text
        return
    raise AssertionError(f"not refused: {words}")


x = torch.zeros(1 << 20, device="cuda")
stream, other = torch.cuda.Stream(), torch.cuda.Stream()

# The stream of another library is the stream.
again = torch.cuda.ExternalStream(stream.cuda_stream)
assert again.cuda_stream == stream.cuda_stream != 0 and again == torch.cuda.ExternalStream(stream.cuda_stream)
with torch.cuda.stream(again):
    assert torch.cuda.current_stream().cuda_stream == stream.cuda_stream
    y = x * 2

# The host waits during a capture.
for wait in (torch.cuda.synchronize, stream.synchronize, stream.query, lambda: x.sum().item()):
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()
        x + 1
        refused(wait, "capturing", "capture")
        refused(graph.capture_end, "capture")
    del graph
torch.cuda.synchronize()

# Events that each replay records, and waits for.
ready = torch.cuda.Event(external=True)
first, last = (torch.cuda.Event(enable_timing=True, external=True) for _ in range(2))
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, stream=stream):
    ready.wait()
    first.record()
    y = x * 2
    last.record()
for _ in range(3):
    ready.record(other)
    graph.replay()
    last.synchronize()
    assert first.elapsed_time(last) > 0

# Memory that a side stream was given in a capture is used again behind the join, not before.
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, stream=stream):
    work = torch.zeros(1 << 20, device="cuda")
    other.wait_stream(stream)
    with torch.cuda.stream(other):
        work.mul_(2)
    work.record_stream(other)
    address = work.data_ptr()
    del work
    early = torch.empty(1 << 20, device="cuda").zero_()
    assert early.data_ptr() != address, "the side stream still uses it"
    stream.wait_stream(other)
    late = [torch.empty(1 << 20, device="cuda").zero_() for _ in range(8)]
    assert not REUSES or address in [tensor.data_ptr() for tensor in late]
graph.replay()
torch.cuda.synchronize()

# Times of two devices.
events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
for device, event in enumerate(events):
    with torch.cuda.device(device):
        event.record()
torch.cuda.synchronize(0)
torch.cuda.synchronize(1)
refused(lambda: events[0].elapsed_time(events[1]), "invalid resource handle", "different device", "same device")
