// im2col and a cuBLAS GEMM, NCHW. A column is one output pixel's window, [C/groups][R][S] with zeros outside of the
// image; Y[K/groups, P*Q] = W[K/groups, C/groups*R*S] * columns is the output in place. Inputs that already have that
// form (1x1, stride 1, no pads) are not unfolded.

#include "ops/conv/cuda/im2col_gemm.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/cuda/cublas.h"
#include "base/cuda/launch.h"
#include "ops/conv/cuda/device_problem.h"
#include "ops/core/activation.cuh"

namespace lenslet::cuda {
namespace {

constexpr int threads = 256;

using namespace im2col_gemm_sizes;

struct Unfold : DeviceProblem<> {
  using DeviceProblem::DeviceProblem;
  const float* x;
  float* columns;     ///< [images][C][R][S][rows*Q]
  int first_row;      ///< output row
  int pixels, items;  ///< rows*Q; images*C*pixels, what a chunk keeps below 2^24
};

/// One thread an output pixel and channel: decodes its position once and copies R*S values. Writes coalesce, and so do
/// reads at stride 1.
__global__ void __launch_bounds__(threads) unfold(const __grid_constant__ Unfold u) {
  wait_for_previous();
  const int item = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  if (item >= u.items) return;
  const int pixel = item % u.pixels, plane = item / u.pixels;  // plane: image * C + channel
  const int top = (u.first_row + pixel / u.q) * u.stride_h - u.pad_top, left = pixel % u.q * u.stride_w - u.pad_left;
  const float* x = u.x + static_cast<std::int64_t>(plane) * u.height * u.width;
  float* to = u.columns + static_cast<std::int64_t>(plane) * u.r * u.s * u.pixels + pixel;
  for (int r = 0; r < u.r; ++r) {
    const int row = top + r * u.dilation_h;
    const bool inside = row >= 0 && row < u.height;
    const float* line = x + static_cast<std::int64_t>(row) * u.width;
    for (int s = 0; s < u.s; ++s, to += u.pixels) {
      const int column = left + s * u.dilation_w;
      *to = inside && column >= 0 && column < u.width ? line[column] : 0.0f;
    }
  }
}

struct Finish {
  const float *bias = nullptr, *residual = nullptr;  ///< or null
  float* y = nullptr;
  std::int64_t plane, channels, items;  ///< plane: items of a channel
  DeviceActivation activation;
};

/// y = activation(y + bias + residual) in place. An item is four elements of one channel where P*Q allows it.
template <typename Vector, typename Index>
__global__ void __launch_bounds__(threads) finish(const __grid_constant__ Finish f) {
  wait_for_previous();
  const Index item = static_cast<Index>(blockIdx.x) * threads + threadIdx.x;
  if (item >= static_cast<Index>(f.items)) return;
  Vector value = reinterpret_cast<const Vector*>(f.y)[item];
  const Index channel = item / static_cast<Index>(f.plane) % static_cast<Index>(f.channels);
  const float shift = f.bias == nullptr ? 0.0f : f.bias[channel];
  Vector added{};
  if (f.residual != nullptr) added = reinterpret_cast<const Vector*>(f.residual)[item];
  if constexpr (sizeof(Vector) == sizeof(float)) {
    value += shift + added;
  } else {
    value.x += shift + added.x;
    value.y += shift + added.y;
    value.z += shift + added.z;
    value.w += shift + added.w;
  }
  reinterpret_cast<Vector*>(f.y)[item] = f.activation(value);
}

class BoundIm2colGemm final : public BoundConv {
 public:
  BoundIm2colGemm(const ConvProblem& p, const Chunks& chunks, Numerics::Multiply multiply)
      : BoundConv(p, column_bytes(p, chunks)), chunks_(chunks), multiply_(multiply), unfold_(p) {
    const bool quads = p.p * p.q % 4 == 0;
    finish_.plane = p.p * p.q / (quads ? 4 : 1);
    finish_.channels = p.k;
    finish_.items = p.n * p.k * finish_.plane;
    finish_.activation = DeviceActivation(p.activation);
    if (finish_.items <= std::numeric_limits<int>::max())  // with a block added it still fits an unsigned
      finish_kernel_ = quads ? finish<float4, unsigned> : finish<float, unsigned>;
    else
      finish_kernel_ = quads ? finish<float4, std::uint64_t> : finish<float, std::uint64_t>;
  }

