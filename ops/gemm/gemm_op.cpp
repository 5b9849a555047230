#include "ops/gemm/gemm_op.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/core/broadcast.h"
#include "ops/core/makers.h"
#include "ops/core/sum_tolerance.h"
#include "ops/core/type_check.h"
#include "ops/gemm/gemm.h"
#include "ops/gemm/gemm_cuda.h"

namespace lenslet {

namespace {

// Workspace in pieces, each 64-byte aligned.
std::size_t padded_bytes(std::int64_t floats) {
  return (static_cast<std::size_t>(floats) * sizeof(float) + 63) / 64 * 64;
}

struct Pieces {
  std::byte* next;
  float* take(std::int64_t floats) {
    auto* piece = reinterpret_cast<float*>(next);
    next += padded_bytes(floats);
    return piece;
  }
};

struct Sizes {
  std::int64_t m = 0, n = 0, k = 0;
};

// C with one row for all: added as the product's bias. Otherwise it is spread over y first.
bool same_in_all_rows(const Shape& c) { return c.rank() < 2 || c[0] == 1; }

}  // namespace

AttributeList GemmOp::attributes() const {
  AttributeList list{{"alpha", static_cast<double>(alpha)},
                     {"beta", static_cast<double>(beta)},
                     {"transA", std::int64_t{trans_a ? 1 : 0}},
                     {"transB", std::int64_t{trans_b ? 1 : 0}}};
  if (activation.kind != Activation::Kind::none) {
    list.emplace_back("activation", std::string(to_string(activation.kind)));
    list.emplace_back("activation_alpha", static_cast<double>(activation.alpha));
    list.emplace_back("activation_beta", static_cast<double>(activation.beta));
  }
  if (!weight_scale.empty())
    list.emplace_back("weight_scale", std::vector<double>(weight_scale.begin(), weight_scale.end()));
  return list;
}

std::vector<TensorType> GemmOp::infer(std::span<const InputInfo> inputs) const {
  const TensorType &a = required_input(inputs, 0, "A"), &b = required_input(inputs, 1, "B");
  require_dtype("input A", a.dtype, {DType::f32});
  require_dtype("input B", b.dtype, {DType::f32});
  if (a.shape.rank() != 2 || b.shape.rank() != 2)
    throw Error(ErrorKind::invalid_model, fmt::format("A {} and B {} must be matrices", a.shape.str(), b.shape.str()));
  const Sizes s{a.shape[trans_a ? 1 : 0], b.shape[trans_b ? 0 : 1], a.shape[trans_a ? 0 : 1]};
  if (b.shape[trans_b ? 1 : 0] != s.k)
    throw Error(ErrorKind::invalid_model, fmt::format("A {}{} and B {}{} do not multiply", a.shape.str(),
                                                      trans_a ? "^T" : "", b.shape.str(), trans_b ? "^T" : ""));
  const Shape y{s.m, s.n};
  if (present(inputs, 2)) {
    require_dtype("input C", inputs[2].type.dtype, {DType::f32});
    const Shape& c = inputs[2].type.shape;
    if (c.rank() > 2 || !(broadcast_shapes(c, y) == y))
      throw Error(ErrorKind::invalid_model, fmt::format("C {} does not broadcast to {}", c.str(), y.str()));
  }
  if (!weight_scale.empty() && static_cast<std::int64_t>(weight_scale.size()) != s.n)
    throw Error(ErrorKind::internal, "weight_scale does not fit B");
  return {{DType::f32, y}};
}

double GemmOp::flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const {
  return 2.0 * static_cast<double>(outputs[0].shape.elems()) *
         static_cast<double>(inputs[0].type.shape[trans_a ? 0 : 1]);
}

double GemmOp::tolerance(std::span<const InputInfo> inputs) const {
  return sum_tolerance(inputs[0].type.shape[trans_a ? 0 : 1]);
}

std::size_t GemmOp::workspace_bytes(const PlanContext& context) const {
  if (context.device == DeviceKind::cuda) return 0;
  const Shape& y = context.outputs[0].shape;
  const std::int64_t n = y[1], k = context.inputs[0].type.shape[trans_a ? 0 : 1];
  std::size_t bytes = padded_bytes(n);
  if (trans_a) bytes += padded_bytes(y[0] * k);
  if (context.inputs[1].constant == nullptr) {
    bytes += padded_bytes(packed_b_floats(k, n));
    if (scales()) bytes += padded_bytes(k * n);
  }
  return bytes;
}

float GemmOp::scaled(float value, std::int64_t column) const {
  const double factor = weight_scale.empty() ? 1.0 : double{weight_scale[static_cast<std::size_t>(column)]};
  return static_cast<float>(double{value} * double{alpha} * factor);
}

// B' * alpha * weight_scale in packed order; `scratch` (k * n floats) is used where anything is to be scaled.
void GemmOp::pack(const float* b, std::int64_t k, std::int64_t n, float* scratch, float* packed) const {
  const std::int64_t row = trans_b ? 1 : n, col = trans_b ? k : 1;
  if (!scales()) return pack_b(b, row, col, k, n, packed);
  for (std::int64_t i = 0; i < k; ++i)
    for (std::int64_t j = 0; j < n; ++j) scratch[i * n + j] = scaled(b[i * row + j * col], j);
  pack_b(scratch, n, 1, k, n, packed);
}

std::string GemmOp::prepare_key(const PlanContext& context) const {
  if (context.inputs[1].constant == nullptr) return {};
  const bool cuda = context.device == DeviceKind::cuda;
  if (cuda && trans_b && !scales()) return {};  // is [N,K] already
  std::string key = fmt::format("gemm{} transB={} alpha={}", cuda ? " cuda" : "", trans_b, alpha);
  for (const float scale : weight_scale) key += fmt::format(" {}", scale);
  return key;
}

std::shared_ptr<const void> GemmOp::prepare(const PlanContext& context, std::size_t& bytes) const {
  const Tensor& b = *context.inputs[1].constant;
  const std::int64_t k = b.shape()[trans_b ? 1 : 0], n = b.shape()[trans_b ? 0 : 1];
  const float* b0 = b.values<float>().data();
  if constexpr (cuda_built) {
    if (context.device == DeviceKind::cuda) {
      const std::int64_t row = trans_b ? 1 : n, col = trans_b ? k : 1;
      std::vector<float> by_column(static_cast<std::size_t>(k * n));
      for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t i = 0; i < k; ++i)
          by_column[static_cast<std::size_t>(j * k + i)] = scaled(b0[i * row + j * col], j);
      bytes = by_column.size() * sizeof(float);
      return cuda::upload_weights(by_column);
    }
  }
  auto packed = std::make_shared<Tensor>(DType::f32, Shape{packed_b_floats(k, n)});
  std::vector<float> scratch(scales() ? static_cast<std::size_t>(k * n) : 0);
  pack(b0, k, n, scratch.data(), packed->values<float>().data());
  bytes = packed->bytes();
  return packed;
}

