// ConvTranspose: phases of any stride, dilation and pad compared with the definition, which scatters each product.

#include <doctest/doctest.h>

#include <limits>
#include <memory>
#include <random>

#include "ops/conv/phases.h"
#include "ops/core/kernel.h"
#include "tests/expect_error.h"
#include "tests/ops/conv_data.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/op_runner.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

using Ints = std::vector<std::int64_t>;
using Text = std::string;

constexpr double tolerance = 2e-5;  ///< Winograd's, for phases; the rest states less

OpCase transposed(Shape x, Shape w, AttributeList attributes, bool bias = true) {
  std::int64_t groups = 1;
  for (const auto& [name, value] : attributes)
    if (name == "group") groups = std::get<std::int64_t>(value);
  OpCase c{.op = "ConvTranspose",
           .opset = 11,
           .attributes = std::move(attributes),
           .inputs = {random_f32(x, 1), random_f32(w, 2)},
           .maybe_constant = {1},
           .tolerance = tolerance};
  if (bias) {
    c.inputs.push_back(random_f32({w[1] * groups}, 3));
    c.maybe_constant.push_back(2);
  }
  return c;
}

/// The case as passes make it for 16 bits, with an epilogue: x and y of `half`; filters, and bias, stay float32.
struct HalfCase {
  HalfCase(const OpCase& c, DType half) : inputs(c.inputs) {
    inputs[0] = random_of(half, inputs[0].shape(), 4, -1, 1);
    y = {half, infer_op(c)[0].shape};
    const std::shared_ptr<const Op> plain = make_op(c);
    Epilogue epilogue = *plain->epilogue();
    epilogue.scale.assign(static_cast<std::size_t>(y.shape[1]), -0.75F);
    epilogue.activation = {Activation::Kind::leaky_relu, 0.25F, 0};
    op = make_normalised_op("ConvTranspose", plain->with_epilogue(epilogue)->attributes(), 3);
  }
  Problem problem(const std::vector<int>& constant) const { return {op, infos_of(inputs, constant), {y}}; }

  std::vector<Tensor> inputs;
  TensorType y;
  std::shared_ptr<const Op> op;
};

/// Compares all that the device's kernels offer in 16 bits with the oracle. `taken`: whether they offer anything, and
/// CUDA's do for known filters, which is checked without a device, too.
void check_halves(const OpCase& c, bool taken = true) {
  const OpRunner& runner = op_runner();
  const bool on_cpu = runner.device() == DeviceKind::cpu;
  for (const DType half : {DType::f16, DType::bf16}) {
    const HalfCase halves(c, half);
    const Numerics numerics = parse_numerics(half == DType::f16 ? "fp16" : "bf16");
    const Problem known = halves.problem(c.maybe_constant);
    const Kernel& phases = *find_kernel("ConvTranspose", DeviceKind::cuda, "phases");
    const Offer offer = phases.offer(known, {.device = reference_gpu(), .numerics = numerics});
    CHECK_MESSAGE(offer.candidates.empty() != taken, known.op().describe(known.inputs()), ": ", offer.refusal);
    if (on_cpu && half == DType::f16) continue;
    const ConvData judged = judged_by_oracle("ConvTranspose", halves.op->attributes(), halves.inputs);
    for (const std::vector<int>& constant : {std::vector<int>{1}, c.maybe_constant}) {
      const Problem problem = halves.problem(constant);
      int calls = 0;
      for (const Kernel* kernel : kernels_of("ConvTranspose", runner.device()))
        for_each_call(
            runner, problem, *kernel, 2,
            [&](const Call& call) {
              ++calls;
              compare(run_between_guards(runner, call, halves.inputs, call.str())[0], judged, call.candidate.tolerance,
                      call.str());
            },
            numerics);
      CHECK((calls > 0) == taken);
    }
  }
}

}  // namespace

TEST_CASE("conv_transpose/strides_and_windows") {
  for (const std::int64_t stride : {1, 2, 3})
    for (const std::int64_t taps : {1, 2, 3, 4, 5})
      for (const std::int64_t pad : {0, 1, 2}) {
        if (2 * stride + taps <= 2 * pad) continue;
        check_op(transposed({2, 3, 3, 4}, {3, 5, taps, 3},
                            {{"strides", Ints{stride, 2}}, {"pads", Ints{pad, 1, pad, 0}}}, pad == 1));
      }
}

