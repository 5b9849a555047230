// MatMul: NumPy's matmul. Vectors become matrices of one row or column, leading dimensions are batches and broadcast.

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "ops/core/broadcast.h"
#include "ops/core/makers.h"
#include "ops/core/sum_tolerance.h"
#include "ops/core/type_check.h"
#include "ops/gemm/gemm.h"
#include "ops/gemm/gemm_cuda.h"

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

  double tolerance(std::span<const InputInfo> inputs) const override {
    const Shape& a = inputs[0].type.shape;
    return sum_tolerance(a[a.rank() - 1]);
  }

  std::size_t workspace_bytes(const PlanContext& context) const override {
    if (context.device == DeviceKind::cuda || context.inputs[1].constant != nullptr) return 0;
    const Product p = resolve(context.inputs[0].type.shape, context.inputs[1].type.shape);
    return static_cast<std::size_t>(packed_b_floats(p.k, p.n)) * sizeof(float);
  }

  std::string prepare_key(const PlanContext& context) const override {
    if (context.inputs[1].constant == nullptr) return {};
    if (context.device == DeviceKind::cpu) return "matmul";
    const Product p = resolve(context.inputs[0].type.shape, context.inputs[1].type.shape);
    return p.batch_b.elems() == 1 && p.n != 1 ? "matmul cuda" : "";
  }

  // All matrices of B, packed one after another; on CUDA the one matrix as [N,K].
  std::shared_ptr<const void> prepare(const PlanContext& context, std::size_t& bytes) const override {
    const Tensor& b = *context.inputs[1].constant;
    const Product p = resolve(context.inputs[0].type.shape, b.shape());
    const std::int64_t size = packed_b_floats(p.k, p.n), count = p.batch_b.elems();
    if constexpr (cuda_built) {
      if (context.device == DeviceKind::cuda) {
        const std::span<const float> values = b.values<float>();
        std::vector<float> by_column(values.size());
        for (std::int64_t i = 0; i < p.k; ++i)
          for (std::int64_t j = 0; j < p.n; ++j)
            by_column[static_cast<std::size_t>(j * p.k + i)] = values[static_cast<std::size_t>(i * p.n + j)];
        bytes = values.size_bytes();
        return cuda::upload_weights(by_column);
      }
    }
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

  std::optional<std::string> refuse_cuda(std::span<const InputInfo> inputs) const override {
    const Product p = resolve(inputs[0].type.shape, inputs[1].type.shape);
    const std::int64_t rows = p.batch_b.elems() == 1 ? p.m * p.batch.elems() : p.m;
    if (cuda::gemm_fits(rows, p.n, p.k)) return std::nullopt;
    return fmt::format("the product of {} and {} is too large for 32-bit sizes", inputs[0].type.shape.str(),
                       inputs[1].type.shape.str());
  }

  bool reads_on_cuda(int input, const PlanContext& context) const override {
    return input != 1 || prepare_key(context).empty();
  }

  void run_cuda([[maybe_unused]] const CudaRun& run) const override {
    if constexpr (cuda_built) {
      if (run.outputs[0].elems() == 0) return;
      const Product p = resolve(run.inputs[0].shape(), run.inputs[1].shape());
      const auto* a0 = static_cast<const float*>(run.inputs[0].data());
      const auto* b0 = static_cast<const float*>(run.inputs[1].data());
      cuda::GemmCall call;
      call.m = p.m;
      call.n = p.n;
      call.k = p.k;
      call.a = {a0, p.k};
      // A column lies as a row does: as [N,K] it may go the fast way of a fully connected layer.
      call.b = p.n == 1 ? cuda::MatrixOperand{b0, p.k, true} : cuda::MatrixOperand{b0, p.n};
      call.y = static_cast<float*>(run.outputs[0].data());
      if (p.batch_b.elems() == 1) {  // its batches are further rows
        if (run.prepared != nullptr) call.b = {static_cast<const float*>(run.prepared), p.k, true};
        call.m *= p.batch.elems();
        return cuda::gemm(run.context, call);
      }
      // Broadcasting skips or repeats matrices: as many as lie evenly apart in both operands go into one call.
      const std::int64_t total = p.batch.elems();
      std::int64_t next = 0;
      for (std::int64_t i = 0; i < total; i = next) {
        const std::int64_t ia = matrix_of(p.batch, p.batch_a, i), ib = matrix_of(p.batch, p.batch_b, i);
        std::int64_t a_step = 0, b_step = 0;
        for (next = i + 1; next < total; ++next) {
          const std::int64_t a_next = matrix_of(p.batch, p.batch_a, next), b_next = matrix_of(p.batch, p.batch_b, next);
          if (next == i + 1) {
            a_step = a_next - ia;
            b_step = b_next - ib;
            if (a_step < 0 || b_step < 0) break;
          } else if (a_next != ia + (next - i) * a_step || b_next != ib + (next - i) * b_step) {
            break;
          }
        }
        call.batch = next - i;
        call.a.data = a0 + ia * p.m * p.k;
        call.a.stride = a_step * p.m * p.k;
        call.b.data = b0 + ib * p.k * p.n;
        call.b.stride = b_step * p.k * p.n;
        call.y = static_cast<float*>(run.outputs[0].data()) + i * p.m * p.n;
        cuda::gemm(run.context, call);
      }
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
