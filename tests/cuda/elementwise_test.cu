#include "runtime/base/cuda/elementwise.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "runtime/base/cuda/buffer.h"
#include "runtime/base/cuda/stream.h"
#include "tests/cuda/skip.h"

namespace lenslet {
namespace {

constexpr std::int64_t guard = 64;  // floats before and after the output that must not change
constexpr std::uint32_t poison = 0x7fc0dead;
constexpr float infinity = std::numeric_limits<float>::infinity();

struct Case {
  std::int64_t count;
  int x_offset, y_offset;  // in floats past a 256-byte boundary
  float scale, low, high;
  bool in_place;
};

std::vector<float> random_values(std::int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

bool is_poison(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits == poison;
}

/// The definition, in double. The kernel's product is rounded to float once: half a ulp of the exact product.
void check_against_reference(const Case& c, const std::vector<float>& x, const float* y) {
  for (std::int64_t i = 0; i < c.count; ++i) {
    const double exact = static_cast<double>(x[static_cast<std::size_t>(i)]) * c.scale;
    const double expected = std::fmin(std::fmax(exact, static_cast<double>(c.low)), static_cast<double>(c.high));
    const double error = std::fabs(y[i] - expected);
    // Written so that a NaN left in the output fails, too.
    if (!(error <= std::fabs(expected) * 6e-8)) {
      FAIL_CHECK("count " << c.count << " x+" << c.x_offset << " y+" << c.y_offset << " in place " << c.in_place
                          << ": y[" << i << "] is " << y[i] << ", expected " << expected);
      return;
    }
  }
}

void run_case(const Case& c, const cuda::Stream& stream, unsigned seed) {
  CAPTURE(c.count);
  CAPTURE(c.x_offset);
  CAPTURE(c.y_offset);
  const std::vector<float> x = random_values(c.count, seed);
  const auto total = static_cast<std::size_t>(c.count + 2 * guard + 4);
  const auto count = static_cast<std::size_t>(c.count);
  std::vector<float> host(total);
  for (float& value : host) std::memcpy(&value, &poison, sizeof poison);
  cuda::DeviceBuffer<float> out(total), in(count + 4);
  float* y = out.data() + guard + c.y_offset;
  CUDA_CHECK(cudaMemcpyAsync(out.data(), host.data(), out.bytes(), cudaMemcpyHostToDevice, stream.get()));
  float* from = c.in_place ? y : in.data() + c.x_offset;
  CUDA_CHECK(cudaMemcpyAsync(from, x.data(), count * sizeof(float), cudaMemcpyHostToDevice, stream.get()));
  cuda::clip_scale(from, y, c.count, c.scale, c.low, c.high, stream.get());
  CUDA_CHECK(cudaMemcpyAsync(host.data(), out.data(), out.bytes(), cudaMemcpyDeviceToHost, stream.get()));
  stream.synchronize();
  const auto begin = static_cast<std::size_t>(guard + c.y_offset);
  std::size_t overwritten = 0;
  for (std::size_t i = 0; i < total; ++i)
    if ((i < begin || i >= begin + count) && !is_poison(host[i])) ++overwritten;
  CHECK(overwritten == 0);
  check_against_reference(c, x, host.data() + begin);
}

TEST_CASE("cuda/elementwise/clip_scale_sizes_and_alignments") {
  if (!test::have_device("cuda/elementwise/clip_scale_sizes_and_alignments")) return;
  const cuda::Stream stream;
  unsigned seed = std::random_device{}();
  MESSAGE("seed " << seed);
  for (const std::int64_t count : {0, 1, 2, 3, 4, 5, 7, 8, 255, 1023, 1024, 1025, 4095, 4096, 4099, (1 << 20) + 3})
    for (int x_offset = 0; x_offset < 4; ++x_offset)
      for (int y_offset = 0; y_offset < 4; ++y_offset) {
        run_case({count, x_offset, y_offset, 1, 0, infinity, false}, stream, seed++);   // Relu
        run_case({count, x_offset, y_offset, 0.37f, -1, 1.5f, false}, stream, seed++);  // Clip and scale
        if (x_offset == y_offset)
          run_case({count, x_offset, y_offset, 1, 0, 6, true}, stream, seed++);  // Relu6 in place
      }
}

TEST_CASE("cuda/elementwise/clip_scale_special_values") {
  if (!test::have_device("cuda/elementwise/clip_scale_special_values")) return;
  const cuda::Stream stream;
  const std::vector<float> x{std::nanf(""), infinity, -infinity, -0.0f, 1e-42f, -1e-42f, 3.0e38f, 5};
  cuda::DeviceBuffer<float> device(x.size());
  CUDA_CHECK(cudaMemcpyAsync(device.data(), x.data(), device.bytes(), cudaMemcpyHostToDevice, stream.get()));
  cuda::clip_scale(device.data(), device.data(), static_cast<std::int64_t>(x.size()), 1, 0, 6, stream.get());
  std::vector<float> y(x.size());
  CUDA_CHECK(cudaMemcpyAsync(y.data(), device.data(), device.bytes(), cudaMemcpyDeviceToHost, stream.get()));
  stream.synchronize();
  CHECK(std::isnan(y[0]));  // as ONNX Relu and Clip: NaN goes through
  CHECK(y[1] == 6);
  CHECK(y[2] == 0);
  CHECK(y[3] == 0);
  CHECK(y[4] == 1e-42f);  // subnormals are kept
  CHECK(y[5] == 0);
  CHECK(y[6] == 6);
  CHECK(y[7] == 5);
}

}  // namespace
}  // namespace lenslet
