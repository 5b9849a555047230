// Candidates of kernels for many problems, as when their constants were fitted: the number of accepted problems, the
// sum of estimates (on the CPU their mean), workspace, tolerances, outputs that may be written in place, a checksum of
// configurations, and the CPU's refusals. A changed row needs new measurements (cuda_choice_test.cpp,
// odd_choice_test.cpp), or was unintended; the check prints the new text. Needs no device. The CPU is assumed to have
// AVX2 and 1 MiB of L2, since estimates depend on the vectors.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cuda_built.h"
#include "base/simd/targets.h"
#include "base/thread_pool.h"
#include "lenslet/host.h"
#include "ops/conv/conv.h"
#include "ops/core/choose.h"
#include "ops/sparse/rulebook.h"
#include "tests/ops/conv_cases.h"
#include "tests/ops/for_each_target.h"

namespace lenslet::test {
namespace {

/// For all problems that a kernel accepts.
struct Sum {
  int problems = 0, offers = 0;
  std::size_t workspace = 0, masks = 0, read = 0;
  double us = 0, log_us = 0, tolerance = 0, flops = 0;
  std::uint32_t configs = 0;
  std::map<std::string, int> refusals;
};
using Acc = std::map<std::string, Sum>;

void add(Acc& acc, const Problem& problem, const Target& target) {
  for (const Kernel* const kernel : kernels_of(problem.op().type(), target.device.kind)) {
    const Offer offer = kernel->offer(problem, target);
    Sum& sum = acc[fmt::format("{} {}", problem.op().type(), kernel->name())];
    if (!offer.refusal.empty()) {
      ++sum.refusals[offer.refusal];
      continue;
    }
    ++sum.problems;
    sum.flops += problem.op().flops(problem.inputs(), problem.outputs());
    for (const Candidate& candidate : offer.candidates) {
      ++sum.offers;
      sum.us += candidate.estimated_us;
      if (candidate.estimated_us > 0) sum.log_us += std::log(candidate.estimated_us);
      sum.read += candidate.reads % 256;
      sum.workspace += candidate.workspace_bytes;
      sum.tolerance += candidate.tolerance;
      sum.masks += candidate.in_place + 16 * candidate.pitched_inputs + (candidate.pitched_output ? 256 : 0);
      for (const char c : candidate.config) sum.configs = sum.configs * 31 + static_cast<unsigned char>(c);
    }
  }
}

/// A line for each kernel, and one for each reason for refusals.
std::string cpu_text(const Acc& acc) {
  std::string all;
  for (const auto& [name, sum] : acc) {
    all += fmt::format("{} {}", name, sum.problems);
    if (sum.offers > 0)
      all += fmt::format(", {:.7g} flops, {} ways: {:.7g} us, {} bytes, {:.5g}, {} {} {:x}", sum.flops, sum.offers,
                         std::exp(sum.log_us / sum.offers), sum.workspace, sum.tolerance, sum.masks, sum.read,
                         sum.configs);
    for (const auto& [why, count] : sum.refusals) all += fmt::format("\n  {} refused: {}", count, why);
    all += '\n';
  }
  return all;
}

/// A line for each kernel, except lines in `before`.
std::string text(const Acc& acc, const std::string& before) {
  std::string all;
  for (const auto& [name, sum] : acc) {
    if (sum.problems == 0) continue;
    const std::string line = fmt::format("{} {}: {:.7g} us, {} bytes, {:.5g}, {} {:x}\n", name, sum.problems, sum.us,
                                         sum.workspace, sum.tolerance, sum.masks, sum.configs);
    if (before.find(line) == std::string::npos) all += line;
  }
  return all;
}

using Ask = std::function<void(const Problem&)>;

/// Small numbers; true for bool.
Tensor filled(DType dtype, const Shape& shape, const Format& format = formats::nchw) {
  Tensor tensor(dtype, shape, format);
  std::memset(tensor.data(), dtype == DType::boolean ? 1 : 0x3C, tensor.bytes());
  return tensor;
}

std::unique_ptr<const Problem> posed(ConvProblem p, DType storage) {
  p.storage = p.x_storage = storage;
  return pose(p, filled(DType::f32, {p.k, p.group_c(), p.r, p.s}));
}

void for_each_convolution(DType storage, const Ask& ask) {
  for (const ConvProblem& p :
       convs({"1x3x224x224 -> 64, 7x7 s2 p3 g1 +bias +relu",    "8x3x224x224 -> 32, 3x3 s2 p1 g1 +bias +relu",
              "1x64x56x56 -> 64, 3x3 s1 p1 g1 +bias +relu",     "64x64x56x56 -> 256, 1x1 s1 p0 g1 +bias +relu",
              "1x512x7x7 -> 512, 3x3 s1 p1 g1 +bias +relu",     "2x2048x7x7 -> 512, 1x1 s1 p0 g1 +bias +relu",
              "1x144x28x28 -> 144, 3x3 s1 p1 g144 +bias +relu", "16x96x112x112 -> 96, 3x3 s2 p1 g96 +bias +relu",
              "1x192x14x14 -> 192, 5x5 s1 p2 g192 +bias +relu", "4x32x40x40 -> 48, 5x5 s1 p2 g1 +bias +relu",
              "1x24x31x29 -> 40, 7x7 s1 p3 g1 +bias +relu",     "1x256x28x28 -> 256, 3x3 s1 p2 g1 d2 +bias +relu",
              "8x128x28x28 -> 128, 3x3 s1 p1 g32 +bias +relu",  "1x48x35x35 -> 48, 3x3 s1 p1 g6 +bias +relu",
              "1x1x512x512 -> 1, 31x31 s1 p15 g1 +bias +relu",  "2x12x64x64 -> 20, 15x15 s1 p7 g1 +bias +relu",
              "1x16x20x20 -> 16, 1x1 s1 p0 g1 +bias +relu",     "1x256x64x64 -> 2, 1x1 s1 p0 g1 +bias +relu",
              "64x1280x8x8 -> 384, 1x1 s1 p0 g1 +bias +relu",   "1x33x17x19 -> 21, 3x3 s2 p1 g1 +bias +relu",
              "32x32x112x112 -> 16, 1x1 s1 p0 g1 +bias +relu",  "64x200x28x28 -> 256, 1x1 s1 p0 g1 +bias +relu",
              "32x72x56x56 -> 96, 3x3 s1 p1 g1 +bias +relu"}))
    ask(*posed(p, storage));
}

using Ints = std::vector<std::int64_t>;

struct Node {
  const char* op;
  std::vector<Shape> inputs;             ///< computed inputs, in the target's storage type
  std::vector<const Tensor*> constants;  ///< later inputs; null: omitted
  AttributeList attributes = {};
  std::vector<DType> types = {};  ///< of `inputs`, if different
  std::size_t outputs = 1;
};

void for_each_node(DType storage, std::span<const Node> nodes, const Ask& ask) {
  for (const Node& node : nodes) {
    const auto of_floats = [](const Tensor* constant) {
      return constant != nullptr && constant->dtype() == DType::f32;
    };
    if (storage != DType::f32 && std::ranges::any_of(node.constants, of_floats)) continue;  // types differ
    std::vector<InputInfo> inputs;
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      inputs.push_back({true, {i < node.types.size() ? node.types[i] : storage, node.inputs[i]}, nullptr});
    for (const Tensor* constant : node.constants)
      inputs.push_back(constant == nullptr ? InputInfo{}
                                           : InputInfo{true, {constant->dtype(), constant->shape()}, constant});
    INFO(std::string(node.op));
    ask(Problem(make_op(node.op, "", node.attributes, inputs.size(), node.outputs), inputs));
  }
}

const Shape image{4, 48, 28, 30};

void for_each_operator(DType storage, const Ask& ask) {
  const Tensor pads = Tensor::of<std::int64_t>(Shape{8}, {0, 0, 1, 2, 0, 0, 3, 4});
  const Tensor sizes = Tensor::of<std::int64_t>(Shape{4}, {4, 48, 56, 45}), k = Tensor::of<std::int64_t>(Shape{1}, {5});
  const Tensor matrix = filled(DType::f32, {512, 1000}), vector = filled(DType::f32, {48}),
               row = filled(DType::f32, {30}), filters = filled(DType::f32, {48, 24, 3, 3});
  const Node nodes[] = {
      {"MatMul", {{128, 512}}, {&matrix}},
      {"MatMul", {{1, 512}}, {&matrix}},
      {"MatMul", {{8, 65, 40}, {8, 40, 130}}, {}},
      {"Gemm", {{64, 512}}, {&matrix}},
      {"ConvTranspose", {image}, {&filters}, {{"strides", Ints{2, 2}}}},
      {"Softmax", {{64, 1000}}, {}, {{"axis", std::int64_t{1}}}},
      {"Softmax", {image}, {}, {{"axis", std::int64_t{1}}}},
      {"MaxPool", {image}, {}, {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}}},
      {"AveragePool", {image}, {}, {{"kernel_shape", Ints{2, 2}}}},
      {"GlobalAveragePool", {image}, {}},
      {"ReduceMean", {image}, {}, {{"axes", Ints{1}}}},
      {"Resize", {image}, {nullptr, nullptr, &sizes}, {{"mode", std::string("linear")}}},
      {"Transpose", {image}, {}, {{"perm", Ints{0, 2, 3, 1}}}},
      {"Concat", {image, image}, {}, {{"axis", std::int64_t{1}}}},
      {"Pad", {image}, {&pads}},
      {"Add", {image, image}, {}},
      {"Mul", {image}, {&row}},
      {"Sigmoid", {image}, {}},
      {"TopK", {{64, 1000}}, {&k}, {}, {}, 2},
      {"InstanceNormalization", {image}, {&vector, &vector}},
      {"DepthToSpace", {image}, {}, {{"blocksize", std::int64_t{2}}}},
  };
  for_each_node(storage, nodes, ask);
}

/// Operators whose plans differ more on the CPU than on a device, and products on both sides of tiling limits.
void for_each_operator_of_cpu(const Ask& ask) {
  const Tensor matrix = filled(DType::f32, {512, 1000}), thin = filled(DType::f32, {300, 3}),
               filters = filled(DType::f32, {48, 24, 3, 3}), grouped = filled(DType::f32, {48, 6, 4, 4}),
               volumes = filled(DType::f32, {9, 5, 3, 3, 2}), scale = Tensor::of<float>(Shape{}, {1}),
               bytes = filled(DType::i8, {20, 48, 3, 3}), depthwise = filled(DType::i8, {48, 1, 3, 3}),
               byte_matrix = filled(DType::i8, {512, 100}), byte = filled(DType::i8, {}),
               lstm_w = filled(DType::f32, {2, 160, 24}), lstm_r = filled(DType::f32, {2, 160, 40}),
               gru_w = filled(DType::f32, {1, 120, 24}), gru_r = filled(DType::f32, {1, 120, 40}),
               sizes = Tensor::of<std::int64_t>(Shape{4}, {4, 48, 56, 45}),
               k = Tensor::of<std::int64_t>(Shape{1}, {40}), most = Tensor::of<std::int64_t>(Shape{1}, {20000}),
               offsets = filled(DType::f32, {4, 18, 28, 30}), vector = filled(DType::f32, {48}),
               line = filled(DType::f32, {1000}), large = filled(DType::f32, {2048, 2048}),
               less = filled(DType::f32, {2047, 2048}), points = filled(DType::f32, {9, 5, 1, 1, 1}),
               more_channels = Tensor::of<std::int64_t>(Shape{4}, {4, 96, 28, 30});
  const auto text = [](const char* words) { return std::string(words); };
  const DType u8 = DType::u8;
  std::vector<Node> nodes = {
      {"MatMul", {{40, 300}}, {&thin}},
      {"MatMul", {{3, 40, 512}}, {&matrix}},
      {"MatMul", {{2000, 30}, {30, 600}}, {}},
      {"MatMul", {{40, 300}, {300, 8}}, {}},
      {"Gemm", {{512, 64}}, {&matrix, &line}, {{"transA", std::int64_t{1}}, {"beta", 0.5F}}},
      {"Gemm", {{4, 2048}}, {&large}, {{"transB", std::int64_t{1}}}},
      {"Gemm", {{5, 2048}}, {&large}, {{"transB", std::int64_t{1}}}},
      {"Gemm", {{4, 2048}}, {&less}, {{"transB", std::int64_t{1}}}},
      {"Gemm", {{40, 300}, {700, 300}, {40, 1}}, {}, {{"transB", std::int64_t{1}}}},
      {"Einsum", {{6, 20, 30}, {6, 30, 9}}, {}, {{"equation", text("bij,bjk->bik")}}},
      {"ConvTranspose", {image}, {&grouped}, {{"strides", Ints{2, 3}}, {"group", std::int64_t{4}}}},
      {"ConvTranspose", {image}, {&filters}},
      {"Conv", {{2, 5, 7, 8, 9}}, {&volumes}, {{"pads", Ints{1, 1, 1, 1, 1, 0}}, {"strides", Ints{2, 1, 1}}}},
      {"Conv", {{2, 5, 7, 8, 9}}, {&points}, {{"strides", Ints{1, 1, 1}}}},
      {"Conv", {{2, 5, 1, 8, 9}}, {&points}, {{"strides", Ints{2, 1, 1}}}},
      {"DeformConv", {{4, 24, 28, 30}}, {&filters, &offsets}, {{"pads", Ints{1, 1, 1, 1}}}},
      {"ConvInteger", {image}, {&bytes}, {{"strides", Ints{1, 2}}}, {u8}},
      {"ConvInteger", {image}, {&depthwise}, {{"group", std::int64_t{48}}}, {u8}},
      {"QLinearConv", {image}, {&scale, &byte, &bytes, &scale, &byte, &scale, &byte}, {}, {DType::i8}},
      {"MatMulInteger", {{30, 512}}, {&byte_matrix}, {}, {u8}},
      {"MatMulInteger", {{2, 30, 200}, {200, 70}}, {}, {}, {u8, DType::i8}},
      {"LSTM",
       {{9, 5, 24}},
       {&lstm_w, &lstm_r},
       {{"hidden_size", std::int64_t{40}}, {"direction", text("bidirectional")}},
       {},
       3},
      {"GRU", {{9, 5, 24}}, {&gru_w, &gru_r}, {{"hidden_size", std::int64_t{40}}}, {}, 2},
      {"Resize", {image}, {nullptr, nullptr, &sizes}, {{"mode", text("cubic")}}},
      {"Resize", {image}, {nullptr, nullptr, &more_channels}, {{"mode", text("linear")}}},
      {"Resize", {image}, {nullptr, nullptr, &sizes}, {{"mode", text("linear")}}, {u8}},
      {"LpNormalization", {{70, 1000}}, {}, {{"axis", std::int64_t{1}}}},
      {"LpNormalization", {{70, 1000}}, {}, {{"axis", std::int64_t{0}}}},
      {"MeanVarianceNormalization", {image}, {}},
      {"GridSample", {image, {4, 20, 9, 2}}, {}},
      {"MaxPool", {{2, 5, 7, 8, 9}}, {}, {{"kernel_shape", Ints{2, 3, 2}}}},
      {"AveragePool", {image}, {}, {{"kernel_shape", Ints{7, 5}}, {"pads", Ints{1, 1, 2, 2}}}},
      {"MaxPool", {{1, 3, 9, 6000}}, {}, {{"kernel_shape", Ints{3, 5}}, {"strides", Ints{1, 2}}}},
      {"LRN", {image}, {}, {{"size", std::int64_t{5}}}},
      {"LayerNormalization", {{70, 1000}}, {&line, &line}},
      {"BatchNormalization", {image}, {&vector, &vector, &vector, &vector}},
      {"Hardmax", {image}, {}, {{"axis", std::int64_t{1}}}},
      {"ArgMax", {image}, {}, {{"axis", std::int64_t{2}}}},
      {"ArgMax", {{700, 3}}, {}, {{"axis", std::int64_t{0}}}},
      {"ReduceSum", {{30, 5000}}, {}},
      {"ReduceMax", {{5000, 3}}, {}, {{"axes", Ints{0}}}},
      {"ReduceMean", {{192, 300}}, {}, {{"axes", Ints{0}}}},
      {"TopK", {{3, 40000}}, {&most}, {}, {}, 2},
      {"TopK", {{7, 1000, 6}}, {&k}, {{"axis", std::int64_t{1}}}, {}, 2},
  };
  for (const std::int64_t products : {23, 24}) nodes.push_back({"MatMul", {{products, 9, 40}, {products, 40, 7}}, {}});
  for_each_node(DType::f32, nodes, ask);
}

/// Features, constant and computed filters of 27 taps, and a rulebook of 10,000 pairs besides the centre's.
void for_each_sparse_convolution(const Ask& ask) {
  const Tensor filters = filled(DType::f32, {40, 20, 3, 3, 3});
  for (const Tensor* const known : {&filters, static_cast<const Tensor*>(nullptr)}) {
    const InputInfo inputs[] = {{true, {DType::f32, {3000, 20}}},
                                {true, {DType::i32, {rulebook_header(13) + 20000}}},
                                {true, {DType::f32, filters.shape()}, known}};
    const AttributeList attributes{{"kind", std::string("submanifold")}};
    ask(Problem(make_op("SparseConv", "lenslet", attributes, 3, 1, 1), inputs));
  }
}

/// Operators with nothing but loops to split. Sizes are powers of two, like the largest piece.
void for_each_operator_that_moves(const Ask& ask) {
  std::vector<std::int64_t> some(200);
  for (std::size_t i = 0; i < some.size(); ++i) some[i] = static_cast<std::int64_t>(i % 3);
  const Tensor indices = Tensor::of<std::int64_t>(Shape{200}, some), lines = indices.reshaped({200, 1}),
               depth = Tensor::of<std::int64_t>(Shape{}, {300}), axis = Tensor::of<std::int64_t>(Shape{}, {1}),
               ends = Tensor::of<std::int64_t>(Shape{2}, {290, 690}),
               begins = Tensor::of<std::int64_t>(Shape{2}, {1, 5}), one = Tensor::of<float>(Shape{}, {1}),
               updates = filled(DType::f32, {200, 1024}), lengths = indices.reshaped({200}),
               six = Tensor::of<std::int64_t>(Shape{6}, {0, 1, 2, 3, 0, 1}),
               folded = Tensor::of<std::int64_t>(Shape{2}, {22, 32}),
               block = Tensor::of<std::int64_t>(Shape{2}, {3, 3}),
               affine = Tensor::of<std::int64_t>(Shape{4}, {4, 3, 90, 80}),
               twice = Tensor::of<std::int64_t>(Shape{2}, {2, 3}), two = Tensor::of<float>(Shape{2}, {0, 1}),
               shape = Tensor::of<std::int64_t>(Shape{3}, {5, 320, 70});
  Tensor condition = filled(DType::boolean, {320}), wide(DType::i64, {200, 1024});
  for (std::size_t i = 0; i < 320; i += 2) condition.values<bool>()[i] = false;
  std::memset(wide.data(), 0, wide.bytes());
  const DType u8 = DType::u8;
  const Shape matrix{320, 1024};
  const std::vector<Node> nodes = {
      {"Softmax", {{4000, 10}}, {}, {{"axis", std::int64_t{1}}}},
      {"LogSoftmax", {{40, 90, 40}}, {}, {{"axis", std::int64_t{1}}}},
      {"Hardmax", {{400, 300}}, {}, {{"axis", std::int64_t{1}}}},
      // Single items larger than a piece.
      {"Softmax", {{5, 40000}}, {}, {{"axis", std::int64_t{1}}}},
      {"Hardmax", {{5, 40000}}, {}, {{"axis", std::int64_t{1}}}},
      {"Hardmax", {{2, 300, 320}}, {}, {{"axis", std::int64_t{1}}}},
      {"LpNormalization", {{5, 40000}}, {}, {{"axis", std::int64_t{1}}}},
      {"CumSum", {{5, 40000}}, {&axis}},
      {"ReduceL2", {{5, 40000}}, {}, {{"axes", Ints{1}}}},
      {"ArgMin", {{5, 40000}}, {}, {{"axis", std::int64_t{1}}}},
      {"Trilu", {{6, 40000}}, {}},
      {"Transpose", {{4, 3, 150, 90}}, {}, {{"perm", Ints{0, 2, 3, 1}}}},
      {"Transpose", {{70, 60, 50}}, {}, {{"perm", Ints{2, 1, 0}}}},
      {"Transpose", {{320, 256, 2}}, {}, {{"perm", Ints{1, 0, 2}}}},  // pairs, moved as one element
      {"Gather", {matrix}, {&indices}},
      {"Gather", {matrix}, {&indices}, {{"axis", std::int64_t{1}}}},
      {"GatherElements", {matrix}, {&wide}},
      {"GatherND", {matrix}, {&lines}},
      {"OneHot", {}, {&indices, &depth, &two}},
      {"Compress", {matrix}, {&condition}, {{"axis", std::int64_t{0}}}},
      {"Compress", {{1024, 320}}, {&condition}, {{"axis", std::int64_t{1}}}},
      {"Slice", {matrix}, {&begins, &ends}},
      {"Expand", {{320, 1}}, {&shape}},
      {"CumSum", {matrix}, {&axis}},
      {"Cast", {matrix}, {}, {{"to", std::int64_t{11}}}},
      {"Clip", {matrix}, {&one}},
      {"Greater", {matrix, matrix}, {}},
      {"Where", {{320, 1}, matrix, {1, 1024}}, {}, {}, {DType::boolean}},
      {"Sum", {matrix, matrix, {1024}}, {}},
      {"Exp", {matrix}, {}},
      {"PRelu", {matrix, {1024}}, {}},
      {"QuantizeLinear", {matrix}, {&one}},
      {"DequantizeLinear", {matrix}, {&one}, {}, {u8}},
      {"SpaceToDepth", {image}, {}, {{"blocksize", std::int64_t{2}}}},
      {"Split", {{4, 48, 28, 30}}, {}, {{"axis", std::int64_t{1}}}, {}, 2},
      {"ReduceL2", {{90, 3000}}, {}, {{"axes", Ints{1}}}},
      {"ReduceMax", {{90, 40, 60}}, {}, {{"axes", Ints{0, 2}}}},
      {"ArgMin", {{90, 3000}}, {}, {{"axis", std::int64_t{1}}}},
      {"GlobalMaxPool", {image}, {}},
      {"LpPool", {image}, {}, {{"kernel_shape", Ints{2, 3}}}},
      {"Trilu", {{9, 100, 64}}, {}},
      {"MatMul", {{4, 256}, {256, 1280}}, {}},
      {"BatchNormalization", {image, {48}, {48}, {48}, {48}}, {}},
      {"ScatterElements", {matrix}, {&wide, &updates}},
      {"ScatterND", {matrix}, {&lines, &updates}},
      {"ReverseSequence", {{3, 200, 300}}, {&lengths}},
      {"RoiAlign", {image, {6, 4}}, {&six}, {{"output_height", std::int64_t{9}}, {"output_width", std::int64_t{7}}}},
      {"Col2Im", {{2, 90, 600}}, {&folded, &block}},
      {"AffineGrid", {{4, 2, 3}}, {&affine}},
      {"Tile", {matrix}, {&twice}},
      {"MaxPool", {image}, {}, {{"kernel_shape", Ints{3, 3}}}, {}, 2},
      {"ReduceLogSumExp", {{90, 3000}}, {}, {{"axes", Ints{1}}}},
      {"ReduceProd", {{90, 40, 60}}, {}, {{"axes", Ints{1}}}},
      {"RNN", {{9, 5, 24}, {1, 40, 24}, {1, 40, 40}}, {}, {{"hidden_size", std::int64_t{40}}}, {}, 2},
      {"Mod", {matrix, matrix}, {}, {{"fmod", std::int64_t{1}}}},
      {"Not", {{700, 900}}, {}, {}, {DType::boolean}},
      {"IsNaN", {matrix}, {}},
  };
  for_each_node(DType::f32, nodes, ask);
  for (const ConvProblem& p :
       convs({"2x32x28x28 -> 48, 3x3 s1 p1 g1 +bias +relu", "4x96x28x28 -> 96, 5x5 s2 p2 g96 +bias +relu",
              "1x128x14x14 -> 64, 1x1 s1 p0 g1 +bias +relu", "1x8x60x60 -> 16, 3x3 s1 p2 g2 d2 +bias +relu",
              "1x3x90x90 -> 24, 5x5 s2 p2 g1 +bias +relu"}))
    ask(*posed(p, DType::f32));
}

/// A depthwise convolution with this window and stride, followed by a 1x1 one.
void ask_separable(DType storage, const Ask& ask, const Shape& x, std::int64_t window, std::int64_t stride,
                   std::int64_t k) {
  const std::int64_t c = x[1], size = (x[2] + 2 * (window / 2) - window) / stride + 1;
  const auto conv = [](const AttributeList& attributes) { return make_op("Conv", "", attributes, 3)->attributes(); };
  AttributeList all;
  for (const auto& [name, value] :
       conv({{"pads", Ints(4, window / 2)}, {"strides", Ints{stride, stride}}, {"group", c}}))
    all.emplace_back("depthwise_" + name, value);
  for (const auto& one : conv({{"group", std::int64_t{1}}})) all.push_back(one);
  const Tensor w(DType::f32, {c, 1, window, window}), b(DType::f32, {c}), v(DType::f32, {k, c, 1, 1}),
      a(DType::f32, {k});
  std::vector<InputInfo> inputs{{true, {storage, x}, nullptr}};
  for (const Tensor* constant : {&w, &b, &v, &a}) inputs.push_back({true, {DType::f32, constant->shape()}, constant});
  inputs.emplace_back();
  ask(Problem(make_normalised_op("SeparableConv", all, inputs.size()), inputs, {{storage, {x[0], k, size, size}}}));
}

DeviceProfile known_cpu(int threads) {
  DeviceProfile device = cpu_profile(threads);
  device.l2_bytes = 1 << 20;
  return device;
}

/// The last worker takes all pieces of a loop and counts them: a shared loop has as many tasks as pieces, up to the
/// number of threads.
struct CountingExecutor final : Executor {
  void run(int tasks, Task task) override {
    ++loops;
    pieces += tasks;
    task(tasks - 1);
  }
  int loops = 0, pieces = 0;
};

/// Different values at each position, of types whose values are not indices of another array.
void draw(Tensor& tensor) {
  std::mt19937 random(1);
  if (tensor.dtype() == DType::f32)
    for (float& value : tensor.values<float>()) value = static_cast<float>(random() % 2001) * 1e-3F - 1;
  if (tensor.dtype() == DType::u8)
    for (std::uint8_t& value : tensor.values<std::uint8_t>()) value = static_cast<std::uint8_t>(random() % 256);
  if (tensor.dtype() == DType::boolean)
    for (bool& value : tensor.values<bool>()) value = random() % 2 == 0;
}

using Results = std::vector<std::vector<Tensor>>;

/// Runs each candidate of a problem once with each pool, bound for as many threads as the first has.
void run_all(const Problem& problem, std::span<ThreadPool* const> pools,
             const std::function<void(const Kernel&, const Results&)>& after) {
  const DeviceProfile device = known_cpu(pools[0]->threads());
  for (const Kernel* const kernel : kernels_of(problem.op().type(), DeviceKind::cpu))
    for (const Candidate& candidate : kernel->offer(problem, {.device = device}).candidates) {
      std::vector<Tensor> inputs;
      for (std::size_t i = 0; i < problem.inputs().size(); ++i) {
        const InputInfo& input = problem.inputs()[i];
        const bool absent = !input.present || (input.constant != nullptr && (candidate.reads & input_bit(i)) == 0);
        inputs.push_back(absent                      ? Tensor()
                         : input.constant != nullptr ? input.constant->to_format(candidate.inputs[i])
                                                     : filled(input.type.dtype, input.type.shape, candidate.inputs[i]));
        if (!absent && input.constant == nullptr) draw(inputs.back());
      }
      const Tensor blob = prepared_blob(*kernel, problem, candidate);
      Tensor workspace(DType::u8, {static_cast<std::int64_t>(candidate.workspace_bytes)});
      const auto bound = kernel->bind({problem, candidate, device});
      Results results;
      for (ThreadPool* const pool : pools) {
        std::vector<Tensor>& outputs = results.emplace_back();
        for (std::size_t i = 0; i < problem.outputs().size(); ++i) {
          outputs.emplace_back(problem.outputs()[i].dtype, problem.outputs()[i].shape, candidate.outputs[i]);
          std::memset(outputs.back().data(), 0x55, outputs.back().bytes());
        }
        bound->run({.inputs = inputs,
                    .outputs = outputs,
                    .workspace = {static_cast<std::byte*>(workspace.data()), candidate.workspace_bytes},
                    .blob = static_cast<const std::byte*>(blob.data()),
                    .pool = pool});
      }
      after(*kernel, results);
    }
}

}  // namespace

