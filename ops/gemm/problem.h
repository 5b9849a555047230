#pragma once
// A matrix product in numbers: what Gemm and MatMul mean, and what their shared kernels compute.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ops/core/kernel.h"

namespace lenslet {

/// y[i,j] = activation(alpha * scale[j] * sum over l of A[i,l] * B[l,j] + beta * C[i,j]), for each product of a batch.
/// A [m,k], B [k,n] and y [m,n] are dense row-major, one matrix after another.
struct MatrixProblem {
  std::int64_t gemm_m = 1, gemm_n = 1, gemm_k = 1;
  bool trans_a = false, trans_b = false;  ///< stored as [k,m], [n,k]
  Shape batch = {};                       ///< of the result: `batch_a` and `batch_b` broadcast
  Shape batch_a = {}, batch_b = {};       ///< how many matrices A and B hold; {}: one, for all products
  bool b_known = false;                   ///< B is a constant
  /// If not 0: a row of A is an nhwc image with this many channels per pixel, while B's rows are channel by channel.
  /// Known B only.
  std::int64_t channels = 0;
  float alpha = 1, beta = 1;
  std::vector<float> scale = {};  ///< n factors; empty: 1
  bool c = false;
  std::int64_t c_row = 0, c_col = 0;  ///< C[i,j] is at i * c_row + j * c_col, in all products
  Activation activation = {};
  Shape y = {};  ///< the result's shape as the operator names it

  std::int64_t a_floats() const { return gemm_m * gemm_k; }  ///< of one matrix
  std::int64_t b_floats() const { return gemm_k * gemm_n; }
  std::int64_t y_floats() const { return gemm_m * gemm_n; }
  /// Column 0 of A meets row 0 of B, each next column the row rows_apart() further on, modulo k: a division per element
  /// would take as long as all other work on it.
  std::int64_t rows_apart() const { return channels == 0 ? 1 : gemm_k / channels; }
  std::int64_t next_row(std::int64_t row, std::int64_t apart) const {
    return row + apart < gemm_k ? row + apart : row + apart - gemm_k + 1;
  }
  /// True if B is scaled before the product.
  bool scales() const { return alpha != 1 || !scale.empty(); }
  /// An element of column j of B times alpha and scale, in double.
  double scaled_exactly(float value, std::int64_t j) const {
    const double factor = scale.empty() ? 1.0 : double{scale[static_cast<std::size_t>(j)]};
    return double{value} * double{alpha} * factor;
  }
  float scaled(float value, std::int64_t j) const { return static_cast<float>(scaled_exactly(value, j)); }
};

/// Products with evenly spaced operands; counted in matrices.
struct ProductRun {
  std::int64_t y = 0, a = 0, b = 0;  ///< of the first product
  std::int64_t a_step = 0, b_step = 0;
  std::int64_t count = 1;
};
/// All products in the order of the result, in the fewest runs: broadcasting skips and repeats matrices. Empty for an
/// empty result.
std::vector<ProductRun> product_runs(const MatrixProblem& problem);

/// MatMul's product of A and B, or of operands with swapped last axes. Error(invalid_model) when their shapes do not
/// match.
MatrixProblem matmul_problem(const Shape& a, const Shape& b, bool trans_a = false, bool trans_b = false);
/// Which axes of MatMul's result follow inputs `a` and `b`; the others are parameters.
AxisMap matmul_axes(std::span<const InputInfo> inputs, std::size_t a, std::size_t b, const Shape& y);

/// An operator that is a matrix product. Inputs: A, B, C (optional).
class MatrixOp : public Op {
 public:
  static constexpr std::size_t a = 0, b = 1, c = 2;

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const final;
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const final;
  /// The problem of these inputs. Error(invalid_model) when their shapes do not match.
  virtual MatrixProblem problem(std::span<const InputInfo> inputs) const = 0;
};

/// A kernel of both operators. Known weights (float32) are packed into a blob.
class MatrixKernel : public Kernel {
 public:
  DTypeSet types() const override { return dtypes<Types<float>>; }
  Offer offer(const Problem& node, const Target& target) const final;
  std::optional<BlobSpec> blob(const Problem& node, const Candidate& candidate) const final;
  void prepare(const Problem& node, const Candidate& candidate, std::span<std::byte> blob) const final;

 protected:
  /// Fills configuration, workspace, tolerance and needs_cublas of the candidate, and an estimate if it is better than
  /// the roofline.
  virtual Offer plan(const Problem& node, const MatrixProblem& problem, const Target& target) const = 0;
  /// The layout of one matrix of B in a candidate's blob. No bytes: run() reads B itself, as it does when B is unknown.
  struct Weights {
    std::string_view form = {};
    std::int64_t bytes = 0;
  };
  virtual Weights weights(const Problem& node, const MatrixProblem& problem, std::string_view config) const = 0;
  /// Writes the layout, scaled.
  virtual void write_weights(const Problem& node, const MatrixProblem& problem, std::string_view config, const float* b,
                             std::byte* to) const = 0;
};

inline MatrixProblem matrix_problem(const Problem& node) { return node.as<MatrixOp>().problem(node.inputs()); }

const Kernel& few_rows_product();  ///< few_rows.cpp: "few_rows", on the CPU
const Kernel& packed_product();    ///< packed_product.cpp: "packed", on the CPU
const Kernel& cuda_product();      ///< cuda_product.cpp: "gemm", on CUDA; offers in builds without it, too

}  // namespace lenslet
