// Elementwise kernels with every tail length and every operand alignment, which tests/ops does not cover.

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/cuda/session.h"
#include "base/cuda/upload.h"
#include "ops/elementwise/binary_cuda.h"
#include "ops/elementwise/unary_cuda.h"
#include "tests/cuda/device_block.h"
#include "tests/cuda/device_case.h"
#include "tests/cuda/random_values.h"

namespace lenslet::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t counts[] = {1, 2, 3, 4, 5, 7, 8, 511, 512, 2047, 2048, 2051, 4099, (1 << 20) + 3};
constexpr std::int64_t slack = 4;  // floats of a block around the tensor

/// `count` floats at an offset of `offset` floats from a 256-byte boundary; the rest of the block stays poisoned.
class Floats {
 public:
  Floats(std::int64_t count, std::int64_t offset)
      : count_(count), offset_(offset), block_(static_cast<std::size_t>(count + slack) * sizeof(float)) {}
  Floats(const std::vector<float>& values, std::int64_t offset)
      : Floats(static_cast<std::int64_t>(values.size()), offset) {
    write(values);
  }

  void write(const std::vector<float>& values) {
    cuda::copy_to_device(data(), values.data(), values.size() * sizeof(float));
  }
  Tensor tensor() { return Tensor::view(DType::f32, {count_}, data()); }

  /// The first index that differs from `expected` in any bit; -1 if all agree and nothing around them was written.
  std::int64_t first_wrong(const std::vector<float>& expected) {
    const std::vector<std::byte> bytes = block_.read();
    const auto begin = static_cast<std::size_t>(offset_) * sizeof(float);
    for (std::size_t i = 0; i < expected.size(); ++i)
      if (std::memcmp(bytes.data() + begin + i * sizeof(float), &expected[i], sizeof(float)) != 0)
        return static_cast<std::int64_t>(i);
    const std::size_t end = begin + expected.size() * sizeof(float);
    bool kept = block_.intact();
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if (i < begin || i >= end) kept = kept && bytes[i] == std::byte{0xFF};
    return kept ? -1 : count_;
  }

 private:
  float* data() { return reinterpret_cast<float*>(block_.data()) + offset_; }

  std::int64_t count_, offset_;
  DeviceBlock block_;
};

DEVICE_CASE("cuda/elementwise/one_operand_lengths_and_alignments") {
  const cuda::Session session(0);
  const float low = -1, high = 1.5F;
  const auto clip = [&](const Tensor& from, Tensor& to) {
    cuda::clip(session.context(), {nullptr, &low}, {nullptr, &high}, DType::f32, from.data(), to.data(), to.elems());
  };
  unsigned seed = 1;
  for (const std::int64_t count : counts)
    for (std::int64_t x_offset = 0; x_offset < 4; ++x_offset)
      for (std::int64_t y_offset = 0; y_offset < 4; ++y_offset) {
        const std::vector<float> values = random_values(count, seed++, 4);
        std::vector<float> expected;
        for (const float value : values) expected.push_back(std::fmin(std::fmax(value, -1.0F), 1.5F));
        Floats x(values, x_offset), y(count, y_offset);
        Tensor to = y.tensor();
        clip(x.tensor(), to);
        CAPTURE(count);
        CAPTURE(x_offset);
        CAPTURE(y_offset);
        session.stream().synchronize();
        CHECK(y.first_wrong(expected) == -1);
        if (x_offset != y_offset) continue;
        y.write(values);
        clip(to, to);
        session.stream().synchronize();
        CHECK(y.first_wrong(expected) == -1);
      }
}

DEVICE_CASE("cuda/elementwise/two_operands_lengths_and_alignments") {
  const cuda::Session session(0);
  unsigned seed = 1000;
  for (const std::int64_t count : counts)
    for (const std::int64_t a_offset : {0, 1})
      for (const std::int64_t b_offset : {0, 2})
        for (const std::int64_t y_offset : {0, 3})
          for (const bool scalar : {false, true}) {
            const std::vector<float> a = random_values(count, seed++, 4),
                                     b = random_values(scalar ? 1 : count, seed++, 4);
            std::vector<float> expected;
            for (std::size_t i = 0; i < a.size(); ++i) expected.push_back(a[i] - b[scalar ? 0 : i]);
            Floats from_a(a, a_offset), from_b(b, b_offset), y(count, y_offset);
            Tensor to = y.tensor();
            const Tensor first = from_a.tensor(), second = from_b.tensor();
            const BroadcastLoops::Operand operands[] = {{&to.shape()}, {&first.shape()}, {&second.shape()}};
            const BroadcastLoops loops(to.shape(), formats::nchw, operands);
            cuda::binary(session.context(), BinaryKind::Sub, DType::f32, loops, first.data(), second.data(), to.data());
            session.stream().synchronize();
            CAPTURE(count);
            CAPTURE(a_offset);
            CAPTURE(b_offset);
            CAPTURE(y_offset);
            CAPTURE(scalar);
            CHECK(y.first_wrong(expected) == -1);
          }
}

DEVICE_CASE("cuda/elementwise/special_values") {
  const cuda::Session session(0);
  const std::vector<float> x{std::nanf(""), infinity, -infinity, -0.0F, 1e-42F, -1e-42F, 3.0e38F, 5};
  const auto run = [&](UnaryFunction f) {
    DeviceBlock block(x.data(), x.size() * sizeof(float));
    Tensor tensor = Tensor::view(DType::f32, {static_cast<std::int64_t>(x.size())}, block.data());
    cuda::unary(session.context(), f, DType::f32, tensor.data(), tensor.data(), tensor.elems());
    session.stream().synchronize();
    const std::vector<std::byte> bytes = block.read();
    std::vector<float> y(x.size());
    std::memcpy(y.data(), bytes.data(), bytes.size());
    return y;
  };
  const std::vector<float> rectified = run({UnaryKind::Relu, 0, 0});
  CHECK(std::isnan(rectified[0]));
  CHECK(std::vector<float>(rectified.begin() + 1, rectified.end()) ==
        std::vector<float>{infinity, 0, 0, 1e-42F, 0, 3.0e38F, 5});  // subnormal numbers are kept
  const std::vector<float> silu = run({UnaryKind::SiLU, 0, 0});
  CHECK(std::isnan(silu[0]));
  CHECK(silu[1] == infinity);
  CHECK(silu[2] == 0);
  CHECK(silu[6] == 3.0e38F);
  for (const UnaryRow& row : unary_table) {
    CAPTURE(std::string(row.name));
    CHECK(std::isnan(run({static_cast<UnaryKind>(&row - unary_table), 0.5F, 0.25F})[0]));
  }
}

}  // namespace
}  // namespace lenslet::test
