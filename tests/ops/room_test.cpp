// Formats with padding channels (aligned_nhwc): the operators that accept them on CUDA. Needs no device; check_op()
// checks results with NaN in the padding channels in the other tests.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/aligned_format.h"
#include "ops/core/choose.h"
#include "ops/core/kernel.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/op_runner.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Ints = std::vector<std::int64_t>;

Tensor halves(const Shape& shape) { return random_f32(shape, 1).to_dtype(DType::f16); }

/// "nhwc/104,nhwc -> nhwc/104" for the candidate with padded pixels, "" if there is none.
std::string padded(const OpCase& c, const char* precision = "fp16") {
  const std::vector<InputInfo> infos = infos_of(c.inputs, c.constant);
  const Problem problem(make_op(c), infos);
  const Kernel& kernel = *kernels_of(c.op, DeviceKind::cuda).front();
  const Offer offer = kernel.offer(problem, {reference_gpu(), parse_numerics(precision)});
  REQUIRE_MESSAGE(offer.refusal.empty(), offer.refusal);
  std::string found;
  for (const Candidate& candidate : offer.candidates) {
    bool any = false;
    std::string text;
    const auto list = [&](const std::vector<Format>& formats) {
      for (std::size_t i = 0; i < formats.size(); ++i) {
        text += (i == 0 ? "" : ",") + to_string(formats[i]);
        any = any || formats[i].pixel_pitch != 0;
      }
    };
    list(candidate.inputs);
    text += " -> ";
    list(candidate.outputs);
    if (any) found += text;
  }
  return found;
}

}  // namespace

TEST_CASE("room/aligned_formats") {
  CHECK(to_string(aligned_nhwc(100, DType::f16)) == "nhwc/104");
  CHECK(to_string(aligned_nhwc(100, DType::f32)) == "nhwc");
  CHECK(to_string(aligned_nhwc(1, DType::bf16)) == "nhwc/8");
  CHECK(to_string(aligned_nhwc(58, DType::f32)) == "nhwc/60");
  CHECK(aligned_channels(17, DType::f16) == 24);
  CHECK(aligned_channels(16, DType::f16) == 16);
  CHECK(may_have_pitch(formats::nhwc));
  CHECK(may_have_pitch(aligned_nhwc(100, DType::f16)));
  CHECK(!may_have_pitch(formats::nchw));
}

TEST_CASE("room/operators_that_keep_channels_apart") {
  const Tensor x = halves({2, 100, 6, 6}), scale = halves({2, 100, 1, 1}), plane = halves({2, 1, 6, 6});
  CHECK(padded({.op = "Relu", .inputs = {x}}) == "nhwc/104 -> nhwc/104");
  CHECK(padded({.op = "Add", .inputs = {x, x}}) == "nhwc/104,nhwc/104 -> nhwc/104");
  CHECK(padded({.op = "Mul", .inputs = {x, scale}}) == "nhwc/104,nhwc/104 -> nhwc/104");
  CHECK(padded({.op = "Mul", .inputs = {x, plane}}) == "nhwc/104,nhwc -> nhwc/104");
  CHECK(padded({.op = "Cast", .attributes = {{"to", std::int64_t{16}}}, .inputs = {x}}) == "nhwc/104 -> nhwc/104");
  // Four floats are 16 bytes: more than may be written after the last pixel.
  CHECK(padded({.op = "Cast", .attributes = {{"to", std::int64_t{1}}}, .inputs = {x}}).empty());
  CHECK(padded({.op = "MaxPool", .attributes = {{"kernel_shape", Ints{2, 2}}}, .inputs = {x}}) ==
        "nhwc/104 -> nhwc/104");
  CHECK(padded({.op = "Max", .inputs = std::vector<Tensor>(8, x)}).ends_with(" -> nhwc/104"));
  CHECK(padded({.op = "Max", .inputs = std::vector<Tensor>(9, x)}).empty());  // a run has space for eight
  // A scalar constant is equal for all channels, a vector is not.
  const Tensor two = Tensor::of<float>(Shape{}, {2}).to_dtype(DType::f16);
  CHECK(padded({.op = "Mul", .inputs = {x, two}, .constant = {1}}) == "nhwc/104,nchw -> nhwc/104");
  CHECK(padded({.op = "Mul", .inputs = {x, halves({1, 100, 1, 1})}, .constant = {1}}).empty());
  // Positions, and whatever counts over channels.
  CHECK(padded({.op = "MaxPool", .attributes = {{"kernel_shape", Ints{2, 2}}}, .inputs = {x}, .outputs = 2}).empty());
  CHECK(padded({.op = "LRN", .attributes = {{"size", std::int64_t{3}}}, .inputs = {x}}).empty());
}

TEST_CASE("room/operators_that_step_over_it") {
  const Tensor x = halves({2, 58, 6, 6}), y = halves({2, 58, 6, 6}), z = halves({2, 16, 6, 6});
  CHECK(padded({.op = "Concat", .attributes = {{"axis", std::int64_t{1}}}, .inputs = {x, y}}) ==
        "nhwc/64,nhwc/64 -> nhwc/120");
  CHECK(padded({.op = "Concat", .attributes = {{"axis", std::int64_t{1}}}, .inputs = {x, z}}) ==
        "nhwc/64,nhwc -> nhwc/80");
  CHECK(padded({.op = "Split", .attributes = {{"axis", std::int64_t{1}}}, .inputs = {x}, .outputs = 2}) ==
        "nhwc/64 -> nhwc/32,nhwc/32");
  CHECK(padded({.op = "ChannelShuffle",
                .domain = "lenslet",
                .opset = 1,
                .attributes = {{"groups", std::int64_t{2}}, {"num_outputs", std::int64_t{2}}},
                .inputs = {x, y},
                .outputs = 2}) == "nhwc/64,nhwc/64 -> nhwc/64,nhwc/64");
  // A single pixel has no padding.
  CHECK(padded({.op = "GlobalAveragePool", .inputs = {x}}) == "nhwc/64 -> nhwc");
}

TEST_CASE("room/none_in_float32") {
  const Tensor x = random_f32({2, 58, 6, 6}, 1);
  CHECK(padded({.op = "Relu", .inputs = {x}}, "fp32").empty());
  CHECK(padded({.op = "Relu", .inputs = {x}}, "fp16").empty());
  CHECK(padded({.op = "Relu", .inputs = {x}}, "tf32") == "nhwc/60 -> nhwc/60");
  CHECK(padded({.op = "Relu", .inputs = {halves({2, 64, 6, 6})}}).empty());
}