TEST_CASE("conv/cpu_estimates/are_those_that_were_fitted") {
  const std::string_view expected = R"(Add cpu 2, 322560 flops, 4 ways: 64.512 us, 0 bytes, 8e-06, 12 1020 0
ArgMax cpu 4, 0 flops, 6 ways: 5.302175 us, 0 bytes, 0, 0 1530 0
AveragePool cpu 4, 1.094669e+07 flops, 8 ways: 40.79965 us, 9408 bytes, 1.6e-05, 1088 2040 0
BatchNormalization cpu 2, 645120 flops, 4 ways: 43.0336 us, 0 bytes, 8e-06, 36 1020 0
Concat cpu 2, 0 flops, 4 ways: 86.016 us, 0 bytes, 0, 480 1020 0
Conv bf16_amx 0
  382 refused: convolution of float32; only bfloat16 is supported
Conv bf16_depthwise 0
  382 refused: convolution of float32; only bfloat16 is supported
Conv bf16_packed 0
  382 refused: convolution of float32; only bfloat16 is supported
Conv depthwise 98, 1.202868e+09 flops, 98 ways: 3.43503 us, 306880 bytes, 0.00048009, 784 24794 0
  278 refused: groups differ from the input channels
  6 refused: it is 3-D
Conv direct 376, 6.629567e+10 flops, 376 ways: 70.1605 us, 540288 bytes, 0.0033353, 3008 95128 0
  6 refused: it is 3-D
Conv direct_lines 252, 5.212919e+10 flops, 252 ways: 16.0804 us, 0 bytes, 0.0018908, 50144 63756 0
  6 refused: it is 3-D
  98 refused: it is depthwise
  26 refused: the filters of one vector of channels would leave L1
Conv direct_packed 376, 6.629567e+10 flops, 376 ways: 12.58024 us, 0 bytes, 0.0024636, 75200 95128 0
  6 refused: it is 3-D
Conv direct_rows 376, 6.629567e+10 flops, 376 ways: 20.18286 us, 96821888 bytes, 0.0028938, 75200 95128 0
  6 refused: it is 3-D
Conv im2col 376, 6.629567e+10 flops, 376 ways: 20.60561 us, 46681704 bytes, 0.0024636, 75200 95128 dd70d469
  6 refused: it is 3-D
Conv im2col_nchw 28, 4514680 flops, 28 ways: 1.259564 us, 3453632 bytes, 0.00018112, 224 7084 0
  6 refused: it is 3-D
  348 refused: its filters are constants, and its images have more than one line
Conv int8_amx 0
  382 refused: convolution of float32; only int8, uint8 is supported
Conv int8_depthwise 0
  382 refused: convolution of float32; only int8, uint8 is supported
Conv int8_direct 0
  382 refused: convolution of float32; only int8, uint8 is supported
Conv int8_packed 0
  382 refused: convolution of float32; only int8, uint8 is supported
Conv kn2col 362, 6.628605e+10 flops, 362 ways: 33.19601 us, 24509096 bytes, 0.0023869, 72016 91586 0
  6 refused: it is 3-D
  14 refused: no tap lies in the image for every output
Conv planes 6, 2073600 flops, 6 ways: 5.007977 us, 348160 bytes, 2.5865e-05, 0 1518 72d9c0a5
  376 refused: it is not 3-D
Conv winograd_f2 78, 2.807191e+10 flops, 78 ways: 24.97951 us, 36591872 bytes, 0.0011187, 10864 19734 0
  190 refused: filter is not 3x3
  62 refused: groups are not 1
  6 refused: it is 3-D
  46 refused: stride is not 1
Conv winograd_f4 78, 2.807191e+10 flops, 78 ways: 22.8285 us, 41887744 bytes, 0.0016045, 10864 19734 0
  190 refused: filter is not 3x3
  62 refused: groups are not 1
  6 refused: it is 3-D
  46 refused: stride is not 1
Conv winograd_f6 78, 2.807191e+10 flops, 78 ways: 28.15963 us, 54813952 bytes, 0.009449, 10864 19734 0
  190 refused: filter is not 3x3
  62 refused: groups are not 1
  6 refused: it is 3-D
  46 refused: stride is not 1
ConvInteger cpu 4, 5.53513e+07 flops, 4 ways: 1 us, 790400 bytes, 0, 0 1000 0
ConvTranspose phases 6, 3.406234e+08 flops, 6 ways: 382.204 us, 7013376 bytes, 7.4377e-05, 1024 6 c902b17c
ConvTranspose phases_nchw 6, 3.406234e+08 flops, 6 ways: 4282.191 us, 3457792 bytes, 5.9569e-05, 0 6 1a015080
ConvTranspose planes 0
  6 refused: it is not 3-D
DeformConv cpu 2, 1.393459e+08 flops, 2 ways: 41.7024 us, 3483648 bytes, 1.7831e-05, 0 510 0
DepthToSpace cpu 2, 0 flops, 4 ways: 43.008 us, 0 bytes, 0, 0 1020 0
Einsum cpu 2, 129600 flops, 2 ways: 0.84 us, 0 bytes, 7.1308e-06, 0 510 0
GRU cpu 2, 1382400 flops, 2 ways: 1.434667 us, 47616 bytes, 3.4332e-05, 0 498 0
Gemm few_rows 2, 6.710886e+07 flops, 2 ways: 561.4251 us, 0 bytes, 4.5066e-05, 0 510 0
  2 refused: A lies transposed
  2 refused: B has less than 16 MiB: packed, it comes from a cache
  4 refused: more than 4 rows
  2 refused: more than 8 rows
Gemm packed 12, 5.13815e+08 flops, 12 ways: 305.2845 us, 846208 bytes, 0.0002006, 0 3040 0
GlobalAveragePool cpu 2, 322560 flops, 4 ways: 21.5296 us, 24576 bytes, 8e-06, 0 1020 0
GridSample cpu 2, 0 flops, 4 ways: 26.304 us, 23040 bytes, 1.1444e-05, 0 1020 0
Hardmax cpu 2, 1290240 flops, 2 ways: 43.008 us, 0 bytes, 0, 0 510 0
InstanceNormalization cpu 2, 1935360 flops, 4 ways: 43.0208 us, 0 bytes, 8.4e-06, 4 1020 0
LRN cpu 2, 4515840 flops, 4 ways: 43.008 us, 0 bytes, 8e-06, 0 1020 0
LSTM cpu 2, 3686400 flops, 2 ways: 3.461333 us, 124160 bytes, 3.4332e-05, 0 498 0
LayerNormalization cpu 2, 1120000 flops, 2 ways: 18.93333 us, 0 bytes, 4.2e-06, 2 510 0
LpNormalization cpu 4, 1400000 flops, 4 ways: 18.66667 us, 24000 bytes, 8e-06, 4 1020 0
MatMul cpu 0
  18 refused: input 0 has element type float32 (supported: float64, int32, uint32, int64, uint64)
MatMul few_rows 0
  2 refused: B is known, and not rows for rows of A
  10 refused: more than 8 rows
  6 refused: more than one product
MatMul packed 18, 6.657698e+08 flops, 18 ways: 22.98777 us, 190080 bytes, 0.00013826, 0 4574 0
MatMulInteger cpu 4, 9504000 flops, 4 ways: 1 us, 156576 bytes, 0, 0 1000 0
MaxPool cpu 6, 2586852 flops, 10 ways: 14.54204 us, 66304 bytes, 2e-05, 1088 2550 0
MeanVarianceNormalization cpu 2, 1612800 flops, 4 ways: 43.008 us, 2304 bytes, 8e-06, 4 1020 0
Mul cpu 2, 322560 flops, 4 ways: 43.012 us, 0 bytes, 8e-06, 12 1020 0
Pad cpu 2, 0 flops, 4 ways: 50.99733 us, 0 bytes, 0, 0 4 0
QLinearConv cpu 2, 1.006387e+08 flops, 2 ways: 1 us, 742912 bytes, 0, 0 430 0
ReduceMax cpu 2, 30000 flops, 2 ways: 2.0004 us, 0 bytes, 4e-06, 0 2 0
ReduceMean cpu 4, 437760 flops, 6 ways: 15.49489 us, 19200 bytes, 1.2e-05, 0 6 0
ReduceSum cpu 2, 300000 flops, 2 ways: 20.00013 us, 96 bytes, 4e-06, 0 2 0
Resize cpu 8, 0 flops, 16 ways: 56.603 us, 7741440 bytes, 3.624e-05, 0 16 0
Sigmoid cpu 2, 322560 flops, 4 ways: 43.008 us, 0 bytes, 8e-06, 4 1020 0
Softmax cpu 4, 1802240 flops, 6 ways: 31.60451 us, 0 bytes, 1.2e-05, 6 1530 0
SparseConv gather_scatter 4, 1.472e+08 flops, 4 ways: 10015.69 us, 646912 bytes, 4.8137e-05, 0 1020 0
SparseConv gathered_tiles 2, 7.36e+07 flops, 2 ways: 205.3999 us, 123712 bytes, 2.4069e-05, 0 502 1ab9c054
  2 refused: its filters are computed by the network
TopK cpu 6, 0 flops, 6 ways: 12.95275 us, 4507440 bytes, 0, 0 6 0
Transpose cpu 2, 0 flops, 2 ways: 43.008 us, 0 bytes, 0, 0 510 0
)";
  bool asked = false;
  for_each_target(HWY_TARGETS & HWY_AVX2, [&] {
    Acc acc;
    for (const int threads : {1, 6}) {
      const DeviceProfile device = known_cpu(threads);
      const Ask ask = [&](const Problem& problem) { add(acc, problem, {.device = device}); };
      for_each_convolution(DType::f32, ask);
      for (const ConvCase& c : conv_cases())
        ask(*pose(c.problem, filled(DType::f32, {c.problem.k, c.problem.group_c(), c.problem.r, c.problem.s})));
      for_each_operator(DType::f32, ask);
      for_each_operator_of_cpu(ask);
      for_each_sparse_convolution(ask);
    }
    CHECK(cpu_text(acc) == expected);
    asked = true;
  });
  if (!asked) MESSAGE("skipped: no AVX2");
}

