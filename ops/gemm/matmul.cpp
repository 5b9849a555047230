// MatMul, as in NumPy: vectors become matrices of one row or column, leading dimensions are batches and broadcast.
// FusedMatMul (ONNX Runtime) adds a factor alpha and transposed operands.

#include <fmt/format.h>

#include <algorithm>

#include "ops/core/broadcast.h"
#include "ops/core/checks.h"
#include "ops/core/sum_tolerance.h"
#include "ops/gemm/einsum.h"
#include "ops/gemm/problem.h"

namespace lenslet {
namespace {

int batch_rank(const Shape& shape) { return std::max(0, shape.rank() - 2); }
Shape batch_of(const Shape& shape) { return Shape(shape.dims().first(static_cast<std::size_t>(batch_rank(shape)))); }

Shape with_last_swapped(const Shape& shape) {
  const int last = shape.rank() - 1;
  return last < 1 ? shape : shape.with(last - 1, shape[last]).with(last, shape[last - 1]);
}

class MatMulOp final : public MatrixOp {
 public:
  std::string_view type() const override { return "MatMul"; }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    return matmul_axes(inputs, a, b, y);
  }
  std::optional<PermutedOp> permuted(std::span<const int> to, std::span<const InputInfo> inputs) const override;
  MatrixProblem problem(std::span<const InputInfo> inputs) const override {
    MatrixProblem p = matmul_problem(required_input(inputs, a, "A").shape, required_input(inputs, b, "B").shape);
    p.b_known = inputs[b].constant != nullptr;
    return p;
  }
};

/// Images [N,H,W,C] times one known matrix are a 1x1 convolution over [N,C,H,W].
std::optional<PermutedOp> MatMulOp::permuted(std::span<const int> to, std::span<const InputInfo> inputs) const {
  const Tensor* const known = inputs[b].constant;
  const Shape &x = inputs[a].type.shape, &w = inputs[b].type.shape;
  const bool images = to.size() == 4 && x.rank() == 4 && to[0] == 0 && to[3] == 1;
  if (!images || known == nullptr || known->dtype() != DType::f32 || w.rank() < 2 || w.rank() > 4 || w.elems() == 0 ||
      inputs[a].type.dtype != DType::f32 || batch_of(w).elems() != 1)
    return std::nullopt;
  const std::int64_t channels = w[w.rank() - 2], count = w[w.rank() - 1];
  Tensor filters(DType::f32, Shape{count, channels, 1, 1});
  const float* const from = known->values<float>().data();
  float* const into = filters.values<float>().data();
  for (std::int64_t i = 0; i < channels; ++i)
    for (std::int64_t j = 0; j < count; ++j) into[j * channels + i] = from[i * count + j];
  return PermutedOp{.op = make_op("Conv", "", {}, 2),
                    .inputs = {{.number = a}, {.number = b, .permuted = false, .instead = std::move(filters)}}};
}

class FusedMatMulOp final : public MatrixOp {
 public:
  explicit FusedMatMulOp(const NodeSpec& spec) {
    AttributeReader reader(spec);
    trans_a_ = reader.flag("transA", false);
    trans_b_ = reader.flag("transB", false);
    alpha_ = reader.real("alpha", 1);
    for (const char* batch : {"transBatchA", "transBatchB"})
      if (reader.flag(batch, false))
        throw Error(ErrorKind::unsupported, fmt::format("attribute '{}' is not supported", batch));
    reader.finish();
  }

  std::string_view type() const override { return "FusedMatMul"; }
  AttributeList attributes() const override {
    return {{"transA", std::int64_t{trans_a_}}, {"transB", std::int64_t{trans_b_}}, {"alpha", alpha_}};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    std::vector<InputInfo> plain(inputs.begin(), inputs.end());
    for (const std::size_t i : {a, b})
      if (is_swapped(i)) plain[i].type.shape = with_last_swapped(plain[i].type.shape);
    AxisMap map = matmul_axes(plain, a, b, y);
    for (const std::size_t i : {a, b}) {
      const int last = inputs[i].type.shape.rank() - 1;
      for (std::int8_t& axis : map.inputs[i].axis)
        if (is_swapped(i) && last > 0 && axis >= last - 1) axis = static_cast<std::int8_t>(2 * last - 1 - axis);
    }
    return map;
  }
  MatrixProblem problem(std::span<const InputInfo> inputs) const override {
    MatrixProblem p =
        matmul_problem(required_input(inputs, a, "A").shape, required_input(inputs, b, "B").shape, trans_a_, trans_b_);
    p.b_known = inputs[b].constant != nullptr;
    p.alpha = static_cast<float>(alpha_);
    return p;
  }

 private:
  bool is_swapped(std::size_t input) const { return input == a ? trans_a_ : trans_b_; }

