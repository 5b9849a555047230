// check_layer: one layer from attributes and tensors.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lenslet/check.h"
#include "lenslet/error.h"
#include "tests/usable_device.h"

using namespace lenslet;

namespace {

using Ints = std::vector<std::int64_t>;
using Reals = std::vector<double>;

Tensor f32(const Shape& shape, std::uint64_t seed = 1) { return random_tensor(DType::f32, shape, seed); }

LayerOptions untimed() { return {.device = "cpu", .seconds = 0, .threads = 1}; }

std::vector<LayerCheck> conv(const LayerOptions& options,
                             const AttributeList& attributes = {{"pads", Ints{1, 1, 1, 1}}},
                             std::vector<Tensor> inputs = {f32({1, 8, 12, 10}), f32({16, 8, 3, 3}, 2)}) {
  return check_layer("Conv", attributes, inputs, options);
}

/// The kind and the first line of the error that `call` throws.
struct Refused {
  ErrorKind kind = ErrorKind::internal;
  std::string what = "nothing";
  explicit Refused(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      kind = error.kind();
      what = error.what();
    }
  }
};

}  // namespace

TEST_CASE("check_layer/each_kernel_of_a_convolution") {
  LayerOptions options = untimed();
  options.seconds = 1e-3;
  const std::vector<LayerCheck> rows = conv(options);
  std::vector<std::string> names;
  std::size_t judged = 0;
  for (const LayerCheck& row : rows) {
    CAPTURE(row.str());
    names.push_back(row.algorithm);
    CHECK(row.passed());
    CHECK(row.op == "Conv");
    CHECK(row.device == "cpu");
    CHECK(row.precision == "fp32");
    CHECK(row.output_shapes == std::vector<Shape>{{1, 16, 12, 10}});
    if (row.kind == LayerCheck::Kind::refusal) {
      CHECK(!row.refusal.empty());
      CHECK(row.str().ends_with("refuses: " + row.refusal));
      CHECK_FALSE(row.judged());
      continue;
    }
    ++judged;
    CHECK(row.judged());
    CHECK(row.error > 0);
    CHECK(row.tolerance > 0);
    CHECK(row.ms > 0);
    CHECK(row.runs >= 3);
    CHECK(row.input_shapes.at(0) == Shape{1, 8, 12, 10});
    CHECK(row.input_shapes.at(1) == Shape{16, 8, 3, 3});
  }
  CHECK(judged >= 4);
  std::vector<std::string> all = conv_algorithm_names("cpu");
  std::erase_if(all, [&](const std::string& name) { return std::ranges::count(names, name) == 0; });
  CHECK(all == names);  // each once, in the rule's order
  CHECK(std::ranges::count(names, "depthwise") == 1);
}

TEST_CASE("check_layer/one_kernel_by_name") {
  LayerOptions options = untimed();
  options.algorithm = "im2col";
  const std::vector<LayerCheck> rows = conv(options);
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].algorithm == "im2col");
  CHECK(rows[0].passed());
  CHECK(rows[0].runs == 0);
  options.algorithm = "depthwise";
  const Refused refused([&] { conv(options); });
  CHECK(refused.kind == ErrorKind::unsupported);
  CHECK(refused.what == "check_layer: Conv: depthwise refuses: groups differ from the input channels");
  options.algorithm = "im3col";
  const Refused unknown([&] { conv(options); });
  CHECK(unknown.kind == ErrorKind::invalid_argument);
  CHECK(unknown.what.starts_with("check_layer: Conv: no algorithm is called 'im3col'; there are: "));
  CHECK(unknown.what.find("im2col") != std::string::npos);
  const Refused single([&] { check_layer("Relu", {}, {f32({2, 3})}, options); });
  CHECK(single.what == "check_layer: Relu: no algorithm is called 'im3col'; there is nothing to choose between");
}

TEST_CASE("check_layer/what_makes_no_sense_is_one_clear_line") {
  const auto says = [](const std::function<void()>& call, ErrorKind kind, const std::string& part) {
    const Refused refused(call);
    CAPTURE(refused.what);
    CAPTURE(part);
    CHECK(refused.kind == kind);
    CHECK(refused.what.find(part) != std::string::npos);
    CHECK(std::ranges::count(refused.what, '\n') == 0);
  };
  const Tensor x = f32({1, 8, 12, 10}), w = f32({16, 8, 3, 3});
  says(
      [&] {
        conv(untimed(), {{"padz", Ints{1, 1, 1, 1}}});
      },
      ErrorKind::unsupported, "(Conv, ai.onnx opset 28): attribute 'padz' is not supported");
  says([&] { conv(untimed(), {{"pads", 1.5}}); }, ErrorKind::invalid_model, "attribute 'pads' must be a list");
  says([&] { conv(untimed(), {}, {x}); }, ErrorKind::invalid_model, "has 1 inputs; the operator takes 2 to 3");
  says([&] { conv(untimed(), {}, {x, w, w, w}); }, ErrorKind::invalid_model, "has 4 inputs; the operator takes 2 to 3");
  says([&] { conv(untimed(), {}, {x, f32({16, 9, 3, 3})}); }, ErrorKind::invalid_model, "(Conv)");
  says([&] { check_layer("Convolve", {}, {x}, untimed()); }, ErrorKind::unsupported, "Convolve");
  says([&] { conv({.device = "gpu"}); }, ErrorKind::invalid_argument, "'gpu'");
  says([&] { conv({.device = "cpu", .precision = "fp17"}); }, ErrorKind::invalid_argument, "fp17");
  says([&] { conv({.device = "cpu", .precision = "fp16"}); }, ErrorKind::unsupported, "precision fp16 is CUDA's");
}

