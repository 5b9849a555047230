"""XNNPACK, through ExecuTorch, and MNN for bench_peers.py. Converted files are kept beside the ONNX file."""

import subprocess
import sys
from pathlib import Path

import numpy

from timing import Refused


def int8_network(network, images):
    """By XNNPACK's quantiser: activations and weights of 8 bits, the weights per channel."""
    import torch
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(torch.export.export(network, (images,)).module(), quantizer)
    prepared(images)
    return convert_pt2e(prepared)


def program_of(model, batch):
    """The file of the network that cpu_networks.py exported as `model`, or of its int8 form "_qdq"."""
    import networks

    name, _, form = Path(model).stem.partition("_qdq")
    made = Path(model).with_suffix(f".{batch}.pte")
    if name not in (*networks.CLASSIC, *networks.OTHERS) or form:
        raise Refused("ExecuTorch reads no ONNX: it runs the float32 and QDQ networks of cpu_networks.py")
    if not made.exists():
        import cpu_networks
        import torch
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import to_edge_transform_and_lower

        network, images = cpu_networks.build(name), torch.randn(batch, 3, *networks.size_of(name))
        if Path(model).stem != name:
            network = int8_network(network, images)
        exported = torch.export.export(network, (images,))
        program = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch()
        half = made.with_suffix(".part")
        half.write_bytes(program.buffer)
        half.rename(made)
    return made


def executorch_runs(model, threads, feeds, folder):
    """One input."""
    import torch
    from executorch.extension.pybindings import portable_lib
    from executorch.runtime import Runtime

    (images,) = feeds.values()
    portable_lib._unsafe_reset_threadpool(threads)  # of the process; what is loaded keeps a pointer to it
    method = Runtime.get().load_program(program_of(model, len(images))).load_method("forward")
    images = torch.from_numpy(images)
    return lambda: method.execute([images])


def mnn_runs(model, threads, feeds, folder):
    """One input."""
    import MNN.nn

    made = Path(model).with_suffix(".mnn")
    if not made.exists():
        half = made.with_suffix(".part")
        # Not MNN's command mnnconvert, which sends telemetry; a process of its own, since some models crash it.
        convert = "import _tools, sys; _tools.mnnconvert(sys.argv)"
        subprocess.run([sys.executable, "-c", convert, "-f", "ONNX", "--modelFile", model, "--MNNModel", half], capture_output=True)
        if not half.exists():
            raise Refused("mnnconvert makes no file of it")
        half.rename(made)
    (name, values), = feeds.items()
    backend = {"precision": "high", "backend": "CPU", "numThread": threads}
    network = MNN.nn.load_module_from_file(str(made), [name], [], runtime_manager=MNN.nn.create_runtime_manager((backend,)))
    images = MNN.expr.const(values.ravel(), list(values.shape), MNN.expr.NCHW)
    images = MNN.expr.convert(images, MNN.expr.NC4HW4)

    def run():
        return [numpy.asarray(output.read()) for output in network.forward([images])]

    return run