// Results do not depend on how a loop is split, so no other test sees it.
TEST_CASE("conv/cpu_estimates/work_is_cut_into_as_many_pieces_as_it_was") {
  const std::string_view expected = R"(Add cpu: 20 in 2, 10 in 2
AffineGrid cpu: 8 in 1, 5 in 1
ArgMax cpu: 21 in 2, 10 in 2
ArgMin cpu: 23 in 2, 10 in 2
AveragePool cpu: 169 in 4, 20 in 4
BatchNormalization cpu: 42 in 4, 20 in 4
Cast cpu: 20 in 1, 5 in 1
Clip cpu: 20 in 1, 5 in 1
Col2Im cpu: 8 in 1, 5 in 1
Compress cpu: 20 in 2, 10 in 2
Concat cpu: 44 in 4, 20 in 4
Conv depthwise: 24 in 1, 5 in 1
Conv direct: 300 in 5, 25 in 5
Conv direct_lines: 175 in 4, 20 in 4
Conv direct_packed: 120 in 5, 25 in 5
Conv direct_rows: 62 in 5, 20 in 5
Conv im2col: 5080 in 105, 505 in 101
Conv kn2col: 441 in 59, 269 in 59
Conv planes: 10 in 2, 7 in 2
Conv winograd_f2: 6 in 1, 5 in 1
Conv winograd_f4: 5 in 1, 5 in 1
Conv winograd_f6: 82 in 3, 15 in 3
ConvInteger cpu: 68 in 3, 15 in 3
ConvTranspose phases: 946 in 24, 65 in 13
ConvTranspose phases_nchw: 504 in 13, 65 in 13
CumSum cpu: 25 in 2, 10 in 2
DeformConv cpu: 12 in 1, 5 in 1
DepthToSpace cpu: 20 in 2, 10 in 2
DequantizeLinear cpu: 20 in 1, 5 in 1
Einsum cpu: 4 in 1, 4 in 1
Exp cpu: 20 in 1, 5 in 1
Expand cpu: 7 in 1, 5 in 1
GRU cpu: 5 in 1, 5 in 1
Gather cpu: 17 in 2, 9 in 2
GatherElements cpu: 13 in 1, 5 in 1
GatherND cpu: 13 in 1, 5 in 1
Gemm packed: 169 in 6, 19 in 5
GlobalAveragePool cpu: 43 in 2, 10 in 2
GlobalMaxPool cpu: 19 in 2, 10 in 2
Greater cpu: 20 in 1, 5 in 1
GridSample cpu: 24 in 8, 24 in 8
Hardmax cpu: 35 in 4, 20 in 4
InstanceNormalization cpu: 23 in 2, 10 in 2
IsNaN cpu: 20 in 1, 5 in 1
LRN cpu: 88 in 2, 10 in 2
LSTM cpu: 10 in 1, 4 in 1
LayerNormalization cpu: 5 in 1, 5 in 1
LogSoftmax cpu: 40 in 1, 5 in 1
LpNormalization cpu: 20 in 4, 20 in 4
LpPool cpu: 54 in 2, 10 in 2
MatMul few_rows: 5 in 1, 5 in 1
MatMul packed: 162 in 5, 17 in 4
MatMulInteger cpu: 10 in 2, 8 in 2
MaxPool cpu: 90 in 6, 27 in 6
MeanVarianceNormalization cpu: 35 in 4, 17 in 4
Mod cpu: 20 in 1, 5 in 1
Mul cpu: 21 in 2, 10 in 2
Not cpu: 39 in 1, 5 in 1
OneHot cpu: 4 in 1, 4 in 1
PRelu cpu: 20 in 1, 5 in 1
Pad cpu: 29 in 2, 10 in 2
QLinearConv cpu: 70 in 2, 10 in 2
QuantizeLinear cpu: 20 in 1, 5 in 1
RNN cpu: 5 in 1, 5 in 1
ReduceL2 cpu: 23 in 2, 10 in 2
ReduceLogSumExp cpu: 18 in 1, 5 in 1
ReduceMax cpu: 14 in 1, 5 in 1
ReduceMean cpu: 29 in 3, 15 in 3
ReduceProd cpu: 15 in 1, 5 in 1
ReduceSum cpu: 3 in 1, 3 in 1
Resize cpu: 287 in 12, 60 in 12
ReverseSequence cpu: 0 in 0, 0 in 0
RoiAlign cpu: 108 in 2, 10 in 2
ScatterND cpu: 20 in 1, 5 in 1
Sigmoid cpu: 20 in 2, 10 in 2
Slice cpu: 13 in 1, 5 in 1
Softmax cpu: 67 in 5, 25 in 5
SpaceToDepth cpu: 20 in 2, 10 in 2
Split cpu: 26 in 4, 20 in 4
Sum cpu: 40 in 2, 10 in 2
TopK cpu: 26 in 3, 13 in 3
Transpose cpu: 41 in 4, 19 in 4
Trilu cpu: 10 in 2, 9 in 2
Where cpu: 20 in 1, 5 in 1
)";
  for_each_target(HWY_TARGETS & HWY_AVX2, [&] {
    std::map<std::string, std::array<int, 4>> counts;  // pieces, shared loops; the same with 5 threads
    for (const int threads : {64, 5}) {
      const auto executor = std::make_shared<CountingExecutor>();
      ThreadPool pool(threads, false, executor);
      ThreadPool* const pools[] = {&pool};
      const Ask ask = [&](const Problem& problem) {
        if (problem.bytes() > 4e6) return;
        run_all(problem, pools, [&](const Kernel& kernel, const Results&) {
          std::array<int, 4>& of_threads = counts[fmt::format("{} {}", problem.op().type(), kernel.name())];
          of_threads[threads == 5 ? 2 : 0] += std::exchange(executor->pieces, 0);
          of_threads[threads == 5 ? 3 : 1] += std::exchange(executor->loops, 0);
        });
      };
      for_each_operator(DType::f32, ask);
      for_each_operator_of_cpu(ask);
      for_each_operator_that_moves(ask);
    }
    std::string found;
    for (const auto& [name, count] : counts) {
      const auto& [pieces, loops, pieces_of_5, loops_of_5] = count;
      found += fmt::format("{}: {} in {}, {} in {}\n", name, pieces, loops, pieces_of_5, loops_of_5);
    }
    CHECK(found == expected);
  });
}