void GemmOp::run_cpu(const RunContext& context) const {
  const Tensor &a = context.inputs[0], &b = context.inputs[1];
  Tensor& y = context.outputs[0];
  const Sizes s{y.shape()[0], y.shape()[1], a.shape()[trans_a ? 0 : 1]};
  if (y.elems() == 0) return;
  Pieces pieces{context.workspace.data()};
  float* y0 = y.values<float>().data();

  Gemm call;
  call.m = s.m;
  call.n = s.n;
  call.k = s.k;
  call.c = y0;
  call.ldc = s.n;
  call.activation = activation;

  float* bias = pieces.take(s.n);
  if (present(context.inputs, 2)) {
    const Tensor& c = context.inputs[2];
    const float* c0 = c.values<float>().data();
    const Shape& shape = c.shape();
    const bool varies = shape.rank() > 0 && shape[shape.rank() - 1] != 1;
    if (same_in_all_rows(shape)) {
      for (std::int64_t j = 0; j < s.n; ++j) bias[j] = beta * c0[varies ? j : 0];
      call.bias = bias;
    } else {
      for (std::int64_t i = 0; i < s.m; ++i)
        for (std::int64_t j = 0; j < s.n; ++j) y0[i * s.n + j] = beta * c0[varies ? i * s.n + j : i];
      call.residual = y0;
    }
  }
  call.a.base = a.values<float>().data();
  call.a.stride = s.k;
  if (trans_a) {
    float* rows = pieces.take(s.m * s.k);
    for (std::int64_t i = 0; i < s.m; ++i)
      for (std::int64_t l = 0; l < s.k; ++l) rows[i * s.k + l] = call.a.base[l * s.m + i];
    call.a.base = rows;
  }
  if (context.prepared != nullptr) {
    call.b = static_cast<const Tensor*>(context.prepared)->values<float>().data();
  } else {
    float* packed = pieces.take(packed_b_floats(s.k, s.n));
    float* scratch = scales() ? pieces.take(s.k * s.n) : nullptr;
    pack(b.values<float>().data(), s.k, s.n, scratch, packed);
    call.b = packed;
  }
  gemm(call, context.pool);
}

