// LayoutConvert on the runner's device: any two formats, equal to the definition bit by bit, including the padding.

#include "ops/movement/layout_convert.h"
#include "tests/expect_error.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "tests/ops/op_runner.h"

namespace lenslet::test {
namespace {

constexpr DType every_size[] = {DType::u8, DType::f16, DType::f32, DType::i64};

/// Not 0.
std::byte random_byte(std::mt19937& random) { return static_cast<std::byte>(random() % 255 + 1); }

/// Random elements in `format` with random nonzero padding, which conversions must not read.
Tensor random_tensor(DType dtype, const Shape& shape, const Format& format, std::mt19937& random) {
  Tensor plain(dtype, shape), elements(dtype, shape);
  auto* bytes = static_cast<std::byte*>(plain.data());
  for (std::size_t i = 0; i < plain.bytes(); i += 4)
    for (std::uint32_t draw = static_cast<std::uint32_t>(random()), at = 0; at < 4 && i + at < plain.bytes();
         ++at, draw >>= 8)
      bytes[i + at] = static_cast<std::byte>(draw | 1U);  // not 0
  std::memset(elements.data(), 0xFF, elements.bytes());
  Tensor stored = plain.to_format(format);
  const Tensor mask = elements.to_format(format);
  for (std::size_t i = 0; i < stored.bytes(); ++i)
    if (static_cast<const std::byte*>(mask.data())[i] == std::byte{0})
      static_cast<std::byte*>(stored.data())[i] = random_byte(random);
  return stored;
}

void check(const Format& from, const Format& to, DType dtype, const Shape& shape, std::mt19937& random) {
  const OpRunner& runner = op_runner();
  const InputInfo info{.present = true, .type = {dtype, shape}};
  const Problem problem(make_layout_convert(from, to), {&info, 1});
  const Kernel& kernel = *kernels_of("LayoutConvert", runner.device()).front();
  const Tensor x = random_tensor(dtype, shape, from, random);
  // The definition: copies element by element, with zeros elsewhere.
  const Tensor wanted = x.to_format(formats::nchw).to_format(to);

  for (const DeviceProfile& device : runner.profiles(2)) {
    const Offer offer = kernel.offer(problem, {.device = device});
    REQUIRE(offer.candidates.size() == 1);
    const Call call{.problem = problem, .kernel = kernel, .candidate = offer.candidates[0], .device = device};
    CHECK((call.candidate.inputs == std::vector<Format>{from} && call.candidate.outputs == std::vector<Format>{to}));
    const auto bound = kernel.bind({problem, call.candidate, device});
    const auto input = runner.block(x.bytes()), output = runner.block(wanted.bytes());
    input->write(x.data());
    const Tensor inputs[] = {Tensor::view(dtype, shape, input->data(), from)};
    Tensor outputs[] = {Tensor::view(dtype, shape, output->data(), to)};
    const std::string where = fmt::format("{} {} {}", shape.str(), to_string(dtype), call.str());
    const std::vector<std::byte> poison(wanted.bytes(), std::byte{0x5A});
    for (int run = 0; run < 2; ++run) {  // the padding is written in every run
      output->write(poison.data());
      runner.run(*bound, call, {.inputs = inputs, .outputs = outputs, .workspace = {}});
      const std::vector<std::byte> got = output->read();
      const auto* exact = static_cast<const std::byte*>(wanted.data());
      const auto wrong = std::mismatch(got.begin(), got.end(), exact).first - got.begin();
      CHECK_MESSAGE(static_cast<std::size_t>(wrong) == got.size(), where, ": element ",
                    static_cast<std::size_t>(wrong) / dtype_bytes(dtype), " of memory is wrong");
      CHECK_MESSAGE(output->intact(), where, ": bytes around the output were written");
    }
  }
}

Format format(std::string_view text) { return parse_format(text).value(); }

}  // namespace

TEST_CASE("layout_convert/every_size") {
  std::mt19937 random(7);
  // Channels: interleaved ones, fewer than a tile, around 16-byte vectors, around tiles of 32, 64 and 128.
  for (const std::int64_t channels : {1, 2, 3, 4, 5, 7, 15, 16, 24, 32, 33, 48, 63, 64, 65, 128, 130, 144})
    // Pixels: one, odd numbers, whole vectors of every type, whole tiles, more than an interleaving kernel's block.
    for (const Shape& image : {Shape{1, 1}, Shape{1, 7}, Shape{3, 5}, Shape{4, 4}, Shape{5, 9}, Shape{7, 7},
                               Shape{8, 20}, Shape{16, 24}, Shape{33, 31}, Shape{64, 66}})
      for (const std::int64_t n : {1, 3}) {
        // Later images have the first one's layout at an offset.
        if (n * channels * image.elems() > 300000 || (n > 1 && image.elems() > 200)) continue;
        for (const DType dtype : every_size)
          for (const bool to_nhwc : {true, false})
            check(to_nhwc ? formats::nchw : formats::nhwc, to_nhwc ? formats::nhwc : formats::nchw, dtype,
                  Shape{n, channels, image[0], image[1]}, random);
      }
}

TEST_CASE("layout_convert/every_pair_of_formats") {
  std::mt19937 random(8);
  const char* const names[] = {"nchw",         "nhwc",           "nchw8c",  "nhwc4c",         "nhwc+1,2,0,3",
                               "nchw+0,1,2,0", "nchw8c+1,1,1,1", "nhwc12c", "nhwc8c+0,0,3,1", "nhwc+2,0,1,1"};
  for (const char* from : names)
    for (const char* to : names)
      for (const Shape& shape : {Shape{2, 16, 5, 7}, Shape{1, 29, 4, 8}, Shape{3, 3, 6, 1}, Shape{2, 1, 1, 1},
                                 Shape{1, 64, 3, 3}, Shape{2, 5, 0, 3}, Shape{2, 0, 3, 2}})
        for (const DType dtype : every_size) check(format(from), format(to), dtype, shape, random);
}

TEST_CASE("layout_convert/large_enough_for_several_pieces") {
  std::mt19937 random(9);
  for (const char* to : {"nhwc", "nhwc+1,1,2,2", "nchw8c", "nhwc4c+1,0,0,1", "nchw"})
    for (const DType dtype : {DType::u8, DType::f32}) {
      check(formats::nhwc, format(to), dtype, {2, 40, 56, 57}, random);
      check(formats::nchw, format(to), dtype, {2, 40, 56, 57}, random);
      check(format("nchw8c+1,1,1,1"), format(to), dtype, {2, 40, 56, 57}, random);
    }
}

TEST_CASE("layout_convert/estimates") {
  const InputInfo info{.present = true, .type = {DType::f32, {1, 64, 56, 56}}};
  const auto us = [&](const char* to, const DeviceProfile& device) {
    const Problem problem(make_layout_convert(formats::nhwc, format(to)), {&info, 1});
    return kernels_of("LayoutConvert", device.kind)
        .front()
        ->offer(problem, {.device = device})
        .candidates.at(0)
        .estimated_us;
  };
  const double bytes = 4.0 * 64 * 56 * 56, padded = 4.0 * 64 * 58 * 58;
  CHECK(us("nchw", reference_gpu()) == doctest::Approx(1.5 + 2 * bytes / 4.3e6));
  CHECK(us("nhwc+1,1,1,1", reference_gpu()) == doctest::Approx(1.5 + (bytes + padded) / 4.3e6));
  DeviceProfile cpu = cpu_profile(1);
  cpu.bytes_per_us = 15e3;
  cpu.l2_bytes = 1 << 20;
  CHECK(us("nhwc+1,1,1,1", cpu) == doctest::Approx(2 + (bytes + padded) / 15e3));
  cpu.l2_bytes = 2 << 20;  // a small one stays in the caches
  CHECK(us("nhwc+1,1,1,1", cpu) == doctest::Approx(2 + (bytes + padded) / 45e3));
}

TEST_CASE("layout_convert/meaning") {
  const auto op = make_layout_convert(formats::nhwc, format("nchw8c+1,2,0,3"));
  CHECK(to_string(op->attributes()) == "from=nhwc to=nchw8c+1,2,0,3");
  const auto again = make_normalised_op("LayoutConvert", op->attributes(), 1);
  CHECK(to_string(again->attributes()) == to_string(op->attributes()));
  CHECK_ERROR(make_normalised_op("LayoutConvert", {{"from", std::string("nchw")}}, 1), invalid_model,
              "attribute to is \"\"");
  CHECK_ERROR(make_normalised_op("LayoutConvert", {{"from", std::string("nchw")}, {"to", std::string("hwcn")}}, 1),
              invalid_model, "attribute to is \"hwcn\"");
  const InputInfo other_rank{true, {DType::f32, {2, 3, 4}}, nullptr}, image{true, {DType::f32, {2, 3, 4, 5}}, nullptr};
  CHECK_ERROR(op->infer({&other_rank, 1}), invalid_model, "LayoutConvert: input is no 4-D tensor");
  CHECK(op->infer({&image, 1}).at(0) == image.type);
  CHECK_FALSE(op->gives_input_back({&image, 1}));
  CHECK(make_layout_convert(formats::nhwc, formats::nhwc)->gives_input_back({&image, 1}));
}

}  // namespace lenslet::test