/// Builds without CUDA bind only its convolutions (ops/core/not_built.h), and have no gemm_cute: removes their lines.
std::string comparable(std::string_view text) {
  if constexpr (cuda_built) return std::string(text);
  std::string lines;
  for (std::size_t end = 0; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1))
    if (text.substr(0, text.find(' ')).find("Conv") != std::string_view::npos) lines += text.substr(0, end + 1);
  return lines;
}

// A piece must know where it begins, and which memory belongs to its worker.
void check_pieces(const std::function<void(const Ask&)>& for_each_problem) {
  ThreadPool one(1), five(5, false, std::make_shared<CountingExecutor>());
  ThreadPool* const pools[] = {&five, &one};
  for_each_problem([&](const Problem& problem) {
    if (problem.bytes() > 4e6) return;
    run_all(problem, pools, [&](const Kernel& kernel, const Results& results) {
      for (std::size_t i = 0; i < results[0].size(); ++i)
        CHECK_MESSAGE(std::memcmp(results[0][i].data(), results[1][i].data(), results[0][i].bytes()) == 0,
                      fmt::format("{} {}, output {}", problem.op().type(), kernel.name(), i));
    });
  });
}
TEST_CASE("conv/pieces/operators_of_both_devices_give_the_same_bits_in_one_piece_and_in_five") {
  check_pieces([](const Ask& ask) { for_each_operator(DType::f32, ask); });
}
TEST_CASE("conv/pieces/operators_of_the_cpu_give_the_same_bits_in_one_piece_and_in_five") {
  check_pieces(for_each_operator_of_cpu);
}
TEST_CASE("conv/pieces/operators_that_move_give_the_same_bits_in_one_piece_and_in_five") {
  check_pieces(for_each_operator_that_moves);
}

