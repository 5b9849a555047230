// MatMul: NumPy's matmul. Vectors become matrices of one row or column, leading dimensions are batches and broadcast.

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "ops/broadcast.h"
#include "ops/gemm/gemm.h"
#include "ops/makers.h"
#include "ops/type_check.h"

namespace lenslet {

namespace {

// A [batch_a..., m, k] times B [batch_b..., k, n].
struct Product {
  std::int64_t m = 1, n = 1, k = 1;
  Shape batch_a, batch_b, batch;  ///< `batch`: both broadcast
  Shape y;
};

Shape leading(const Shape& shape) {
  return Shape(shape.dims().first(static_cast<std::size_t>(std::max(0, shape.rank() - 2))));
}

Product resolve(const Shape& a, const Shape& b) {
  if (a.rank() == 0 || b.rank() == 0)
    throw Error(ErrorKind::invalid_model, fmt::format("A {} and B {}: scalars do not multiply", a.str(), b.str()));
  Product p;
  p.k = a[a.rank() - 1];
  if (a.rank() > 1) p.m = a[a.rank() - 2];
  if (b.rank() > 1) p.n = b[b.rank() - 1];
  if (b[std::max(0, b.rank() - 2)] != p.k)
    throw Error(ErrorKind::invalid_model, fmt::format("A {} and B {} do not multiply", a.str(), b.str()));
  p.batch_a = leading(a);
  p.batch_b = leading(b);
  p.batch = broadcast_shapes(p.batch_a, p.batch_b);
  std::vector<std::int64_t> dims(p.batch.dims().begin(), p.batch.dims().end());
  if (a.rank() > 1) dims.push_back(p.m);
  if (b.rank() > 1) dims.push_back(p.n);
  p.y = Shape(dims);
  return p;
}

class MatMulOp final : public Op {
 public:
  std::string_view type() const override { return "MatMul"; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType &a = required_input(inputs, 0, "A"), &b = required_input(inputs, 1, "B");
    require_dtype("input A", a.dtype, {DType::f32});
    require_dtype("input B", b.dtype, {DType::f32});
    return {{DType::f32, resolve(a.shape, b.shape).y}};
  }

  double flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const override {
    const Shape& a = inputs[0].type.shape;
    return 2.0 * static_cast<double>(outputs[0].shape.elems()) * static_cast<double>(a[a.rank() - 1]);
  }

  std::size_t workspace_bytes(const PlanContext& context) const override {
    if (context.inputs[1].constant != nullptr) return 0;
    const Product p = resolve(context.inputs[0].type.shape, context.inputs[1].type.shape);
    return static_cast<std::size_t>(packed_b_floats(p.k, p.n)) * sizeof(float);
  }

  std::string prepare_key(const PlanContext& context) const override {
    return context.inputs[1].constant == nullptr ? std::string() : "matmul";
  }

  // All matrices of B, packed one after another.
  std::shared_ptr<const void> prepare(const PlanContext& context, std::size_t& bytes) const override {
    const Tensor& b = *context.inputs[1].constant;
    const Product p = resolve(context.inputs[0].type.shape, b.shape());
    const std::int64_t size = packed_b_floats(p.k, p.n), count = p.batch_b.elems();
    auto packed = std::make_shared<Tensor>(DType::f32, Shape{count * size});
    for (std::int64_t i = 0; i < count; ++i)
      pack_b(b.values<float>().data() + i * p.k * p.n, p.n, 1, p.k, p.n, packed->values<float>().data() + i * size);
    bytes = packed->bytes();
    return packed;
  }

  void run_cpu(const RunContext& context) const override {
    const Tensor &a = context.inputs[0], &b = context.inputs[1];
    Tensor& y = context.outputs[0];
    if (y.elems() == 0) return;
    const Product p = resolve(a.shape(), b.shape());
    const float* a0 = a.values<float>().data();
    const float* b0 = b.values<float>().data();
    float* y0 = y.values<float>().data();
    const std::int64_t size = packed_b_floats(p.k, p.n);
    const float* prepared =
        context.prepared == nullptr ? nullptr : static_cast<const Tensor*>(context.prepared)->values<float>().data();
    auto* scratch = reinterpret_cast<float*>(context.workspace.data());

    Gemm call;
    call.m = p.m;
    call.n = p.n;
    call.k = p.k;
    call.a.stride = p.k;
    call.ldc = p.n;
    // One B for all of A: its batches are further rows.
    const bool one_b = p.batch_b.elems() == 1;
    if (one_b) call.m *= p.batch.elems();
    const std::int64_t steps = one_b ? 1 : p.batch.elems();
    std::int64_t in_scratch = -1;
    for (std::int64_t i = 0; i < steps; ++i) {
      const std::int64_t ia = one_b ? 0 : matrix_of(p.batch, p.batch_a, i),
                         ib = one_b ? 0 : matrix_of(p.batch, p.batch_b, i);
      if (prepared == nullptr && ib != in_scratch) {
        pack_b(b0 + ib * p.k * p.n, p.n, 1, p.k, p.n, scratch);
        in_scratch = ib;
      }
      call.b = prepared != nullptr ? prepared + ib * size : scratch;
      call.a.base = a0 + ia * p.m * p.k;
      call.c = y0 + i * p.m * p.n;
      gemm(call, context.pool);
    }
  }

 private:
  // Which matrix of an operand batch `index` of the result uses.
  static std::int64_t matrix_of(const Shape& batch, const Shape& own, std::int64_t index) {
    std::int64_t result = 0, step = 1;
    for (int d = batch.rank() - 1; d >= 0; --d) {
      const std::int64_t at = index % batch[d];
      index /= batch[d];
      const int own_dim = d - (batch.rank() - own.rank());
      if (own_dim < 0) continue;
      if (own[own_dim] != 1) result += at * step;
      step *= own[own_dim];
    }
    return result;
  }
};

}  // namespace

std::shared_ptr<const Op> make_matmul(const NodeSpec& spec) {
  AttributeReader(spec.attributes).finish();
  return std::make_shared<MatMulOp>();
}

}  // namespace lenslet