  bool trans_a_ = false, trans_b_ = false;
  double alpha_ = 1;
};

/// Products of types that the matrix kernels do not support.
EinsumWalk walk_of(const Problem& node) {
  const MatrixProblem p = matrix_problem(node);
  EinsumWalk walk{.operands = 2, .axes = p.batch.rank() + 2, .sums = 1};
  const auto axis = [&](int d, std::int64_t size, std::int64_t a_step, std::int64_t b_step) {
    walk.dims[d] = size;
    walk.strides[0][d] = a_step;
    walk.strides[1][d] = b_step;
    walk.elems *= size;
  };
  std::int64_t a_step = p.a_floats(), b_step = p.b_floats();
  for (int d = p.batch.rank() - 1; d >= 0; --d) {
    const auto own = [&](const Shape& batch) {
      const int at = d - p.batch.rank() + batch.rank();
      return at < 0 ? 1 : batch[at];
    };
    const std::int64_t of_a = own(p.batch_a), of_b = own(p.batch_b);
    axis(d, p.batch[d], of_a == 1 ? 0 : a_step, of_b == 1 ? 0 : b_step);
    a_step *= of_a;
    b_step *= of_b;
  }
  axis(p.batch.rank(), p.gemm_m, p.trans_a ? 1 : p.gemm_k, 0);
  axis(p.batch.rank() + 1, p.gemm_n, 0, p.trans_b ? p.gemm_k : 1);
  walk.gemm_k = walk.sum_dims[0] = p.gemm_k;
  walk.sum_strides[0][0] = p.trans_a ? p.gemm_m : 1;
  walk.sum_strides[1][0] = p.trans_b ? 1 : p.gemm_n;
  return walk;
}

std::optional<std::string> refuse_walked(const Problem& node) {
  if (matrix_problem(node).alpha == 1) return std::nullopt;
  return fmt::format("alpha with {}; only float32 is supported", to_string(node.inputs()[MatrixOp::a].type.dtype));
}

double walked_tolerance(const Problem& node) { return sum_tolerance(matrix_problem(node).gemm_k); }

std::unique_ptr<const BoundKernel> bind_walked(const Binding& binding) { return bind_walk(walk_of(binding.problem)); }

constexpr auto walked =
    on_both({.types = dtypes<Types<double, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t>>,
             .tolerance_for = walked_tolerance,
             .refuse = refuse_walked},
            bind_walked, bind_walked);

}  // namespace

AxisMap matmul_axes(std::span<const InputInfo> inputs, std::size_t a, std::size_t b, const Shape& y) {
  AxisMap map;
  map.inputs.resize(inputs.size());
  const int batch = std::max(batch_rank(inputs[a].type.shape), batch_rank(inputs[b].type.shape));
  for (const std::size_t i : {a, b}) {
    const Shape& shape = inputs[i].type.shape;
    AxisMap::Followed& followed = map.inputs[i];
    followed.parameter = false;
    for (int to = 0; to < y.rank(); ++to) {
      // Rows for A, columns for B; the other operand does not have this axis.
      int axis = to - batch + batch_rank(shape);
      if (to >= batch) {
        const bool own = shape.rank() > 1 && to == (i == a ? batch : y.rank() - 1);
        axis = !own ? AxisMap::none : i == a ? shape.rank() - 2 : shape.rank() - 1;
      }
      const auto at = static_cast<std::size_t>(to);
      followed.stretched[at] = axis < 0 || (to < batch && shape[axis] == 1);
      if (axis >= 0 && shape[axis] == y[to]) followed.axis[at] = static_cast<std::int8_t>(axis);
    }
  }
  return map;
}

MatrixProblem matmul_problem(const Shape& as_a, const Shape& as_b, bool trans_a, bool trans_b) {
  const Shape a = trans_a ? with_last_swapped(as_a) : as_a, b = trans_b ? with_last_swapped(as_b) : as_b;
  const auto refuse = [&](const char* why) {
    throw Error(ErrorKind::invalid_model, fmt::format("A {}{} and B {}{}{}", as_a.str(), trans_a ? "^T" : "",
                                                      as_b.str(), trans_b ? "^T" : "", why));
  };
  if (a.rank() == 0 || b.rank() == 0) refuse(": scalars do not multiply");
  MatrixProblem p{.gemm_m = a.rank() > 1 ? a[a.rank() - 2] : 1,
                  .gemm_n = b.rank() > 1 ? b[b.rank() - 1] : 1,
                  .gemm_k = a[a.rank() - 1],
                  .batch_a = batch_of(a),
                  .batch_b = batch_of(b)};
  if (b[std::max(0, b.rank() - 2)] != p.gemm_k) refuse(" do not multiply");
  p.trans_a = trans_a && a.rank() > 1;
  p.trans_b = (trans_b && b.rank() > 1) || p.gemm_n == 1;  // a column lies as a row does
  p.batch = broadcast_shapes(p.batch_a, p.batch_b);
  std::vector<std::int64_t> dims(p.batch.dims().begin(), p.batch.dims().end());
  if (a.rank() > 1) dims.push_back(p.gemm_m);
  if (b.rank() > 1) dims.push_back(p.gemm_n);
  p.y = Shape(dims);
  if (p.batch_b.elems() == 1 && (!p.trans_a || p.batch.elems() == 1)) {  // the batches of A are further rows
    p.gemm_m *= p.batch.elems();
    p.batch = p.batch_a = p.batch_b = Shape();
  }
  return p;
}

OpParts matmul_op() {
  return {.make = [](const NodeSpec& spec) -> std::shared_ptr<const Op> {
            AttributeReader(spec).finish();
            return std::make_shared<MatMulOp>();
          },
          .kernels = walked};
}
OpParts fused_matmul() { return {make_from<FusedMatMulOp>, walked}; }

}  // namespace lenslet
