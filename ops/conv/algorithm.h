#pragma once
// A convolution algorithm: a kernel of Conv. To add one: a file in ops/conv/cpu or ops/conv/cuda, and a row in
// rows.cpp.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/conv/problem.h"
#include "ops/core/conv_operands.h"
#include "ops/core/kernel.h"
#include "ops/core/row_kernel.h"
#include "ops/core/tilings.h"

namespace lenslet {

/// Filters as loaded, [K][C/groups][R][S] row-major, not owned. `scale` (may be null) has one factor a filter (a folded
/// BatchNormalization): the effective weight is w * scale[k], multiplied in double.
struct ConvFilter {
  const void* w = nullptr;
  const float* scale = nullptr;
  std::int64_t gemm_k = 0;  ///< C/groups * R * S
  DType type = DType::f32;  ///< ConvProblem::filter_type

  /// The elements as loaded; T is `type`.
  template <typename T>
  const T* elements() const {
    return static_cast<const T*>(w);
  }
  double factor(std::int64_t k) const { return scale == nullptr ? 1.0 : static_cast<double>(scale[k]); }
  /// Effective weight `i` of filter k, i counting c, r, s: exact, and (below) rounded to float32.
  double exact_weight(std::int64_t k, std::int64_t i) const {
    const std::int64_t at = k * gemm_k + i;
    if (type == DType::i8) return elements<std::int8_t>()[at] * factor(k);
    if (type == DType::u8) return elements<std::uint8_t>()[at] * factor(k);
    return static_cast<double>(elements<float>()[at]) * factor(k);
  }
  float weight(std::int64_t k, std::int64_t i) const { return static_cast<float>(exact_weight(k, i)); }
};

/// Arguments of one call. Pointers are 64-byte aligned arena memory (CUDA: device memory, 256 bytes, a part 16). Bias
/// and residual may also be the model's constants, unaligned. x, residual and y are in the algorithm's format.
struct ConvRun : ConvOperands {
  bool filter_made_now = false;  ///< CUDA: packed by an earlier kernel of this run; wait_for_previous() first
  std::int64_t y_pixel = 0;      ///< y_pixel()
  std::span<std::byte> workspace = {};
  ThreadPool* pool = nullptr;           ///< CPU algorithms
  const cuda::Context* cuda = nullptr;  ///< CUDA algorithms: queue on its stream and return
};

/// nhwc: pixel pitch of y in elements: K, or more if ConvCandidate::pitched.
inline std::int64_t y_pixel(std::int64_t k, const KernelRun& run) {
  return std::max(k, run.outputs[0].format().pixel_pitch);
}

/// For transform() and pack() of float32.
inline std::span<float> as_floats(std::span<std::byte> bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

/// An algorithm bound to a problem.
class BoundConv : public BoundKernel {
 public:
  explicit BoundConv(const ConvProblem& p, std::size_t workspace_bytes = 0)
      : problem(p), workspace_bytes_(workspace_bytes) {}
  std::size_t workspace_bytes() const final { return workspace_bytes_; }
  void run(const KernelRun& run) const final;

 protected:
  virtual void compute(const ConvRun& run) const = 0;
  ConvRun conv_run(const KernelRun& run) const;

  const ConvProblem problem;  ///< without pads if x is explicitly padded: x is that much larger

 private:
  const std::size_t workspace_bytes_;
};

/// An algorithm that can compute single rows, in nhwc, without workspace.
class BoundRowConv : public BoundConv, private RowKernel {
 public:
  using BoundConv::BoundConv;
  const RowKernel* row_kernel() const final { return has_rows() ? this : nullptr; }

 protected:
  virtual bool has_rows() const { return true; }
  /// compute() for these rows of run.x() and run.y().
  virtual void compute_rows(const ConvRun& run, const ImageRows& rows) const = 0;
  RowShape x_shape() const final { return {problem.n, problem.h, problem.w * problem.c}; }
  RowShape y_shape() const final { return {problem.n, problem.p, problem.q * problem.k}; }

 private:
  Rows reads(Rows rows) const final;
  void run_rows(const KernelRun& run, const ImageRows& rows) const final { compute_rows(conv_run(run), rows); }
};

/// How filters that the network computes are handled: refused; read as they are, [K][C/groups][R][S]; or packed in each
/// run.
enum class ComputedFilters : std::uint8_t { refused, as_loaded, packed };

/// What an algorithm says of a Candidate; ConvAlgorithm fills in the rest.
struct ConvCandidate {
  Format format = formats::nhwc;  ///< of residual and y, and of x unless
  std::optional<Format> x_format = {};
  bool pitched = false;           ///< y may be a channel slice of a larger tensor (no residual)
  bool explicit_padding = false;  ///< wants x with its zero pads, as its format's halo
  std::string config = {};
  double estimated_us = 0;  ///< of the algorithm alone
  double tolerance = 0;
  bool needs_cublas = false;
  bool waits_for_weights = false;  ///< as Candidate's
};

/// Stateless, one static instance each. By default it takes 4-D inputs and constant filters.
class ConvAlgorithm : public Kernel {
 public:
  /// Types of residual and y (ConvProblem::storage), and of x unless reads_float32().
  DTypeSet types() const override { return dtypes<Types<float>>; }
  Offer offer(const Problem& problem, const Target& target) const final;
  std::vector<Candidate> all_candidates(const Problem& problem, const Target& target) const final;
  std::optional<BlobSpec> blob(const Problem& problem, const Candidate& candidate) const final;
  void prepare(const Problem& problem, const Candidate& candidate, std::span<std::byte> blob) const final;
  std::unique_ptr<const BoundKernel> bind(const Binding& binding) const final;

 protected:
  /// Reason of refusal, or nothing. Gets the problem with implicit pads, as candidate() does.
  virtual std::optional<std::string> refuse(const ConvProblem& problem, const Target& target) const = 0;
  virtual ConvCandidate candidate(const ConvProblem& problem, const Target& target) const = 0;
  /// Of all configurations, by the estimate that candidate() decides by. Empty: there is candidate()'s alone.
  virtual std::vector<ConvCandidate> candidates(const ConvProblem&, const Target&) const { return {}; }
  /// For candidates(): those of the tilings, by us(tiling).
  template <typename Tiling, typename Us, typename CandidateOf>
  static std::vector<ConvCandidate> candidates_of(std::vector<Tiling> tilings, const Us& us,
                                                  const CandidateOf& candidate_of) {
    std::vector<ConvCandidate> candidates;
    for (const Tiling& tiling : by_estimate(std::move(tilings), us)) candidates.push_back(candidate_of(tiling));
    return candidates;
  }
  static std::vector<ConvCandidate> by_time(std::vector<ConvCandidate> all) {
    return by_estimate(std::move(all), [](const ConvCandidate& one) { return one.estimated_us; });
  }
  /// Further refusals where the filters are constant.
  virtual std::optional<std::string> refuse_known(const ConvProblem&) const { return std::nullopt; }
  /// The type of the filters as loaded, and of the accumulators, which the bias has (float32 beside float32 filters).
  virtual DType filter_type() const { return DType::f32; }
  virtual DType accumulator_type() const { return DType::f32; }
  /// Whether it can fuse this max pooling (ConvProblem::max_pool), with this activation.
  virtual bool pools(const ConvProblem&) const { return false; }
  /// Whether it reads a float32 x where y has its own type.
  virtual bool reads_float32() const { return false; }
  /// Whether it takes computed filters and 1-D inputs.
  virtual bool takes_anything() const { return false; }
  virtual ComputedFilters computed_filters() const {
    return takes_anything() ? ComputedFilters::as_loaded : ComputedFilters::refused;
  }

  /// Size of the packed filters (by default as loaded), and what identifies the packing besides kernel, problem and
  /// constants (vector width, padded rows).
  struct FilterForm {
    std::int64_t elements = 0;
    std::string form = {};
    std::size_t element_bytes = sizeof(float);

    std::size_t bytes() const { return static_cast<std::size_t>(elements) * element_bytes; }
  };
  virtual FilterForm filter_form(const ConvProblem& problem, std::string_view config) const;
  virtual void transform(const ConvProblem& problem, std::string_view config, const ConvFilter& filter,
                         std::span<std::byte> to) const;
  /// ComputedFilters::packed: bytes of scratch for pack() with `threads` threads.
  virtual std::size_t packing_bytes(const ConvProblem& problem, int threads) const;
  /// ComputedFilters::packed: transform() of run.filter() on run.pool or run.cuda. Allocates nothing.
  virtual void pack(const ConvProblem& problem, const ConvRun& run, std::span<std::byte> to, std::byte* scratch) const;
  /// `problem` as BoundConv stores it.
  virtual std::unique_ptr<const BoundKernel> bind_conv(const ConvProblem& problem, std::string_view config,
                                                       const DeviceProfile& device) const = 0;

 private:
  Candidate complete(const Problem& node, const ConvProblem& problem, const ConvCandidate& of,
                     const Target& target) const;

  friend class BoundPacking;
};

}  // namespace lenslet
