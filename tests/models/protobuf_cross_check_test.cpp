// Compares our wire reader with Google's parser on every shared model: the same structs from the same bytes. Built if
// protoc and libprotobuf exist; the library itself needs neither.

#include <doctest/doctest.h>

#include <filesystem>
#include <vector>

#include "base/small_types.h"
#include "models/input_file.h"
#include "models/onnx.pb.h"
#include "models/onnx_reader.h"
#include "models/onnx_tensor.h"
#include "ops/core/onnx_types.h"
#include "tests/shared_data.h"

using namespace lenslet;
namespace fs = std::filesystem;

namespace {

// Elements of a TensorProto by Google's parser, as bytes in memory order.
std::string elements(const onnx::TensorProto& tensor) {
  if (tensor.has_raw_data()) return tensor.raw_data();
  std::string bytes;
  const auto append = [&bytes](const auto& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const auto dtype = dtype_of_onnx(tensor.data_type());
  const std::size_t size = dtype ? dtype_bytes(*dtype) : 0;
  for (const float value : tensor.float_data()) append(value);
  for (const double value : tensor.double_data()) append(value);
  for (const std::int64_t value : tensor.int64_data()) append(value);
  for (const std::int32_t value : tensor.int32_data()) bytes.append(reinterpret_cast<const char*>(&value), size);
  return bytes;
}

void compare(const OnnxTensor& ours, const onnx::TensorProto& theirs) {
  CHECK(ours.name == theirs.name());
  CHECK(ours.type == theirs.data_type());
  CHECK(ours.dims == std::vector<std::int64_t>(theirs.dims().begin(), theirs.dims().end()));
  CHECK(ours.external == (theirs.data_location() == onnx::TensorProto::EXTERNAL));
  if (ours.external || !dtype_of_onnx(ours.type)) return;
  // For elements that share bytes Google's parser returns the bytes; onnx_tensor_test.cpp unpacks them.
  if (dtype_bits(*dtype_of_onnx(ours.type)) < 8) return;
  const Tensor tensor = to_tensor(ours, {});
  const std::string expected = elements(theirs);
  CHECK((std::string_view(static_cast<const char*>(tensor.data()), tensor.bytes()) == expected));
}

void compare(const OnnxAttribute& ours, const onnx::AttributeProto& theirs) {
  CHECK(ours.name == theirs.name());
  CHECK(static_cast<int>(ours.type) == static_cast<int>(theirs.type()));
  CHECK(ours.real == theirs.f());
  CHECK(ours.integer == theirs.i());
  CHECK(ours.text == theirs.s());
  CHECK(ours.integers == std::vector<std::int64_t>(theirs.ints().begin(), theirs.ints().end()));
  CHECK(ours.reals == std::vector<double>(theirs.floats().begin(), theirs.floats().end()));
  CHECK(ours.texts.size() == static_cast<std::size_t>(theirs.strings_size()));
  REQUIRE(ours.tensor.has_value() == theirs.has_t());
  if (ours.tensor) compare(*ours.tensor, theirs.t());
}

void compare(const std::vector<OnnxValueInfo>& ours,
             const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& theirs) {
  REQUIRE(ours.size() == static_cast<std::size_t>(theirs.size()));
  for (int i = 0; i < theirs.size(); ++i) {
    const OnnxValueInfo& info = ours[static_cast<std::size_t>(i)];
    const auto& tensor = theirs[i].type().tensor_type();
    CHECK(info.name == theirs[i].name());
    CHECK((info.kind == OnnxValueInfo::Kind::tensor) == theirs[i].type().has_tensor_type());
    CHECK(static_cast<int>(info.type) == tensor.elem_type());
    CHECK(info.has_shape == tensor.has_shape());
    REQUIRE(info.dims.size() == static_cast<std::size_t>(tensor.shape().dim_size()));
    for (int d = 0; d < tensor.shape().dim_size(); ++d) {
      const auto& dim = tensor.shape().dim(d);
      CHECK(info.dims[static_cast<std::size_t>(d)].value.has_value() == dim.has_dim_value());
      CHECK(info.dims[static_cast<std::size_t>(d)].value.value_or(0) == dim.dim_value());
      CHECK(info.dims[static_cast<std::size_t>(d)].name == dim.dim_param());
    }
  }
}

void compare(const OnnxNode& ours, const onnx::NodeProto& theirs) {
  CHECK(ours.name == theirs.name());
  CHECK(ours.op_type == theirs.op_type());
  CHECK(ours.domain == theirs.domain());
  CHECK(std::equal(ours.inputs.begin(), ours.inputs.end(), theirs.input().begin(), theirs.input().end()));
  CHECK(std::equal(ours.outputs.begin(), ours.outputs.end(), theirs.output().begin(), theirs.output().end()));
  REQUIRE(ours.attributes.size() == static_cast<std::size_t>(theirs.attribute_size()));
  for (int i = 0; i < theirs.attribute_size(); ++i)
    compare(ours.attributes[static_cast<std::size_t>(i)], theirs.attribute(i));
}

void compare(const OnnxModel& ours, const onnx::ModelProto& theirs) {
  CHECK(ours.ir_version == theirs.ir_version());
  REQUIRE(ours.opset_imports.size() == static_cast<std::size_t>(theirs.opset_import_size()));
  for (int i = 0; i < theirs.opset_import_size(); ++i) {
    CHECK(ours.opset_imports[static_cast<std::size_t>(i)].first == theirs.opset_import(i).domain());
    CHECK(ours.opset_imports[static_cast<std::size_t>(i)].second == theirs.opset_import(i).version());
  }
  REQUIRE(ours.graph.has_value() == theirs.has_graph());
  if (!ours.graph) return;
  REQUIRE(ours.graph->nodes.size() == static_cast<std::size_t>(theirs.graph().node_size()));
  for (int i = 0; i < theirs.graph().node_size(); ++i)
    compare(ours.graph->nodes[static_cast<std::size_t>(i)], theirs.graph().node(i));
  REQUIRE(ours.graph->initializers.size() == static_cast<std::size_t>(theirs.graph().initializer_size()));
  for (int i = 0; i < theirs.graph().initializer_size(); ++i)
    compare(ours.graph->initializers[static_cast<std::size_t>(i)], theirs.graph().initializer(i));
  compare(ours.graph->inputs, theirs.graph().input());
  compare(ours.graph->outputs, theirs.graph().output());
}

}  // namespace

TEST_CASE("protobuf/our_reader_agrees_with_google_s") {
  LENSLET_REQUIRE_SHARED(root, "models");
  int count = 0;
  for (const char* folder : {"models", "onnx-light", "generated-ops", "onnxjs-ops"})
    for (const auto& entry : fs::recursive_directory_iterator(root.parent_path() / folder)) {
      if (entry.path().extension() != ".onnx" && entry.path().extension() != ".pb") continue;
      CAPTURE(entry.path().string());
      const Tensor whole = read_file(entry.path(), std::uint64_t{1} << 31);
      const std::span<const std::byte> file{static_cast<const std::byte*>(whole.data()), whole.bytes()};
      const int bytes = static_cast<int>(file.size());
      if (entry.path().extension() == ".pb") {
        onnx::TensorProto theirs;
        REQUIRE(theirs.ParseFromArray(file.data(), bytes));
        compare(read_onnx_tensor(file), theirs);
      } else {
        onnx::ModelProto theirs;
        REQUIRE(theirs.ParseFromArray(file.data(), bytes));
        compare(read_onnx_model(file), theirs);
      }
      ++count;
    }
  CHECK(count > 500);
}
