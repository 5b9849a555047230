"""Triton's client library, over HTTP and gRPC, with `lenslet serve`."""

import concurrent.futures
import pathlib
import tempfile
import unittest

from harness import Server, is_there, ppm, skip_without, write_models

if is_there("tritonclient") and is_there("numpy"):
    import numpy as np

NUMPY = {
    "FP32": "float32", "UINT8": "uint8", "INT8": "int8", "UINT16": "uint16", "INT16": "int16", "INT32": "int32",
    "INT64": "int64", "BOOL": "bool", "FP16": "float16", "FP64": "float64", "UINT32": "uint32", "UINT64": "uint64",
}  # fmt: skip


class Clients:
    """The cases for both protocols: `mod` is tritonclient.http or .grpc."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="lenslet-serve-")
        folder = pathlib.Path(cls.folder.name)
        write_models(folder)
        names = ("rgb", "lookup", "sums", "half", "types", "segment")
        try:
            cls.server = Server(*(folder / f"{name}.onnx" for name in names), f"flat={folder / 'segment.onnx'}",
                                "--shape", "flat:image=1x3x2x2")  # fmt: skip
        except BaseException:
            cls.folder.cleanup()
            raise

    @classmethod
    def tearDownClass(cls):
        try:
            code = cls.server.stop()
            assert code == 0 and len(cls.server.errors) == 1, (code, cls.server.errors)
        finally:
            cls.folder.cleanup()

    def input(self, name, array, datatype=None, **how):
        made = self.mod.InferInput(name, list(array.shape), datatype or triton_dtype(array))
        made.set_data_from_numpy(array, **how)
        return made

    def scores(self, name, *inputs, output, **how):
        return self.client.infer(name, list(inputs), **how).as_numpy(output)

    def test_health(self):
        self.assertTrue(self.client.is_server_live())
        self.assertTrue(self.client.is_server_ready())
        self.assertTrue(self.client.is_model_ready("rgb"))
        self.assertTrue(self.client.is_model_ready("rgb", "1"))
        self.fails("no model is named 'rgbb'", lambda: self.client.get_model_metadata("rgbb"))
        self.fails("has no version '2'", lambda: self.client.get_model_metadata("rgb", "2"))

    def test_metadata(self):
        server = self.plain(self.client.get_server_metadata())
        self.assertEqual(server["name"], "lenslet")
        self.assertIn("binary_tensor_data", server["extensions"])
        rgb = self.plain(self.client.get_model_metadata("rgb"))
        self.assertEqual((rgb["name"], rgb["versions"], rgb["platform"]), ("rgb", ["1"], "lenslet_onnx"))
        self.assertEqual(self.port_of(rgb["inputs"][0]), ("image", "FP32", [-1, 3, 224, 224]))
        self.assertEqual(self.port_of(rgb["outputs"][0]), ("scores", "FP32", [-1, 3]))
        segment = self.plain(self.client.get_model_metadata("segment"))
        self.assertEqual(self.port_of(segment["inputs"][0])[2], [-1, 3, -1, -1])
        types = self.plain(self.client.get_model_metadata("types"))
        self.assertEqual([port["datatype"] for port in types["inputs"]], list(NUMPY))
        index = self.plain(self.client.get_model_repository_index())
        listed = index["models"] if isinstance(index, dict) else index
        self.assertEqual({model["name"] for model in listed},
                         {"rgb", "lookup", "sums", "half", "types", "segment", "flat"})  # fmt: skip
        self.assertEqual({model["state"] for model in listed}, {"READY"})

    def test_every_datatype_comes_back(self):
        values = {name: np.array([[0, 1], [1, 0], [1, 1]]).astype(kind) for name, kind in NUMPY.items()}
        for name in ("INT8", "INT64", "UINT64", "FP16"):
            kind = np.dtype(NUMPY[name])
            limits = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
            values[name][0] = (limits.min, limits.max)
        answer = self.client.infer("types", [self.input(f"in_{name}", array) for name, array in values.items()])
        for name, array in values.items():
            with self.subTest(name):
                found = answer.as_numpy(f"out_{name}")
                self.assertEqual(found.dtype, array.dtype)
                np.testing.assert_array_equal(found, array)

    def test_two_inputs_and_outputs_by_name(self):
        a, b = np.array([[1, 2]], "float32"), np.array([[5, 3]], "float32")
        wanted = [self.mod.InferRequestedOutput("difference")]
        answer = self.client.infer("sums", [self.input("b", b), self.input("a", a)], outputs=wanted, request_id="r 1")
        np.testing.assert_array_equal(answer.as_numpy("difference"), a - b)
        self.assertIsNone(answer.as_numpy("sum"))
        self.assertEqual(self.plain(answer.get_response())["id"], "r 1")

    def test_half_floats(self):
        x = np.array([[-1, 0.5, 65504, -0.0]], "float16")
        np.testing.assert_array_equal(self.scores("half", self.input("x", x), output="y"), np.maximum(x, 0))

    def test_more_rows_than_a_batch_has(self):
        x = np.arange(29, dtype="int64") % 4  # 8 + 8 + 8 + 4 + 1
        found = self.scores("lookup", self.input("x", x), output="y")
        np.testing.assert_array_equal(found, 10.0 * (x + 1))

    def test_any_shape_and_a_fixed_one(self):
        for shape in ((1, 3, 2, 2), (2, 3, 5, 4), (1, 3, 1, 9)):
            x = np.random.default_rng(1).random(shape, "float32")
            np.testing.assert_allclose(self.scores("segment", self.input("image", x), output="scores"), 10 * x, 1e-6)
        x = np.ones((3, 3, 2, 2), "float32")
        np.testing.assert_allclose(self.scores("flat", self.input("image", x), output="scores"), 10 * x, 1e-6)
        wrong = self.input("image", np.ones((1, 3, 2, 3), "float32"))
        self.fails("is not the model's", lambda: self.client.infer("flat", [wrong]))

    def test_pictures_go_through_the_card(self):
        pictures = [ppm(250, 20, 30), ppm(10, 20, 240, 30, 20)]
        raw = self.input("image", np.array(pictures, object), "BYTES")
        found = self.scores("rgb", raw, output="scores")
        self.assertEqual(found.argmax(1).tolist(), [0, 2])
        np.testing.assert_allclose(found[0], np.array([250, 20, 30]) / 25.5, rtol=1e-5)
        shaped = self.input("image", np.array(pictures, object)[:, None], "BYTES")
        np.testing.assert_array_equal(self.scores("rgb", shaped, output="scores"), found)

    def test_classes_have_labels_and_probabilities(self):
        raw = self.input("image", np.array([ppm(250, 20, 30), ppm(10, 20, 240)], object), "BYTES")
        wanted = [self.mod.InferRequestedOutput("scores", class_count=2)]
        found = self.scores("rgb", raw, output="scores", outputs=wanted)
        self.assertEqual(found.shape, (2, 2))
        first = [row[0].decode().split(":") for row in found]
        self.assertEqual([each[1:] for each in first], [["0", "red"], ["2", "blue"]])
        self.assertGreater(float(first[0][0]), 0.99)
        numbers = self.input("x", np.array([0, 3], "int64"))
        wanted = [self.mod.InferRequestedOutput("y", class_count=9)]
        found = self.scores("lookup", numbers, output="y", outputs=wanted)  # no card: values
        self.assertEqual(found.ravel().tolist(), [b"40.000000:1", b"10.000000:0"])

    def test_broken_pictures_and_those_for_other_models(self):
        broken = self.input("image", np.array([ppm(1, 2, 3), b"GIF89a"], object), "BYTES")
        self.fails("picture 2 of 2", lambda: self.client.infer("rgb", [broken]))
        self.fails(
            "takes no BYTES", lambda: self.client.infer("lookup", [self.input("x", np.array([b"1"], object), "BYTES")])
        )

    def test_wrong_requests(self):
        x = np.array([[1, 2]], "float32")
        cases = (
            ("has no input 'c'", "sums", [self.input("a", x), self.input("c", x)]),
            ("wants input 'b'", "sums", [self.input("a", x)]),
            ("given twice", "sums", [self.input("a", x), self.input("a", x)]),
            ("is FP32, not 'INT64'", "sums", [self.input("a", x), self.input("b", x.astype("int64"))]),
            ("inputs of [1, 2] rows", "sums", [self.input("a", x), self.input("b", np.ones((2, 2), "float32"))]),
            ("is not the model's [-1, 2]", "sums", [self.input("a", x), self.input("b", np.ones((1, 3), "float32"))]),
            ("1 to 64 rows", "lookup", [self.input("x", np.zeros(65, "int64"))]),
            ("1 to 64 rows", "lookup", [self.input("x", np.zeros(0, "int64"))]),
        )
        for message, name, inputs in cases:
            with self.subTest(message):
                self.fails(message, lambda name=name, inputs=inputs: self.client.infer(name, inputs))
        unknown = [self.mod.InferRequestedOutput("z")]
        inputs = [self.input("x", np.zeros(1, "int64"))]
        self.fails("has no output 'z'", lambda: self.client.infer("lookup", inputs, outputs=unknown))

    def fails(self, words, call):
        from tritonclient.utils import InferenceServerException

        with self.assertRaises(InferenceServerException) as raised:
            call()
        self.assertIn(words, raised.exception.message())
        self.assertNotIn("\n", raised.exception.message())


def triton_dtype(array):
    from tritonclient.utils import np_to_triton_dtype

    return np_to_triton_dtype(array.dtype)


@skip_without("tritonclient", "geventhttpclient")
class Http(Clients, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import tritonclient.http as mod

        cls.mod = mod
        super().setUpClass()

    def setUp(self):
        self.client = self.mod.InferenceServerClient(self.server.http)
        self.addCleanup(self.client.close)

    def plain(self, value):
        return value

    def port_of(self, port):
        return port["name"], port["datatype"], port["shape"]

    def test_json_tensors_are_the_same(self):
        x = np.array([[1.5, -2]], "float32")
        inputs = [self.input("a", x, binary_data=False), self.input("b", x, binary_data=False)]
        wanted = [self.mod.InferRequestedOutput("sum", binary_data=False)]
        answer = self.client.infer("sums", inputs, outputs=wanted)
        self.assertEqual(answer.get_response()["outputs"][0]["data"], [3.0, -4.0])
        np.testing.assert_array_equal(answer.as_numpy("sum"), 2 * x)

    def test_a_compressed_body_is_refused(self):
        inputs = [self.input("x", np.zeros(1, "int64"))]
        self.fails("compressed", lambda: self.client.infer("lookup", inputs, request_compression_algorithm="gzip"))


@skip_without("tritonclient")
class Grpc(Clients, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import tritonclient.grpc as mod

        cls.mod = mod
        super().setUpClass()

    def setUp(self):
        self.client = self.mod.InferenceServerClient(self.server.grpc)
        self.addCleanup(self.client.close)

    def plain(self, value):
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(value, preserving_proto_field_name=True)

    def port_of(self, port):
        return port["name"], port["datatype"], [int(dim) for dim in port["shape"]]

    def test_typed_contents_are_the_same(self):
        from tritonclient.grpc import service_pb2

        request = service_pb2.ModelInferRequest(model_name="types")
        contents = {
            "BOOL": "bool", "INT8": "int", "INT16": "int", "INT32": "int", "INT64": "int64", "UINT8": "uint",
            "UINT16": "uint", "UINT32": "uint", "UINT64": "uint64", "FP32": "fp32", "FP64": "fp64",
        }  # fmt: skip
        for name in NUMPY:
            entry = request.inputs.add(name=f"in_{name}", datatype=name, shape=[1, 2])
            if name != "FP16":
                getattr(entry.contents, f"{contents[name]}_contents").extend([1, 0])
        stub = self.client._client_stub
        with self.assertRaisesRegex(Exception, "'FP16' comes in raw_input_contents"):
            stub.ModelInfer(request)
        del request.inputs[list(NUMPY).index("FP16")]
        with self.assertRaisesRegex(Exception, "wants input 'in_FP16'"):
            stub.ModelInfer(request)
        entry = request.inputs.add(name="in_FP16", datatype="FP16", shape=[1, 2])
        request.raw_input_contents.append(b"\0\0\0\0")
        with self.assertRaisesRegex(Exception, "1 raw_input_contents for 12 inputs"):
            stub.ModelInfer(request)
        narrow = service_pb2.ModelInferRequest(model_name="types")
        narrow.inputs.add(name="in_INT8", datatype="INT8", shape=[1, 2]).contents.int_contents.extend([1, 128])
        with self.assertRaisesRegex(Exception, "goes beyond INT8"):
            stub.ModelInfer(narrow)
        sums = service_pb2.ModelInferRequest(model_name="sums", id="7")
        for name, values in (("a", [1, 2]), ("b", [3, 5])):
            sums.inputs.add(name=name, datatype="FP32", shape=[1, 2]).contents.fp32_contents.extend(values)
        answer = stub.ModelInfer(sums)
        self.assertEqual((answer.id, answer.model_name, answer.model_version), ("7", "sums", "1"))
        self.assertEqual(np.frombuffer(answer.raw_output_contents[0], "float32").tolist(), [4, 7])

    def test_many_calls_on_one_channel(self):
        """Concurrent calls on one connection, some of which fail: each gets its own answer."""
        results = []
        for number in range(200):
            x = self.input("x", np.array([99 if number % 5 == 0 else number % 4], "int64"))
            done = concurrent.futures.Future()
            self.client.async_infer("lookup", [x], lambda result, error, done=done: done.set_result((result, error)))
            results.append(done)
        for number, done in enumerate(results):
            result, error = done.result(30)
            if number % 5 == 0:
                self.assertEqual(error.status(), "StatusCode.INVALID_ARGUMENT")
                self.assertRegex(error.message(), "index.* is outside axis 0")  # CUDA does not report which
                continue
            self.assertIsNone(error)
            self.assertEqual(result.as_numpy("y").tolist(), [10.0 * (number % 4 + 1)])


if __name__ == "__main__":
    unittest.main()
