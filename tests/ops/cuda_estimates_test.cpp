// What CUDA's kernels offer for a few problems, as it was when their constants were fitted: of how many problems, what
// these are estimated to take together, what memory they want, what error they state, where they may write, and which
// cuts they have (a sum over the letters of their configurations). A row that changes wants measured times beside it
// (cuda_choice_test.cpp, odd_choice_test.cpp), or was not meant to; the check prints what stands there then. No device
// needed.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ops/conv/conv.h"
#include "ops/core/choose.h"

namespace lenslet::test {
namespace {

/// Of all problems that a kernel takes.
struct Sum {
  int problems = 0;
  std::size_t workspace = 0, masks = 0;
  double us = 0, tolerance = 0;
  std::uint32_t configs = 0;
};
using Sums = std::map<std::string, Sum>;

void add(Sums& sums, const Problem& problem, const Numerics& numerics) {
  for (const Kernel* const kernel : kernels_of(problem.op().type(), DeviceKind::cuda)) {
    const Offer offer = kernel->offer(problem, {.device = reference_gpu(), .numerics = numerics});
    if (!offer.refusal.empty()) continue;
    Sum& sum = sums[fmt::format("{} {}", problem.op().type(), kernel->name())];
    ++sum.problems;
    for (const Candidate& candidate : offer.candidates) {
      sum.us += candidate.estimated_us;
      sum.workspace += candidate.workspace_bytes;
      sum.tolerance += candidate.tolerance;
      sum.masks += candidate.in_place + 16 * candidate.pitched_inputs + (candidate.pitched_output ? 256 : 0);
      for (const char c : candidate.config) sum.configs = sum.configs * 31 + static_cast<unsigned char>(c);
    }
  }
}

/// A line a kernel, but for those that are in `before`.
std::string text(const Sums& sums, const std::string& before) {
  std::string all;
  for (const auto& [name, sum] : sums) {
    const std::string line = fmt::format("{} {}: {:.7g} us, {} bytes, {:.5g}, {} {:x}\n", name, sum.problems, sum.us,
                                         sum.workspace, sum.tolerance, sum.masks, sum.configs);
    if (before.find(line) == std::string::npos) all += line;
  }
  return all;
}

struct Row {
  std::int64_t n, c, h, w, k, window, stride, dilation, groups;
};
constexpr Row rows[] = {
    {1, 3, 224, 224, 64, 7, 2, 1, 1},    {8, 3, 224, 224, 32, 3, 2, 1, 1},    {1, 64, 56, 56, 64, 3, 1, 1, 1},
    {64, 64, 56, 56, 256, 1, 1, 1, 1},   {1, 512, 7, 7, 512, 3, 1, 1, 1},     {2, 2048, 7, 7, 512, 1, 1, 1, 1},
    {1, 144, 28, 28, 144, 3, 1, 1, 144}, {16, 96, 112, 112, 96, 3, 2, 1, 96}, {1, 192, 14, 14, 192, 5, 1, 1, 192},
    {4, 32, 40, 40, 48, 5, 1, 1, 1},     {1, 24, 31, 29, 40, 7, 1, 1, 1},     {1, 256, 28, 28, 256, 3, 1, 2, 1},
    {8, 128, 28, 28, 128, 3, 1, 1, 32},  {1, 48, 35, 35, 48, 3, 1, 1, 6},     {1, 1, 512, 512, 1, 31, 1, 1, 1},
    {2, 12, 64, 64, 20, 15, 1, 1, 1},    {1, 16, 20, 20, 16, 1, 1, 1, 1},     {1, 256, 64, 64, 2, 1, 1, 1, 1},
    {64, 1280, 8, 8, 384, 1, 1, 1, 1},   {1, 33, 17, 19, 21, 3, 2, 1, 1},     {32, 32, 112, 112, 16, 1, 1, 1, 1},
    {64, 200, 28, 28, 256, 1, 1, 1, 1},  {32, 72, 56, 56, 96, 3, 1, 1, 1},
};

void add_convolutions(Sums& sums, const Numerics& numerics) {
  for (const Row& row : rows) {
    const std::int64_t pad = row.dilation * (row.window / 2);
    ConvProblem p = resolve_conv({row.n, row.c, row.h, row.w}, {row.k, row.c / row.groups, row.window, row.window},
                                 {.stride = {row.stride, row.stride},
                                  .dilation = {row.dilation, row.dilation},
                                  .pads = {pad, pad, pad, pad},
                                  .groups = row.groups});
    p.bias = true;
    p.activation.kind = Activation::Kind::relu;
    p.storage = p.x_storage = numerics.storage;
    add(sums, *pose(p, Tensor(DType::f32, {p.k, p.group_c(), p.r, p.s})), numerics);
  }
}

void add_others(Sums& sums, const Numerics& numerics) {
  using Ints = std::vector<std::int64_t>;
  const Shape image{4, 48, 28, 30};
  const Tensor pads = Tensor::of<std::int64_t>(Shape{8}, {0, 0, 1, 2, 0, 0, 3, 4});
  const Tensor sizes = Tensor::of<std::int64_t>(Shape{4}, {4, 48, 56, 45}), k = Tensor::of<std::int64_t>(Shape{1}, {5});
  const Tensor matrix(DType::f32, {512, 1000}), vector(DType::f32, {48}), row(DType::f32, {30}),
      filters(DType::f32, {48, 24, 3, 3});
  struct Node {
    const char* op;
    std::vector<Shape> inputs;  ///< that are computed
    std::vector<const Tensor*> constants;
    AttributeList attributes;
  };
  const Node nodes[] = {
      {"MatMul", {{128, 512}}, {&matrix}, {}},
      {"MatMul", {{1, 512}}, {&matrix}, {}},
      {"MatMul", {{8, 65, 40}, {8, 40, 130}}, {}, {}},
      {"Gemm", {{64, 512}}, {&matrix}, {}},
      {"ConvTranspose", {image}, {&filters}, {{"strides", Ints{2, 2}}}},
      {"Softmax", {{64, 1000}}, {}, {{"axis", std::int64_t{1}}}},
      {"Softmax", {image}, {}, {{"axis", std::int64_t{1}}}},
      {"MaxPool", {image}, {}, {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}}},
      {"AveragePool", {image}, {}, {{"kernel_shape", Ints{2, 2}}}},
      {"GlobalAveragePool", {image}, {}, {}},
      {"ReduceMean", {image}, {}, {{"axes", Ints{1}}}},
      {"Resize", {image}, {nullptr, nullptr, &sizes}, {{"mode", std::string("linear")}}},
      {"Transpose", {image}, {}, {{"perm", Ints{0, 2, 3, 1}}}},
      {"Concat", {image, image}, {}, {{"axis", std::int64_t{1}}}},
      {"Pad", {image}, {&pads}, {}},
      {"Add", {image, image}, {}, {}},
      {"Mul", {image}, {&row}, {}},
      {"Sigmoid", {image}, {}, {}},
      {"TopK", {{64, 1000}}, {&k}, {}},
      {"InstanceNormalization", {image}, {&vector, &vector}, {}},
      {"DepthToSpace", {image}, {}, {{"blocksize", std::int64_t{2}}}},
  };
  for (const Node& node : nodes) {
    const auto of_floats = [](const Tensor* constant) {
      return constant != nullptr && constant->dtype() == DType::f32;
    };
    if (numerics.storage != DType::f32 && std::ranges::any_of(node.constants, of_floats)) continue;  // types differ
    std::vector<InputInfo> inputs;
    for (const Shape& shape : node.inputs) inputs.push_back({true, {numerics.storage, shape}, nullptr});
    for (const Tensor* constant : node.constants)
      inputs.push_back(constant == nullptr ? InputInfo{}
                                           : InputInfo{true, {constant->dtype(), constant->shape()}, constant});
    INFO(std::string(node.op));
    const std::size_t outputs = node.op == std::string_view("TopK") ? 2 : 1;
    add(sums, Problem(make_op(node.op, "", node.attributes, inputs.size(), outputs), inputs), numerics);
  }
}

/// A depthwise convolution of such a window and stride, and the 1x1 one behind it.
void add_separable(Sums& sums, const Numerics& numerics, const Shape& x, std::int64_t window, std::int64_t stride,
                   std::int64_t k) {
  using Ints = std::vector<std::int64_t>;
  const std::int64_t c = x[1], size = (x[2] + 2 * (window / 2) - window) / stride + 1;
  const auto conv = [](const AttributeList& attributes) { return make_op("Conv", "", attributes, 3)->attributes(); };
  AttributeList all;
  for (const auto& [name, value] :
       conv({{"pads", Ints(4, window / 2)}, {"strides", Ints{stride, stride}}, {"group", c}}))
    all.emplace_back("depthwise_" + name, value);
  for (const auto& one : conv({{"group", std::int64_t{1}}})) all.push_back(one);
  const Tensor w(DType::f32, {c, 1, window, window}), b(DType::f32, {c}), v(DType::f32, {k, c, 1, 1}),
      a(DType::f32, {k});
  std::vector<InputInfo> inputs{{true, {numerics.storage, x}, nullptr}};
  for (const Tensor* constant : {&w, &b, &v, &a}) inputs.push_back({true, {DType::f32, constant->shape()}, constant});
  inputs.emplace_back();
  add(sums,
      Problem(make_normalised_op("SeparableConv", all, inputs.size()), inputs,
              {{numerics.storage, {x[0], k, size, size}}}),
      numerics);
}

}  // namespace