TEST_CASE("check_layer/other_operators") {
  struct Case {
    std::string op;
    AttributeList attributes;
    std::vector<Tensor> inputs;
    LayerOptions options = untimed();
  };
  const auto with = [](const std::function<void(LayerOptions&)>& change) {
    LayerOptions options = untimed();
    change(options);
    return options;
  };
  const auto two_run = with([](LayerOptions& options) { options.run_inputs = 2; });
  const auto packed = [](DType dtype, std::int64_t rows) { return random_tensor(dtype, {rows, 5}); };
  const Tensor image = f32({2, 4, 9, 7}), rows = f32({6, 40});
  Tensor sizes(DType::i64, {4});
  std::ranges::copy(Ints{2, 4, 13, 11}, sizes.values<std::int64_t>().begin());
  const std::vector<Case> cases = {
      {"Add", {}, {image, f32({4, 1, 1}, 2)}},
      {"Add", {}, {image, f32({2, 4, 9, 7}, 2)}, two_run},
      {"Gemm", {{"transB", std::int64_t{1}}}, {rows, f32({50, 40}, 2), f32({50}, 3)}},
      {"MatMul", {}, {rows, f32({40, 24}, 2)}},
      {"MatMul", {}, {rows, f32({40, 24}, 2)}, two_run},
      {"MaxPool", {{"kernel_shape", Ints{3, 3}}}, {image}},
      {"Softmax", {{"axis", std::int64_t{1}}}, {image}},
      {"Resize", {{"mode", std::string("linear")}}, {image, Tensor(), Tensor(), sizes}},
      {"ConvTranspose", {{"strides", Ints{2, 2}}}, {image, f32({4, 6, 3, 3}, 2)}},
      {"TopK", {}, {rows, Tensor::of<std::int64_t>({1}, {5})}, with([](LayerOptions& options) {
         options.outputs = 2;
       })},
      {"Cast", {{"to", std::int64_t{10}}}, {rows}},
      {"Concat", {{"axis", std::int64_t{1}}}, {image, f32({2, 3, 9, 7}, 2)}},
      {"GroupNormalization", {{"num_groups", std::int64_t{2}}}, {image, f32({4}, 2), f32({4}, 3)}},
      {"ReduceMean", {}, {image, Tensor::of<std::int64_t>({1}, {1})}},
      {"ReduceMean", {{"axes", Ints{1}}}, {image}, with([](LayerOptions& options) { options.opset = 13; })},
      {"GRU", {{"hidden_size", std::int64_t{5}}}, {f32({7, 2, 6}), f32({1, 15, 6}, 2), f32({1, 15, 5}, 3)}},
      {"RNN",
       {{"hidden_size", std::int64_t{5}}, {"activations", std::vector<std::string>{"Relu"}}},
       {f32({7, 2, 6}), f32({1, 5, 6}, 2), f32({1, 5, 5}, 3)}},
      {"ConstantOfShape", {{"value", f32({1})}}, {Tensor::of<std::int64_t>({2}, {3, 4})}},
      {"Concat", {{"axis", std::int64_t{0}}}, {packed(DType::u2, 3), packed(DType::u2, 2)}},
      {"Concat", {{"axis", std::int64_t{0}}}, {packed(DType::i4, 3), packed(DType::i4, 2)}},
      {"SparseVoxelize",
       {{"voxel_size", Reals{0.5, 0.5, 0.5}}, {"range_min", Reals{-1, -1, -1}}, {"range_max", Reals{1, 1, 1}}},
       {f32({90, 4})},
       with([](LayerOptions& options) {
         options.domain = "lenslet";
         options.outputs = 2;
       })},
      {"Gelu", {}, {image}},
      {"Relu", {}, {random_tensor(DType::f16, {3, 50})}},
      {"SparseToDense",
       {{"spatial_shape", Ints{2, 3, 4}}},
       {Tensor::of<std::int32_t>({2, 4}, {0, 0, 1, 2, 0, 1, 2, 3}), f32({2, 5})},
       with([](LayerOptions& options) {
         options.domain = "lenslet";
         options.run_inputs = 2;
       })},
  };
  for (const Case& layer : cases) {
    CAPTURE(layer.op);
    const std::vector<LayerCheck> checks = check_layer(layer.op, layer.attributes, layer.inputs, layer.options);
    std::size_t judged = 0;
    for (const LayerCheck& check : checks) {
      CAPTURE(check.str());
      CHECK(check.passed());
      judged += check.judged() ? 1 : 0;
      CHECK((check.judged() || check.kind == LayerCheck::Kind::refusal));
    }
    CHECK(judged > 0);
  }
}

TEST_CASE("check_layer/on_a_cuda_device") {
  if (!test::device_is_here("cuda")) return;
  for (const char* precision : {"fp32", "tf32", "fp16", "bf16"}) {
    LayerOptions options{.device = "cuda", .precision = precision, .seconds = 1e-3};
    const auto judged = [&](const std::vector<LayerCheck>& rows) {
      std::ptrdiff_t count = 0;
      for (const LayerCheck& row : rows) {
        CAPTURE(row.str());
        CHECK(row.passed());
        CHECK(row.device == "cuda:0");
        CHECK(row.precision == precision);
        if (row.judged()) CHECK(row.ms > 0);
        count += row.judged() ? 1 : 0;
      }
      return count;
    };
    CHECK(judged(conv(options)) >= 3);
    CHECK(judged(conv(options, {{"pads", Ints{1, 1, 1, 1}}}, {f32({2, 64, 28, 28}), f32({64, 64, 3, 3}, 2)})) >= 3);
    CHECK(judged(check_layer("Gemm", {}, {f32({32, 64}), f32({64, 128}, 2)}, options)) >= 1);
    CHECK(judged(check_layer("Softmax", {}, {f32({32, 64})}, options)) == 1);
  }
}
