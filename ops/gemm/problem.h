#pragma once
// A matrix product in numbers: what Gemm and MatMul mean, and what the same kernels compute of both.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ops/core/kernel.h"

namespace lenslet {

/// y[i,j] = activation(alpha * scale[j] * sum over l of A[i,l] * B[l,j] + beta * C[i,j]), for each product of a batch.
/// A [m,k], B [k,n] and y [m,n] lie row-major without gaps, one matrix after another.
struct MatrixProblem {
  std::int64_t gemm_m = 1, gemm_n = 1, gemm_k = 1;
  bool trans_a = false, trans_b = false;  ///< what lies there is [k,m], or [n,k]
  Shape batch = {};                       ///< of the result: `batch_a` and `batch_b` broadcast
  Shape batch_a = {}, batch_b = {};       ///< how many matrices A and B hold; {}: one, for all products
  bool b_known = false;                   ///< B is a constant
  /// Not 0: a row of A is an image as nhwc bytes lie, so many channels of a pixel together, while B's rows stand
  /// channel by channel. Known B only.
  std::int64_t channels = 0;
  float alpha = 1, beta = 1;
  std::vector<float> scale = {};  ///< n factors; empty: 1
  bool c = false;
  std::int64_t c_row = 0, c_col = 0;  ///< C[i,j] lies at i * c_row + j * c_col, for all products alike
  Activation activation = {};
  Shape y = {};  ///< the result's shape as the operator names it

  std::int64_t a_floats() const { return gemm_m * gemm_k; }  ///< of one matrix
  std::int64_t b_floats() const { return gemm_k * gemm_n; }
  std::int64_t y_floats() const { return gemm_m * gemm_n; }
  /// Column 0 of A meets row 0 of B, the next column that which is rows_apart() below, from the end on to the top
  /// again: a division an element would take as long as all else that is done to it.
  std::int64_t rows_apart() const { return channels == 0 ? 1 : gemm_k / channels; }
  std::int64_t next_row(std::int64_t row, std::int64_t apart) const {
    return row + apart < gemm_k ? row + apart : row + apart - gemm_k + 1;
  }
  /// Is B multiplied by something before it is multiplied with A?
  bool scales() const { return alpha != 1 || !scale.empty(); }
  /// An element of column j of B times alpha and scale, multiplied in double.
  double scaled_exactly(float value, std::int64_t j) const {
    const double factor = scale.empty() ? 1.0 : double{scale[static_cast<std::size_t>(j)]};
    return double{value} * double{alpha} * factor;
  }
  float scaled(float value, std::int64_t j) const { return static_cast<float>(scaled_exactly(value, j)); }
};

/// Products whose operands lie evenly apart; counted in matrices.
struct ProductRun {
  std::int64_t y = 0, a = 0, b = 0;  ///< of the first product
  std::int64_t a_step = 0, b_step = 0;
  std::int64_t count = 1;
};
/// All products in the order of the result, as few runs as they make: broadcasting skips and repeats matrices. None
/// where the result is empty.
std::vector<ProductRun> product_runs(const MatrixProblem& problem);

/// The product that MatMul makes of A and B, or of one whose last two axes are swapped. Error(invalid_model) where they
/// do not multiply.
MatrixProblem matmul_problem(const Shape& a, const Shape& b, bool trans_a = false, bool trans_b = false);
/// Which axes of MatMul's result follow those of input `a` and input `b`; the others are parameters.
AxisMap matmul_axes(std::span<const InputInfo> inputs, std::size_t a, std::size_t b, const Shape& y);

/// An operator that is a matrix product. Inputs: A, B, C (optional).
class MatrixOp : public Op {
 public:
  static constexpr std::size_t a = 0, b = 1, c = 2;

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const final;
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const final;
  /// The problem that these inputs pose. Error(invalid_model) where their shapes contradict each other.
  virtual MatrixProblem problem(std::span<const InputInfo> inputs) const = 0;
};

/// A kernel of both operators. Known weights, which are float32, in a blob.
class MatrixKernel : public Kernel {
 public:
  DTypeSet types() const override { return dtypes<Types<float>>; }
  Offer offer(const Problem& node, const Target& target) const final;
  std::optional<BlobSpec> blob(const Problem& node, const Candidate& candidate) const final;
  void prepare(const Problem& node, const Candidate& candidate, std::span<std::byte> blob) const final;

 protected:
  /// Of the candidate: configuration, workspace, tolerance, needs_cublas; an estimate where it has a better one than
  /// what bounds the product.
  virtual Offer plan(const Problem& node, const MatrixProblem& problem, const Target& target) const = 0;
  /// How one matrix of B lies in a candidate's blob. No bytes: run() reads B itself, as it does when B is not known.
  struct Weights {
    std::string_view form = {};
    std::int64_t bytes = 0;
  };
  virtual Weights weights(const Problem& node, const MatrixProblem& problem, std::string_view config) const = 0;
  /// Writes it, scaled.
  virtual void write_weights(const Problem& node, const MatrixProblem& problem, std::string_view config, const float* b,
                             std::byte* to) const = 0;
};

inline MatrixProblem matrix_problem(const Problem& node) { return node.as<MatrixOp>().problem(node.inputs()); }

const Kernel& few_rows_product();  ///< few_rows.cpp: "few_rows", on the CPU
const Kernel& packed_product();    ///< packed_product.cpp: "packed", on the CPU
const Kernel& cuda_product();      ///< cuda_product.cpp: "gemm", on CUDA; offers in builds without it, too

}  // namespace lenslet