TEST_CASE("conv/cuda_estimates/are_those_that_were_fitted") {
  const std::pair<std::string_view, std::string_view> expected[] = {
      {"fp32", R"(Add cuda 1: 2.900167 us, 0 bytes, 4e-06, 6 0
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
Conv implicit_gemm 20: 2018.026 us, 39353272 bytes, 0.00025213, 5280 cdc4c4a3
Conv implicit_gemm_nchw 20: 2978.971 us, 46878712 bytes, 0.00025213, 160 462c7219
Conv winograd_f2 3: 358.8428 us, 148766720 bytes, 7.0935e-05, 792 a1476973
Conv winograd_f2_5x5 1: 16.51803 us, 18432000 bytes, 3.2518e-05, 264 b54a12fe
Conv winograd_f2_7x7 1: 6.936599 us, 4423680 bytes, 9.3467e-05, 264 2af94c67
Conv winograd_f4 3: 233.7611 us, 163160064 bytes, 0.00010823, 792 e4f612a2
Conv winograd_f4_5x5 1: 10.04857 us, 8192000 bytes, 0.00011132, 264 d7e7556d
ConvTranspose phases 1: 21.21955 us, 1726208 bytes, 7.5609e-06, 256 3e26c5ce
ConvTranspose phases_nchw 1: 56.33706 us, 1726208 bytes, 7.5609e-06, 0 d682ce08
DepthToSpace cuda 1: 2.600112 us, 0 bytes, 0, 0 0
Gemm gemm 1: 2.28502 us, 0 bytes, 1.1743e-05, 0 b79f3d08
GlobalAveragePool cuda 1: 2.300413 us, 0 bytes, 4e-06, 0 0
InstanceNormalization cuda 1: 1.300145 us, 4608 bytes, 2e-06, 1 0
MatMul gemm 3: 6.168655 us, 0 bytes, 2.7456e-05, 0 c3f40ec2
MaxPool cuda 1: 2.365068 us, 0 bytes, 4e-06, 272 0
Mul cuda 1: 2.600167 us, 0 bytes, 4e-06, 6 0
Pad cuda 1: 2.711591 us, 0 bytes, 0, 0 0
ReduceMean cuda 1: 2.306307 us, 0 bytes, 4e-06, 0 0
Resize cuda 1: 3.200238 us, 0 bytes, 5.722e-06, 0 0
Sigmoid cuda 1: 2.600112 us, 0 bytes, 4e-06, 2 0
Softmax cuda 2: 3.719181 us, 0 bytes, 6e-06, 3 0
TopK cuda 1: 1.06043 us, 0 bytes, 0, 0 0
Transpose cuda 1: 1.300056 us, 0 bytes, 0, 0 0
)"},
      {"tf32", R"(Conv grouped_tf32 2: 10.04331 us, 0 bytes, 0.0097833, 528 9d2ef3f
Conv mma_gemm 23: 1470.997 us, 0 bytes, 0.11283, 6072 8f588e6e
Conv stem 2: 12.80786 us, 0 bytes, 0.009786, 528 56ec8
Conv wgmma_patch 10: 3236.762 us, 0 bytes, 0.049157, 2640 52b7e248
Conv wgmma_tf32 21: 6584.804 us, 0 bytes, 0.10304, 5544 301ad6df
ConvTranspose phases 1: 15.92136 us, 345344 bytes, 0.0048979, 256 69f5d8a0
Gemm gemm 1: 3.880007 us, 0 bytes, 0.0048946, 0 f4663d07
MatMul gemm 3: 13.59955 us, 540800 bytes, 0.0097931, 0 d49d27e4
SeparableConv separable 6: 408.8153 us, 0 bytes, 0.02933, 1728 cdaec936
)"},
      {"fp16", R"(Add cuda 1: 2.450084 us, 0 bytes, 4e-06, 6 0
AveragePool cuda 1: 2.289875 us, 0 bytes, 4e-06, 272 0
Concat cuda 1: 2.600112 us, 0 bytes, 0, 240 0
Conv depthwise 4: 245.0291 us, 0 bytes, 0.013134, 1056 3dd780e3
Conv grouped_mma 2: 8.754818 us, 0 bytes, 0.0065606, 528 38888f1e
Conv mma_gemm 23: 1701.034 us, 0 bytes, 0.075765, 6072 9ce07cc8
Conv stem 2: 9.412753 us, 0 bytes, 0.0065633, 528 56ec8
Conv thin_mma 2: 13.1336 us, 0 bytes, 0.006556, 528 29c8ff8a
Conv wgmma_gemm 21: 4634.36 us, 0 bytes, 0.069207, 5544 472e576d
Conv wgmma_patch 10: 3207.222 us, 0 bytes, 0.033044, 2640 cca9d1e6
DepthToSpace cuda 1: 2.300056 us, 0 bytes, 0, 0 0
GlobalAveragePool cuda 1: 2.150207 us, 0 bytes, 4e-06, 0 0
MatMul gemm 1: 4.722677 us, 0 bytes, 0.0032794, 0 fc7f3bfe
MaxPool cuda 1: 2.182534 us, 0 bytes, 4e-06, 272 0
Pad cuda 1: 2.35581 us, 0 bytes, 0, 0 0
ReduceMean cuda 1: 2.153153 us, 0 bytes, 4e-06, 0 0
Resize cuda 1: 2.600127 us, 0 bytes, 5.722e-06, 0 0
SeparableConv separable 6: 185.295 us, 0 bytes, 0.034344, 1728 42bf5807
Sigmoid cuda 1: 2.300056 us, 0 bytes, 4e-06, 2 0
Transpose cuda 1: 1.150028 us, 0 bytes, 0, 0 0
)"}};
  std::string before;
  for (const auto& [precision, wanted] : expected) {
    const Numerics numerics = parse_numerics(precision);
    Sums sums;
    add_convolutions(sums, numerics);
    add_others(sums, numerics);
    for (const std::int64_t stride : {1, 2})
      for (const Shape& x : {Shape{1, 144, 56, 56}, Shape{64, 96, 112, 112}, Shape{8, 32, 30, 30}})
        add_separable(sums, numerics, x, 3, stride, 24);
    const std::string found = text(sums, before);
    CHECK_MESSAGE(found == wanted, std::string(to_string(numerics)));
    before += found;
  }
}

}  // namespace lenslet::test
