// MatMul: NumPy's matmul. Vectors become matrices of one row or column, leading dimensions are batches and broadcast.

#include <fmt/format.h>

#include <algorithm>

#include "ops/core/broadcast.h"
#include "ops/core/checks.h"
#include "ops/gemm/problem.h"

namespace lenslet {
namespace {

int batch_rank(const Shape& shape) { return std::max(0, shape.rank() - 2); }
Shape batch_of(const Shape& shape) { return Shape(shape.dims().first(static_cast<std::size_t>(batch_rank(shape)))); }

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

/// Images in [N,H,W,C] times one known matrix are a convolution of 1x1 over [N,C,H,W].
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
      // Of A its rows, of B its columns: the other's are read by all of them.
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

MatrixProblem matmul_problem(const Shape& a, const Shape& b) {
  if (a.rank() == 0 || b.rank() == 0)
    throw Error(ErrorKind::invalid_model, fmt::format("A {} and B {}: scalars do not multiply", a.str(), b.str()));
  MatrixProblem p{.gemm_m = a.rank() > 1 ? a[a.rank() - 2] : 1,
                  .gemm_n = b.rank() > 1 ? b[b.rank() - 1] : 1,
                  .gemm_k = a[a.rank() - 1],
                  .batch_a = batch_of(a),
                  .batch_b = batch_of(b)};
  if (b[std::max(0, b.rank() - 2)] != p.gemm_k)
    throw Error(ErrorKind::invalid_model, fmt::format("A {} and B {} do not multiply", a.str(), b.str()));
  p.trans_b = p.gemm_n == 1;  // a column lies as a row does
  p.batch = broadcast_shapes(p.batch_a, p.batch_b);
  std::vector<std::int64_t> dims(p.batch.dims().begin(), p.batch.dims().end());
  if (a.rank() > 1) dims.push_back(p.gemm_m);
  if (b.rank() > 1) dims.push_back(p.gemm_n);
  p.y = Shape(dims);
  if (p.batch_b.elems() == 1) {  // the batches of A are further rows
    p.gemm_m *= p.batch.elems();
    p.batch = p.batch_a = p.batch_b = Shape();
  }
  return p;
}

OpParts matmul_op() {
  return {.make = [](const NodeSpec& spec) -> std::shared_ptr<const Op> {
    AttributeReader(spec).finish();
    return std::make_shared<MatMulOp>();
  }};
}

}  // namespace lenslet
