// Gemm: y = activation(alpha * A' * B' * weight_scale + beta * C), with A' [M,K] and B' [K,N] transposed as specified
// and C broadcast to [M,N].

#include <fmt/format.h>

#include <utility>

#include "ops/core/broadcast.h"
#include "ops/core/checks.h"
#include "ops/gemm/problem.h"

namespace lenslet {
namespace {

/// attributes(): alpha, beta, transA, transB, the epilogue's, and "a_channels" (MatrixProblem::channels) where A may be
/// images and is not transposed.
class GemmOp final : public MatrixOp {
 public:
  explicit GemmOp(const NodeSpec& spec) {
    AttributeReader reader(spec);
    alpha_ = static_cast<float>(reader.real("alpha", 1));
    epilogue_.bias_factor = static_cast<float>(reader.real("beta", 1));
    trans_a_ = reader.flag("transA", false);
    trans_b_ = reader.flag("transB", false);
    if (reader.has("broadcast"))
      throw Error(ErrorKind::unsupported,
                  "attribute 'broadcast' belongs to opset 6 and earlier: export with opset 7 or later");
    if (spec.normalised) {
      a_channels_ = reader.integer("a_channels", 0);
      read_epilogue(reader, epilogue_);
    }
    reader.finish();
  }

  std::string_view type() const override { return "Gemm"; }
  AttributeList attributes() const override {
    AttributeList list{{"alpha", static_cast<double>(alpha_)},
                       {"beta", epilogue_.bias_factor},
                       {"transA", std::int64_t{trans_a_}},
                       {"transB", std::int64_t{trans_b_}}};
    if (!trans_a_) list.emplace_back("a_channels", a_channels_);
    append_attributes(list, epilogue_);
    return list;
  }
  const Epilogue* epilogue() const override { return &epilogue_; }
  std::shared_ptr<const Op> with_epilogue(Epilogue changed) const override {
    auto op = std::make_shared<GemmOp>(*this);
    op->epilogue_ = std::move(changed);
    return op;
  }

  /// Rows follow those of A, and of C if it has as many.
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    AxisMap map = axes_kept(inputs.size(), {});
    map.inputs[a].axis[0] = trans_a_ ? 1 : 0;
    if (present(inputs, c)) map.inputs[c] = elementwise_axes(inputs.subspan(c, 1), y, 1).inputs[0];
    return map;
  }

  MatrixProblem problem(std::span<const InputInfo> inputs) const override {
    const Shape &of_a = required_input(inputs, a, "A").shape, &of_b = required_input(inputs, b, "B").shape;
    if (of_a.rank() != 2 || of_b.rank() != 2)
      throw Error(ErrorKind::invalid_model, fmt::format("A {} and B {} must be matrices", of_a.str(), of_b.str()));
    MatrixProblem p{.gemm_m = of_a[trans_a_ ? 1 : 0],
                    .gemm_n = of_b[trans_b_ ? 0 : 1],
                    .gemm_k = of_a[trans_a_ ? 0 : 1],
                    .trans_a = trans_a_,
                    .trans_b = trans_b_,
                    .b_known = inputs[b].constant != nullptr,
                    .channels = a_channels_,
                    .alpha = alpha_,
                    .beta = static_cast<float>(epilogue_.bias_factor),
                    .scale = epilogue_.scale,
                    .c = present(inputs, c),
                    .activation = epilogue_.activation};
    p.y = Shape{p.gemm_m, p.gemm_n};
    if (of_b[trans_b_ ? 1 : 0] != p.gemm_k)
      throw Error(ErrorKind::invalid_model, fmt::format("A {}{} and B {}{} do not multiply", of_a.str(),
                                                        trans_a_ ? "^T" : "", of_b.str(), trans_b_ ? "^T" : ""));
    if (p.c) {
      const Shape& of_c = inputs[c].type.shape;
      const int rank = of_c.rank();
      if (rank > 2 || !(broadcast_shapes(of_c, p.y) == p.y))
        throw Error(ErrorKind::invalid_model, fmt::format("C {} does not broadcast to {}", of_c.str(), p.y.str()));
      p.c_col = rank > 0 && of_c[rank - 1] != 1 ? 1 : 0;
      p.c_row = rank == 2 && of_c[0] != 1 ? of_c[1] : 0;
    }
    if (a_channels_ != 0 && (a_channels_ < 0 || p.gemm_k % a_channels_ != 0 || trans_a_))
      throw Error(ErrorKind::internal, fmt::format("a_channels = {} of {} columns", a_channels_, p.gemm_k));
    if (!p.scale.empty() && static_cast<std::int64_t>(p.scale.size()) != p.gemm_n)
      throw Error(ErrorKind::internal, "weight_scale does not fit B");
    return p;
  }

 private:
  float alpha_ = 1;
  bool trans_a_ = false, trans_b_ = false;
  std::int64_t a_channels_ = 0;
  Epilogue epilogue_;
};

}  // namespace

OpParts gemm_op() {
  return {.make = [](const NodeSpec& spec) -> std::shared_ptr<const Op> { return std::make_shared<GemmOp>(spec); }};
}

}  // namespace lenslet