std::optional<std::string> GemmOp::refuse_cuda(std::span<const InputInfo> inputs) const {
  const Shape &a = inputs[0].type.shape, &b = inputs[1].type.shape;
  if (!cuda::gemm_fits(a[trans_a ? 1 : 0], b[trans_b ? 0 : 1], a[trans_a ? 0 : 1]))
    return fmt::format("the product of {} and {} is too large for 32-bit sizes", a.str(), b.str());
  // fold_batch_norm and fold_scale make these for constant B only.
  if (!weight_scale.empty() && inputs[1].constant == nullptr) return "weight_scale on a B that is computed";
  return std::nullopt;
}

bool GemmOp::reads_on_cuda(int input, const PlanContext& context) const {
  return input != 1 || prepare_key(context).empty();
}

void GemmOp::run_cuda([[maybe_unused]] const CudaRun& run) const {
  if constexpr (cuda_built) {
    const Tensor &a = run.inputs[0], &b = run.inputs[1];
    const Shape& y = run.outputs[0].shape();
    const auto device = [](const Tensor& tensor) { return static_cast<const float*>(tensor.data()); };
    cuda::GemmCall call;
    call.m = y[0];
    call.n = y[1];
    call.k = a.shape()[trans_a ? 0 : 1];
    call.a = {device(a), a.shape()[1], trans_a};
    if (run.prepared != nullptr) {
      call.b = {static_cast<const float*>(run.prepared), call.k, true};
    } else {
      call.b = {device(b), trans_b ? call.k : call.n, trans_b};
      call.alpha = alpha;
    }
    if (present(run.inputs, 2)) {
      const Tensor& c = run.inputs[2];
      const int rank = c.shape().rank();
      call.c = device(c);
      call.beta = beta;
      call.c_col = rank > 0 && c.shape()[rank - 1] != 1 ? 1 : 0;
      call.c_row = rank == 2 && c.shape()[0] != 1 ? c.shape()[1] : 0;
    }
    call.activation = activation;
    call.y = static_cast<float*>(run.outputs[0].data());
    cuda::gemm(run.context, call);
  }
}

std::shared_ptr<const Op> make_gemm(const NodeSpec& spec) {
  auto op = std::make_shared<GemmOp>();
  AttributeReader reader(spec.attributes);
  op->alpha = static_cast<float>(reader.real("alpha", 1));
  op->beta = static_cast<float>(reader.real("beta", 1));
  op->trans_a = reader.integer("transA", 0) != 0;
  op->trans_b = reader.integer("transB", 0) != 0;
  if (reader.has("broadcast"))
    throw Error(ErrorKind::unsupported,
                "attribute 'broadcast' belongs to opset 6 and earlier: export with opset 7 or later");
  reader.finish();
  return op;
}

}  // namespace lenslet
