// Number of conv_cases() that CUDA's convolution algorithms accept in each precision, on a Hopper with cuBLAS. Tests on
// a device pass even if an algorithm refuses more than before. Needs no device.

#include <doctest/doctest.h>

#include <array>
#include <map>
#include <string>
#include <string_view>

#include "ops/conv/conv.h"
#include "tests/ops/conv_cases.h"

namespace lenslet::test {
namespace {

constexpr std::array precisions{"fp32", "tf32", "fp16", "bf16"};
using Counts = std::array<int, precisions.size()>;

Counts taken_by(const Kernel& algorithm) {
  DeviceProfile device = reference_gpu();
  device.cublas_reason.clear();
  Counts taken{};
  for (std::size_t i = 0; i < precisions.size(); ++i) {
    const Numerics numerics = parse_numerics(precisions[i]);
    for (const ConvCase& c : conv_cases()) {
      ConvProblem p = c.problem;
      p.storage = p.x_storage = numerics.storage;
      const Tensor w(DType::f32, {p.k, p.group_c(), p.r, p.s});
      taken[i] += algorithm.offer(*pose(p, w), {.device = device, .numerics = numerics}).refusal.empty() ? 1 : 0;
    }
  }
  return taken;
}

}  // namespace

TEST_CASE("conv/cases/each_cuda_algorithm_takes_as_many_as_it_did") {
  const std::map<std::string_view, Counts> expected = {
      {"depthwise", {45, 45, 45, 45}},     {"stem", {0, 20, 20, 20}},
      {"grouped_mma", {0, 0, 17, 17}},     {"grouped_tf32", {0, 19, 0, 0}},
      {"winograd_f4", {31, 31, 0, 0}},     {"winograd_f2", {31, 31, 0, 0}},
      {"winograd_f4_5x5", {7, 7, 0, 0}},   {"winograd_f2_5x5", {7, 7, 0, 0}},
      {"winograd_f2_7x7", {6, 6, 0, 0}},   {"fft", {16, 16, 0, 0}},
      {"few_pixels", {13, 13, 13, 13}},    {"few_filters", {11, 11, 0, 0}},
      {"thin_mma", {0, 0, 15, 15}},        {"wgmma_halo", {0, 73, 73, 73}},
      {"wgmma_gemm", {0, 0, 111, 111}},    {"wgmma_tf32", {0, 111, 0, 0}},
      {"implicit_gemm", {125, 125, 0, 0}}, {"implicit_gemm_nchw", {125, 125, 0, 0}},
      {"mma_gemm", {0, 165, 165, 165}},    {"im2col_gemm", {165, 165, 0, 0}},
      {"direct_tile", {90, 90, 0, 0}},     {"direct_tile_padded", {59, 59, 0, 0}},
      {"direct_pixel", {90, 90, 0, 0}},    {"direct_block", {90, 90, 0, 0}},
      {"direct", {165, 165, 0, 0}},        {"planes", {0, 0, 0, 0}}};
  const auto algorithms = kernels_of("Conv", DeviceKind::cuda);
  CHECK(algorithms.size() == expected.size());
  for (const Kernel* algorithm : algorithms) {
    CAPTURE(std::string(algorithm->name()));
    const Counts taken = taken_by(*algorithm), &wanted = expected.at(algorithm->name());
    for (std::size_t i = 0; i < precisions.size(); ++i)
      CHECK_MESSAGE(taken[i] == wanted[i], std::string(precisions[i]));
  }
}

}  // namespace lenslet::test