TEST_CASE("conv/cuda_estimates/are_those_that_were_fitted") {
  const std::pair<std::string_view, std::string_view> expected[] = {
      {"fp32", R"(Add cuda 1: 2.900167 us, 0 bytes, 4e-06, 4294967286 0
AveragePool cuda 1: 2.579751 us, 0 bytes, 4e-06, 272 0
Concat cuda 1: 3.200223 us, 0 bytes, 0, 240 0
Conv depthwise 4: 251.3551 us, 0 bytes, 2.3842e-05, 1056 67c4c5a0
Conv direct 23: 28999.73 us, 0 bytes, 0.00026023, 184 0
Conv direct_block 9: 2544.422 us, 0 bytes, 0.00014952, 72 955fceb2
Conv direct_pixel 9: 3973.482 us, 0 bytes, 0.00014952, 72 955fceb2
Conv direct_tile 9: 1204.155 us, 0 bytes, 0.00014952, 2376 31e42977
Conv direct_tile_padded 6: 262.2053 us, 0 bytes, 0.00012696, 1584 c67c3189
Conv few_filters 1: 2.767641 us, 0 bytes, 8.5831e-06, 264 0
Conv fft 3: 47.03122 us, 7094784 bytes, 2.9481e-05, 792 63965c6a
Conv implicit_gemm 20: 1986.909 us, 40958904 bytes, 0.00025213, 5280 bb3b132b
Conv implicit_gemm_nchw 20: 2586.763 us, 50745336 bytes, 0.00025213, 160 64609ffb
Conv winograd_f2 3: 360.5555 us, 148766720 bytes, 7.0935e-05, 792 a1476973
Conv winograd_f2_5x5 1: 16.56649 us, 18432000 bytes, 3.2518e-05, 264 b54a12fe
Conv winograd_f2_7x7 1: 6.960831 us, 4423680 bytes, 9.3467e-05, 264 2af94c67
Conv winograd_f4 3: 234.9606 us, 163160064 bytes, 0.00010823, 792 e4f612a2
Conv winograd_f4_5x5 1: 10.0728 us, 8192000 bytes, 0.00011132, 264 d7e7556d
ConvTranspose phases 1: 19.16132 us, 1726208 bytes, 7.5609e-06, 256 158fa122
ConvTranspose phases_nchw 1: 30.82187 us, 1726208 bytes, 7.5609e-06, 0 424900e7
DepthToSpace cuda 1: 2.600112 us, 0 bytes, 0, 0 0
Gemm gemm 1: 2.28502 us, 0 bytes, 1.1743e-05, 0 2f3a0bd6
GlobalAveragePool cuda 1: 2.300413 us, 0 bytes, 4e-06, 0 0
InstanceNormalization cuda 1: 2.60029 us, 38400 bytes, 4.2e-06, 2 0
MatMul gemm 3: 6.168655 us, 0 bytes, 2.7456e-05, 0 65caf881
MaxPool cuda 1: 2.365068 us, 0 bytes, 4e-06, 272 0
Mul cuda 1: 2.600167 us, 0 bytes, 4e-06, 4294967286 0
Pad cuda 1: 2.711591 us, 0 bytes, 0, 0 0
ReduceMean cuda 1: 2.306307 us, 0 bytes, 4e-06, 0 0
Resize cuda 1: 3.200238 us, 0 bytes, 5.722e-06, 0 0
Sigmoid cuda 1: 2.600112 us, 0 bytes, 4e-06, 2 0
Softmax cuda 2: 3.719181 us, 0 bytes, 6e-06, 3 0
TopK cuda 1: 1.06043 us, 0 bytes, 0, 0 0
Transpose cuda 1: 1.300056 us, 0 bytes, 0, 0 0
)"},
      {"tf32", R"(Conv grouped_tf32 2: 10.04331 us, 0 bytes, 0.0097833, 528 9d2ef3f
Conv mma_gemm 23: 1347.849 us, 0 bytes, 0.11283, 6072 67dc79ef
Conv stem 2: 12.80786 us, 0 bytes, 0.009786, 528 56ec8
Conv wgmma_halo 10: 3230.266 us, 0 bytes, 0.049157, 2640 118066cd
Conv wgmma_tf32 21: 6584.6 us, 0 bytes, 0.10304, 5544 83ecb305
ConvTranspose phases 1: 15.73203 us, 345344 bytes, 0.0048979, 256 577d13fd
Gemm gemm 1: 3.880007 us, 0 bytes, 0.0048946, 0 ca9e12c4
MatMul gemm 3: 13.59955 us, 540800 bytes, 0.0097931, 0 d9da9c9b
SeparableConv separable 6: 408.8153 us, 0 bytes, 0.02933, 1728 cdaec936
)"},
      {"fp16", R"(Add cuda 1: 2.450084 us, 0 bytes, 4e-06, 4294967286 0
AveragePool cuda 1: 2.289875 us, 0 bytes, 4e-06, 272 0
Concat cuda 1: 2.600112 us, 0 bytes, 0, 240 0
Conv depthwise 4: 245.0942 us, 0 bytes, 0.013134, 1056 3dd780e3
Conv grouped_mma 2: 8.754818 us, 0 bytes, 0.0065606, 528 38888f1e
Conv mma_gemm 23: 1536.651 us, 0 bytes, 0.075765, 6072 c6bcb9bf
Conv stem 2: 9.412753 us, 0 bytes, 0.0065633, 528 56ec8
Conv thin_mma 2: 13.1336 us, 0 bytes, 0.006556, 528 29c8ff8a
Conv wgmma_gemm 21: 4634.461 us, 0 bytes, 0.069207, 5544 4da60b5d
Conv wgmma_halo 10: 3206.936 us, 0 bytes, 0.033044, 2640 1d5f07b5
DepthToSpace cuda 1: 2.300056 us, 0 bytes, 0, 0 0
GlobalAveragePool cuda 1: 2.150207 us, 0 bytes, 4e-06, 0 0
MatMul gemm 1: 4.722677 us, 0 bytes, 0.0032794, 0 8059c023
MaxPool cuda 1: 2.182534 us, 0 bytes, 4e-06, 272 0
Pad cuda 1: 2.35581 us, 0 bytes, 0, 0 0
ReduceMean cuda 1: 2.153153 us, 0 bytes, 4e-06, 0 0
Resize cuda 1: 2.600127 us, 0 bytes, 5.722e-06, 0 0
SeparableConv separable 6: 185.295 us, 0 bytes, 0.034344, 1728 42bf5807
Sigmoid cuda 1: 2.300056 us, 0 bytes, 4e-06, 2 0
Softmax cuda 2: 3.359591 us, 0 bytes, 6e-06, 3 0
Transpose cuda 1: 1.150028 us, 0 bytes, 0, 0 0
)"}};
  std::string before;
  for (const auto& [precision, wanted] : expected) {
    const Numerics numerics = parse_numerics(precision);
    Acc acc;
    const Ask ask = [&](const Problem& problem) {
      add(acc, problem, {.device = reference_gpu(), .numerics = numerics});
    };
    for_each_convolution(numerics.storage, ask);
    for_each_operator(numerics.storage, ask);
    for (const std::int64_t stride : {1, 2})
      for (const Shape& x : {Shape{1, 144, 56, 56}, Shape{64, 96, 112, 112}, Shape{8, 32, 30, 30}})
        ask_separable(numerics.storage, ask, x, 3, stride, 24);
    const std::string found = text(acc, before);
    CHECK_MESSAGE(comparable(found) == comparable(wanted), std::string(to_string(numerics)));
    before += found;
  }
}

}  // namespace lenslet::test
