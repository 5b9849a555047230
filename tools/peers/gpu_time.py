"""How the peers of the GPU are timed. Needs PyTorch with CUDA."""
import statistics

import torch


def time_run(run, replays=10, samples=20):
    """ms of a run on the device, by events around `replays` of them: the median of `samples`."""
    for _ in range(5):
        run()
    torch.cuda.synchronize()
    times = []
    for _ in range(samples):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(replays):
            run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / replays)
    return statistics.median(times)
