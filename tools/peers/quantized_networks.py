"""The networks of cpu_networks.py in int8, as ONNX Runtime's static quantiser writes them: random images calibrate."""

import tempfile
from pathlib import Path

import numpy
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

FORMS = {"_qdq": QuantFormat.QDQ, "_qoperator": QuantFormat.QOperator}


class RandomImages(CalibrationDataReader):
    def __init__(self, file, images=4):
        self.port = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"]).get_inputs()[0]
        self.left, self.random = images, numpy.random.default_rng(1)

    def get_next(self):
        self.left -= 1
        shape = [1, *self.port.shape[1:]]
        return None if self.left < 0 else {self.port.name: self.random.standard_normal(shape).astype(numpy.float32)}


def forms_of(file):
    """{form: file} of the quantised network, made beside `file` where missing."""
    forms = {form: file.with_name(f"{file.stem}{form}.onnx") for form in FORMS}
    for form, made in forms.items():
        if made.exists():
            continue
        with tempfile.TemporaryDirectory() as folder:
            folded, half = Path(folder) / "folded.onnx", made.with_suffix(".part")
            quant_pre_process(str(file), str(folded))
            quantize_static(str(folded), str(half), RandomImages(file), quant_format=FORMS[form], per_channel=True,
                            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)  # fmt: skip
            half.rename(made)
    return forms