 private:
  void compute(const ConvRun& run) const override {
    const ConvProblem& p = problem;
    if (p.n == 0) return;
    // cuBLAS overwrites y: a residual in place is added by the product (beta = 1).
    const bool in_place = run.residual<float>() == run.y<float>();
    if (input_is_columns(p)) {
      multiply(run, run.x<float>(), p.p * p.q, 0, p.n, 0, in_place);
    } else {
      auto* const columns = reinterpret_cast<float*>(run.workspace.data());
      for (std::int64_t image = 0; image < p.n; image += chunks_.images)
        for (std::int64_t row = 0; row < p.p; row += chunks_.rows) {
          const std::int64_t images = std::min(chunks_.images, p.n - image), rows = std::min(chunks_.rows, p.p - row);
          unfold_rows(run, image, images, row, rows, columns);
          multiply(run, columns, rows * p.q, image, images, row * p.q, in_place);
        }
    }
    Finish call = finish_;
    call.bias = run.bias<float>();
    call.residual = in_place ? nullptr : run.residual<float>();
    call.y = run.y<float>();
    if (call.bias == nullptr && call.residual == nullptr && p.activation.kind == Activation::Kind::none) return;
    launch(*run.cuda, finish_kernel_, blocks_for(call.items, threads), threads, 0, call);
  }

  void unfold_rows(const ConvRun& run, std::int64_t image, std::int64_t images, std::int64_t row, std::int64_t rows,
                   float* columns) const {
    Unfold call = unfold_;
    call.x = run.x<float>() + image * problem.c * problem.h * problem.w;
    call.columns = columns;
    call.first_row = static_cast<int>(row);
    call.pixels = static_cast<int>(rows * problem.q);
    call.items = static_cast<int>(images * problem.c * rows * problem.q);
    launch(*run.cuda, unfold, blocks_for(call.items, threads), threads, 0, call);
  }

  /// Output pixels [first, first + width) of images [image, image + images) from columns
  /// [images][groups][C/groups*R*S][width]. Several images always come with all pixels.
  void multiply(const ConvRun& run, const float* columns, std::int64_t width, std::int64_t image, std::int64_t images,
                std::int64_t first, bool accumulate) const {
    const ConvProblem& p = problem;
    const std::int64_t gemm_k = p.group_c() * p.r * p.s, pixels = p.p * p.q, group_k = p.group_k();
    float* const y = run.y<float>() + image * p.k * pixels + first;
    const float beta = accumulate ? 1.0f : 0.0f;
    const Cublas& cublas = *run.cuda->cublas;
    if (p.groups == 1) {
      cublas.gemm(p.k, width, gemm_k, {run.filter<float>(), gemm_k, false, 0}, {columns, width, false, gemm_k * width},
                  y, pixels, beta, images, p.k * pixels, multiply_);
      return;
    }
    for (std::int64_t i = 0; i < images; ++i)
      cublas.gemm(group_k, width, gemm_k, {run.filter<float>(), gemm_k, false, group_k * gemm_k},
                  {columns + i * p.groups * gemm_k * width, width, false, gemm_k * width}, y + i * p.k * pixels, pixels,
                  beta, p.groups, group_k * pixels, multiply_);
  }

  Chunks chunks_;
  Numerics::Multiply multiply_;
  Unfold unfold_;
  Finish finish_;
  void (*finish_kernel_)(Finish);
};

}  // namespace

std::unique_ptr<const BoundKernel> bind_im2col_gemm(const ConvProblem& p, const Chunks& chunks,
                                                    Numerics::Multiply multiply) {
  return std::make_unique<BoundIm2colGemm>(p, chunks, multiply);
}

}  // namespace lenslet::cuda