TEST_CASE("conv_transpose/dilations") {
  for (const std::int64_t stride : {1, 2, 3, 4})
    for (const std::int64_t dilation : {2, 3, 4, 6})
      check_op(
          transposed({1, 4, 3, 5}, {4, 2, 3, 2},
                     {{"strides", Ints{stride, 2}}, {"dilations", Ints{dilation, 3}}, {"pads", Ints{1, 0, 1, 2}}}));
}

TEST_CASE("conv_transpose/groups_and_channels") {
  check_op(transposed({1, 6, 4, 3}, {6, 4, 4, 4}, {{"group", std::int64_t{2}}, {"strides", Ints{2, 2}}}));
  check_op(transposed({2, 8, 4, 3}, {8, 1, 4, 4},
                      {{"group", std::int64_t{8}}, {"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}}));
  check_op(transposed({1, 8, 5, 6}, {8, 2, 3, 3}, {{"group", std::int64_t{8}}, {"strides", Ints{2, 1}}}));
  check_op(transposed({1, 32, 7, 9}, {32, 16, 4, 4}, {{"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}}));
  check_op(transposed({1, 16, 1, 1}, {16, 24, 4, 4}, {}));
  check_op(transposed({1, 16, 9, 8}, {16, 16, 6, 6}, {{"strides", Ints{2, 2}}, {"pads", Ints{2, 2, 2, 2}}}));
  check_op(transposed({1, 2, 3, 2}, {2, 3, 16, 16}, {{"strides", Ints{8, 8}}, {"pads", Ints{4, 4, 4, 4}}}));
}

TEST_CASE("conv_transpose/output_shapes") {
  const Shape x{1, 3, 4, 5}, w{3, 2, 3, 3};
  const Ints two{2, 2}, three{3, 3};
  check_op(transposed(x, w, {{"strides", two}, {"output_padding", Ints{1, 1}}, {"pads", Ints{1, 1, 1, 1}}}));
  check_op(transposed(x, w, {{"strides", three}, {"output_padding", Ints{2, 0}}}));
  for (const char* mode : {"NOTSET", "SAME_UPPER", "SAME_LOWER"}) {
    check_op(transposed(x, w, {{"strides", two}, {"output_shape", Ints{8, 9}}, {"auto_pad", Text(mode)}}));
    check_op(transposed(x, w, {{"strides", three}, {"output_shape", Ints{17, 30}}, {"auto_pad", Text(mode)}}));
    if (Text(mode) != "NOTSET") {
      check_op(transposed(x, w, {{"strides", two}, {"auto_pad", Text(mode)}}));
      check_op(transposed(x, {3, 2, 4, 2}, {{"strides", three}, {"auto_pad", Text(mode)}}));
    }
  }
  check_op(transposed(x, w, {{"strides", two}, {"auto_pad", Text("VALID")}}));
  CHECK(infer_op(transposed(x, w, {{"strides", two}, {"auto_pad", Text("SAME_UPPER")}}))[0].shape ==
        Shape{1, 2, 8, 10});
}

TEST_CASE("conv_transpose/1d") {
  for (const std::int64_t stride : {1, 2, 5})
    check_op(transposed({2, 3, 7}, {3, 4, 4}, {{"strides", Ints{stride}}, {"pads", Ints{1, 2}}}));
  check_op(transposed(
      {1, 4, 6}, {4, 2, 3},
      {{"strides", Ints{2}}, {"dilations", Ints{3}}, {"group", std::int64_t{2}}, {"output_padding", Ints{1}}}));
}

TEST_CASE("conv_transpose/random") {
  const unsigned seed = random_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto draw = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  for (int round = 0; round < 60; ++round) {
    const std::int64_t groups = draw(1, 3), channels = groups * draw(1, 4), out = draw(1, 5);
    const Ints strides{draw(1, 5), draw(1, 5)}, dilations{draw(1, 5), draw(1, 5)};
    const Shape x{draw(1, 2), channels, draw(1, 6), draw(1, 6)}, w{channels, out, draw(1, 6), draw(1, 6)};
    const auto whole = [&](std::size_t i) {
      const int axis = static_cast<int>(i) + 2;
      return strides[i] * (x[axis] - 1) + dilations[i] * (w[axis] - 1) + 1;
    };
    Ints pads(4);
    for (std::size_t side = 0; side < 4; ++side) pads[side] = draw(0, (whole(side % 2) - 1) / 2);
    check_op(transposed(x, w,
                        {{"strides", strides},
                         {"dilations", dilations},
                         {"pads", pads},
                         {"group", groups},
                         {"output_padding", Ints{draw(0, 2), draw(0, 2)}}}));
  }
}

// Where no filter reaches, the float32 kernel is needed.
TEST_CASE("conv_transpose/16_bits_with_float32_filters") {
  check_halves(transposed({2, 48, 5, 3}, {48, 24, 2, 2}, {{"strides", Ints{2, 2}}}));
  check_halves(transposed({3, 64, 7, 7}, {64, 128, 4, 4}, {{"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}}));
  check_halves(transposed({1, 5, 4, 7}, {5, 3, 2, 2}, {{"strides", Ints{2, 2}}}, false));
  check_halves(transposed({1, 6, 4, 3}, {6, 4, 4, 3},
                          {{"group", std::int64_t{2}}, {"strides", Ints{2, 1}}, {"pads", Ints{1, 1, 1, 1}}}));
  check_halves(transposed({1, 3, 4, 5}, {3, 2, 2, 2}, {{"strides", Ints{3, 2}}}), false);
}

TEST_CASE("conv_transpose/random_of_16_bits") {
  const unsigned seed = random_seed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto draw = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  for (int round = 0; round < 30; ++round) {
    const bool depthwise = draw(0, 1) == 1;
    const std::int64_t channels = draw(1, 48), filters = depthwise ? 1 : draw(1, 48);
    const Ints strides{draw(1, 3), draw(1, 3)};
    // At least as many taps as the stride, and no common factor with the dilation: each output has some.
    const auto dilation = [&](std::int64_t stride) { return stride == 2 ? 1 : draw(1, 2); };
    const Ints dilations{dilation(strides[0]), dilation(strides[1])};
    const Shape x{draw(0, 1) * 2 + 1, channels, draw(2, 9), draw(2, 9)},
        w{channels, filters, draw(strides[0], 5), draw(strides[1], 5)};
    Ints pads(4);
    for (std::size_t side = 0; side < 4; ++side) pads[side] = w[side % 2 == 0 ? 2 : 3] == 1 ? 0 : draw(0, 1);
    check_halves(transposed(x, w,
                            {{"strides", strides},
                             {"dilations", dilations},
                             {"pads", pads},
                             {"group", depthwise ? channels : std::int64_t{1}},
                             {"output_padding", Ints{draw(0, strides[0] - 1), draw(0, strides[1] - 1)}}},
                            draw(0, 1) == 1));
  }
}

TEST_CASE("conv_transpose/epilogue") {
  const OpCase c = transposed({1, 3, 4, 5}, {3, 2, 2, 2}, {{"strides", Ints{3, 2}}});
  const std::shared_ptr<const Op> plain = make_op(c);
  Epilogue epilogue = *plain->epilogue();
  epilogue.scale = {2, -0.5F};
  epilogue.activation = {Activation::Kind::leaky_relu, 0.25F, 0};
  const auto fused = make_normalised_op("ConvTranspose", plain->with_epilogue(epilogue)->attributes(), 3);
  const ConvData judged = judged_by_oracle("ConvTranspose", fused->attributes(), c.inputs);
  const Problem problem(fused, infos_of(c.inputs, c.maybe_constant));
  const OpRunner& runner = op_runner();
  const Kernel& kernel = *kernels_of("ConvTranspose", runner.device()).front();
  CHECK(for_each_call(runner, problem, kernel, 2, [&](const Call& call) {
          compare(run_between_guards(runner, call, c.inputs, call.str())[0], judged, call.candidate.tolerance,
                  call.str());
        }).empty());
}

TEST_CASE("conv_transpose/no_zeros_are_multiplied") {
  // Strides beyond the window: outputs without a tap equal the bias, whatever x contains.
  OpCase c = transposed({1, 1, 2, 2}, {1, 1, 2, 2}, {{"strides", Ints{3, 3}}});
  for (float& value : c.inputs[0].values<float>()) value = std::numeric_limits<float>::infinity();
  for (float& value : c.inputs[1].values<float>()) value = 1;
  const Tensor y = run_op(c)[0];
  const float bias = c.inputs[2].values<float>()[0];
  REQUIRE(y.shape() == Shape{1, 1, 5, 5});
  for (std::int64_t p = 0; p < 5; ++p)
    for (std::int64_t q = 0; q < 5; ++q)
      CHECK(y.values<float>()[static_cast<std::size_t>(p * 5 + q)] ==
            (p == 2 || q == 2 ? bias : std::numeric_limits<float>::infinity()));
}

TEST_CASE("conv_transpose/phases") {
  // 4 taps, stride 2, dilation 1: both phases read two taps of the same two elements, in one convolution.
  const auto even = phase_groups({.in = 5, .taps = 4, .stride = 2, .dilation = 1, .pad = 1, .out = 10});
  REQUIRE(even.size() == 1);
  CHECK(even[0].taps == 2);
  CHECK(even[0].phases.size() == 2);
  CHECK(even[0].pad_begin == 1);
  CHECK(even[0].pad_end == 1);
  CHECK(even[0].runs.size() == 2);  // phase 0 begins one position later
  // 3 taps: two windows, without superfluous products.
  const auto odd = phase_groups({.in = 5, .taps = 3, .stride = 2, .dilation = 1, .pad = 0, .out = 11});
  REQUIRE(odd.size() == 2);
  CHECK(odd[0].taps + odd[1].taps == 3);
  // Pads divide evenly: all phases in one copy.
  const auto run = phase_groups({.in = 3, .taps = 16, .stride = 8, .dilation = 1, .pad = 0, .out = 32});
  REQUIRE(run.size() == 1);
  REQUIRE(run[0].runs.size() == 1);
  CHECK(run[0].runs[0].phases == 8);
}

TEST_CASE("conv_transpose/sizes_that_leave_nothing_or_exceed_limits_are_refused") {
  const Shape x{1, 4, 5, 6}, w{4, 2, 3, 3};
  const auto kind = [&](AttributeList attributes) {
    return infer_error(transposed(x, w, std::move(attributes), false));
  };
  CHECK(kind({{"strides", Ints{0, 1}}}) == ErrorKind::invalid_model);
  CHECK(kind({{"dilations", Ints{1, -1}}}) == ErrorKind::invalid_model);
  CHECK(kind({{"output_padding", Ints{-1, 0}}}) == ErrorKind::invalid_model);
  CHECK(kind({{"pads", Ints{9, 0, 9, 0}}}) == ErrorKind::invalid_model);  // no output remains
  CHECK(kind({{"pads", Ints{-1, 0, 0, 0}}}) == ErrorKind::unsupported);
  CHECK(kind({{"strides", Ints{1 << 20, 1}}}) == ErrorKind::unsupported);
  CHECK(kind({{"dilations", Ints{std::numeric_limits<std::int64_t>::max(), 1}}}) == ErrorKind::limit);
  CHECK(kind({{"output_shape", Ints{std::int64_t{1} << 50, 1}}}) == ErrorKind::limit);
  CHECK(kind({{"group", std::int64_t{3}}}) == ErrorKind::invalid_model);
  CHECK(kind({{"kernel_shape", Ints{3, 2}}}) == ErrorKind::invalid_model);
  CHECK(infer_error(transposed(x, {3, 2, 3, 3}, {}, false)) == ErrorKind::invalid_model);
  CHECK(infer_error(transposed({1, 4, 5, 5, 5, 5}, {4, 2, 3, 3, 3, 3}, {}, false)) == ErrorKind::unsupported);
  CHECK_ERROR(make_op(transposed(x, w, {{"strides", Ints{1, 1, 1, 1}}})), unsupported,
              "4-D convolution (strides has 4 entries)");

  // Outputs without a tap equal the bias.
  const OpCase c = transposed(x, {4, 2, 1, 1}, {{"strides", Ints{2, 2}}});
  Epilogue epilogue = *make_op(c)->epilogue();
  const auto refusal = [&](std::vector<int> constant) {
    const Problem problem(make_op(c)->with_epilogue(epilogue), infos_of(c.inputs, constant));
    return kernels_of("ConvTranspose", DeviceKind::cpu).front()->offer(problem, {cpu_profile(1)}).refusal;
  };
  CHECK(refusal({1}).empty());
  epilogue.activation.kind = Activation::Kind::relu;
  CHECK(refusal({1, 2}).empty());
  CHECK(refusal({1}) == "its bias is computed by the network, and activated where no filter reaches");
}

}  // namespace lenslet::test
