// Candidates of kernels for many problems, in data/estimates.txt, as when their constants were fitted: the number of
// accepted problems, the sum of estimates (on the CPU their mean), workspace, tolerances, outputs that may be written
// in place, a checksum of configurations, and the CPU's refusals. A changed row needs new measurements
// (cuda_choice_test.cpp, odd_choice_test.cpp), or was unintended. Needs no device. The CPU is assumed to have AVX2 and
// 1 MiB of L2, since estimates depend on the vectors.

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
#include "tests/ops/node_text.h"

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

using Keep = std::function<bool(std::string_view line)>;

/// Compares the lines of `text`, or those that `keep` holds for, with the indented ones below `key` in
/// data/estimates.txt.
void check(const std::string& key, std::string_view text, const Keep& keep = {}) {
  std::string indented;
  for (std::size_t end = 0; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1))
    if (const std::string_view line = text.substr(0, end); !keep || keep(line)) indented += fmt::format("  {}\n", line);
  CHECK(check_said("estimates.txt", true,
                   [&](const std::string& line, std::string&) { return line == key ? indented : std::string(); }) == 1);
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
    check("cpu", cpu_text(acc));
    asked = true;
  });
  if (!asked) MESSAGE("skipped: no AVX2");
}

// Results do not depend on how a loop is split, so no other test sees it.
TEST_CASE("conv/cpu_estimates/work_is_cut_into_as_many_pieces_as_it_was") {
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
    check("pieces of work on the cpu", found);
  });
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
  std::string before;
  for (const std::string precision : {"fp32", "tf32", "fp16"}) {
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
    const Keep of_convolution = [](std::string_view line) {
      return line.substr(0, line.find(' ')).find("Conv") != std::string_view::npos;
    };
    check("cuda convolutions " + precision, found, of_convolution);
    // Builds without CUDA bind only its convolutions (ops/core/not_built.h), and have no gemm_cute.
    if (cuda_built) check("cuda others " + precision, found, std::not_fn(of_convolution));
    before += found;
  }
}

}  // namespace lenslet::test
