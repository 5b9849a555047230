#pragma once
// Kernels of windowed pooling.

#include <cstdint>
#include <vector>

#include "base/dtypes.h"
#include "ops/pool/pool.h"

namespace lenslet {

/// A maximum over a NaN is NaN. lp: the root of the sum of |x|^p, p being PoolProblem::norm.
enum class PoolKind : std::uint8_t { max, average, average_with_pads, lp };
/// Element types of a maximum; averages and norms are float only.
using PoolTypes = Types<float, std::int8_t, std::uint8_t>;

// Vectorised over channels (nhwc, 2-D) or along a line (nchw); norms of p 1 and 2.

/// Pixel strides in elements: the channels, or more (Format::pixel_pitch).
struct PoolPixels {
  std::int64_t x = 0, y = 0, residual = 0;
};
/// What becomes of an average: y = residual + scale * (average - x), computed in float32 and rounded once. x is the
/// element at the output's own index, since windows have stride 1 and y has x's shape.
struct PoolDifference {
  bool on = false;                 ///< false: y is the average
  const void* scale = nullptr;     ///< [c]; null: 1
  DType scale_dtype = DType::f32;  ///< or, on CUDA, x's
  const void* residual = nullptr;  ///< of x's type, may be x; null: 0
};
/// One output line of an nhwc image: y[out_w][c] from image rows [..][in_w][c]; x is the first row that it reads
/// (PoolAxis::taps); `line` in [0, out_h).
void pool_line_nhwc(PoolKind kind, const PoolProblem& problem, const float* x, std::int64_t line, float* y,
                    const PoolPixels& pixel);

/// The same in bfloat16, folded in float32 and rounded once; no norms.
void pool_line_nhwc(PoolKind kind, const PoolProblem& problem, const BFloat16* x, std::int64_t line, BFloat16* y,
                    const PoolPixels& pixel);

/// The line of an average's difference. `center` and `residual` (may be null): the line of x, and of the residual, at
/// the output's own index. T: float or bfloat16.
template <typename T>
struct PoolDifferenceLine {
  const T* center = nullptr;
  const float* scale = nullptr;
  const T* residual = nullptr;
};
void pool_line_nhwc(PoolKind kind, const PoolProblem& problem, const float* x, std::int64_t line, float* y,
                    const PoolPixels& pixel, const PoolDifferenceLine<float>& difference);
void pool_line_nhwc(PoolKind kind, const PoolProblem& problem, const BFloat16* x, std::int64_t line, BFloat16* y,
                    const PoolPixels& pixel, const PoolDifferenceLine<BFloat16>& difference);
/// The same of averages in nchw: y[i], which holds the average, becomes residual[i] + scale * (y[i] - center[i]) with
/// the scale at `difference.scale`.
void subtract_pool_input(const PoolDifferenceLine<float>& difference, std::int64_t count, float* y);

/// The same of a maximum of 8-bit integers, `dtype`.
void max_line_nhwc(const PoolProblem& problem, DType dtype, const void* x, std::int64_t line, void* y,
                   const PoolPixels& pixel);

/// Pooling in nchw by lines: the lines of each window are folded into one, vectorised, then the taps within it.
struct PoolLines {
  PoolKind kind;
  PoolProblem problem;
  std::int64_t block = 0;           ///< outputs of a line that are made together; 0: one by one, out of whole lines
  std::int64_t scratch_floats = 0;  ///< a thread
  bool pairs = false;               ///< 2x2 windows, stride 2, without pads, and short lines
  std::vector<float> counts;        ///< of an average: taps along a line, by output

  PoolLines(PoolKind of, const PoolProblem& resolved);
};
/// Lines [begin, end) of all of y, numbered through, from x; `scratch` holds scratch_floats. `dtype`, of x and y: f32,
/// or for a maximum one of PoolTypes.
void pool_lines_nchw(const PoolLines& lines, DType dtype, const void* x, std::int64_t begin, std::int64_t end,
                     float* scratch, void* y);

namespace cuda {

struct Context;

/// y [n,c,out] from x [n,c,in], device addresses; `nhwc`: both floats with channels last. `dtype`: one of PoolTypes, or
/// f16 or bf16, folded in float32 and rounded once. `indices` [n,c,out], for a maximum in nchw only: its position in
/// all of x; may be null. `pixel` is used in nhwc. `difference`: of averages.
void pool(const Context& context, PoolKind kind, const PoolProblem& problem, DType dtype, bool nhwc,
          const PoolPixels& pixel, const void* x, void* y, std::int64_t* indices, const PoolDifference& difference);

}  // namespace cuda
}  // namespace lenslet
