// MatMulInteger, whose result is the int32 accumulators, and QLinearMatMul, which requantises them.

#include <fmt/format.h>

#include <algorithm>

#include "base/cuda_built.h"
#include "ops/core/grain.h"
#include "ops/gemm/problem.h"
#include "ops/quantized/integer_product_cuda.h"
#include "ops/quantized/quantized_op.h"

namespace lenslet {
namespace {

/// A product of matrices in numbers.
struct IntegerMatMul {
  MatrixProblem shape;
  IntegerLines lines;
};

/// Inputs of MatMulInteger: A, B, a_zero_point, b_zero_point (both optional). Of QLinearMatMul: a, a_scale,
/// a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point. A's parameters are per tensor or per row, B's per
/// tensor or per column.
class IntegerMatMulOp final : public Op {
 public:
  explicit IntegerMatMulOp(const NodeSpec& spec) : quantizes_(spec.name == "QLinearMatMul") {
    AttributeReader(spec).finish();
  }

  std::string_view type() const override { return quantizes_ ? "QLinearMatMul" : "MatMulInteger"; }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const DType dtype = this->inputs().result_type(inputs);
    return {{dtype, problem(inputs).shape.y}};
  }
  double flops(std::span<const InputInfo> inputs, std::span<const TensorType> outputs) const override {
    return 2.0 * static_cast<double>(outputs[0].shape.elems()) * static_cast<double>(problem(inputs).shape.gemm_k);
  }
  /// An axis with its own parameter values is not followed, as these would have to move with it.
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    const IntegerLines lines = problem(inputs).lines;
    if (lines.left_zero.step + lines.left_scale.step + lines.right_zero.matrix + lines.right_scale.matrix != 0)
      return std::nullopt;
    const std::size_t b = this->inputs().right;
    AxisMap map = matmul_axes(inputs, this->inputs().left, b, y);
    if (lines.right_zero.step + lines.right_scale.step != 0)
      map.inputs[b].axis[static_cast<std::size_t>(y.rank() - 1)] = AxisMap::none;
    return map;
  }

  IntegerInputs inputs() const {
    if (!quantizes_) return {};
    return {.left = 0,
            .right = 3,
            .left_zero = 2,
            .right_zero = 5,
            .left_scale = 1,
            .right_scale = 4,
            .y_scale = 6,
            .y_zero = 7};
  }

  IntegerMatMul problem(std::span<const InputInfo> inputs) const {
    const IntegerInputs in = this->inputs();
    const Shape &a = inputs[in.left].type.shape, &b = inputs[in.right].type.shape;
    IntegerMatMul p{matmul_problem(a, b), {}};
    const auto lines = [&](std::size_t input, const Shape& of, int axis, std::int64_t count) {
      if (!present(inputs, input) || inputs[input].type.shape.elems() == 1) return Lines{};
      const Shape& own = inputs[input].type.shape;
      if (own.rank() == 1 && of.rank() >= 2 && own[0] == count) return Lines{.step = 1};
      if (of.rank() >= 2 && own == of.with(axis == of.rank() - 1 ? axis - 1 : axis + 1, 1))
        return Lines{.step = 1, .matrix = count};
      throw Error(ErrorKind::invalid_model,
                  fmt::format("a parameter of shape {} does not fit the operand {}", own.str(), of.str()));
    };
    const auto left = [&](std::size_t input) { return lines(input, a, a.rank() - 2, p.shape.gemm_m); };
    const auto right = [&](std::size_t input) { return lines(input, b, b.rank() - 1, p.shape.gemm_n); };
    p.lines = {left(in.left_zero), right(in.right_zero), left(in.left_scale), right(in.right_scale)};
    return p;
  }

 private:
  bool quantizes_;
};

IntegerMatMul problem_of(const Problem& node) { return node.as<IntegerMatMulOp>().problem(node.inputs()); }

/// The right operand in panels.
struct Panels {
  std::int64_t n, k, columns = integer_panel_columns(), words;

  explicit Panels(const MatrixProblem& p) : n(p.gemm_n), k(p.gemm_k), words(integer_words(k)) {}
  std::int64_t count() const { return (n + columns - 1) / columns; }
  std::int64_t elems() const { return integer_line(words) * columns; }  ///< words of one

  void pack(const IntegerOperand& b, std::int64_t matrix, std::int64_t panel, std::int32_t* to) const {
    const PanelColumns own{matrix, panel * columns, std::min(columns, n - panel * columns)};
    pack_integer_panel(b, own, b.data + matrix * k * n + own.first, n, k, to);
    close_integer_panel(b, own, words, to);
  }
};

class BoundCpu final : public BoundKernel {
 public:
  explicit BoundCpu(const Binding& binding)
      : inputs_(binding.op<IntegerMatMulOp>().inputs()),
        p_(problem_of(binding.problem)),
        runs_(product_runs(p_.shape)),
        panels_(p_.shape),
        known_(is_known(binding.problem.inputs(), inputs_.right, inputs_.right_zero)),
        threads_(binding.threads()) {}

  std::size_t workspace_bytes() const override {
    const std::int64_t packed = known_ ? 0 : threads_ * panels_.elems();
    return static_cast<std::size_t>(rows() * integer_line(panels_.words) + packed) * sizeof(std::int32_t);
  }

  void run(const KernelRun& run) const override {
    const MatrixProblem& shape = p_.shape;
    const std::int64_t m = shape.gemm_m, n = shape.gemm_n, k = shape.gemm_k, line = integer_line(panels_.words);
    const IntegerRun of(run, inputs_, p_.lines);
    auto* const left = reinterpret_cast<std::int32_t*>(run.workspace.data());
    const std::int64_t row_grain = std::max<std::int64_t>(1, elementwise_grain / (k + 1));
    run.pool->parallel_for(rows(), row_grain, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t row = begin; row < end; ++row)
        pack_integer_row(of.left, of.left.zero_point(row / m, row % m), of.left.data + row * k, 1, k,
                         left + row * line);
    });
    // A panel's rows in blocks, so that few panels keep all threads busy.
    constexpr std::int64_t block = 192;
    const std::int64_t blocks = (m + block - 1) / block;
    for (const ProductRun& products : runs_)
      run.pool->parallel_for(
          products.count * panels_.count() * blocks, integer_grain(std::min(m, block) * panels_.elems()),
          [&](std::int64_t begin, std::int64_t end, int worker) {
            std::int64_t packed = -1;
            std::int32_t* const own = left + rows() * line + worker * panels_.elems();
            for (std::int64_t item = begin; item < end; ++item) {
              const std::int64_t panel = item / blocks % panels_.count(), product = item / blocks / panels_.count();
              const std::int64_t a = products.a + product * products.a_step, b = products.b + product * products.b_step;
              const std::int64_t first_row = item % blocks * block, j = panel * panels_.columns;
              if (!known_ && packed != item / blocks) {
                packed = item / blocks;
                panels_.pack(of.right, b, panel, own);
              }
              const auto* const known = reinterpret_cast<const std::int32_t*>(run.blob);
              multiply_rows(left + (a * m + first_row) * line, std::min(block, m - first_row), panels_.words,
                            known_ ? known + (b * panels_.count() + panel) * panels_.elems() : own,
                            [&](std::int64_t row, std::int64_t count, const std::int32_t* sums) {
                              const std::int64_t i = first_row + row;
                              store_integer_rows(of.result, sums, count, {a, b, i, j}, std::min(panels_.columns, n - j),
                                                 ((products.y + product) * m + i) * n + j, n);
                            });
            }
          });
  }

 private:
  std::int64_t rows() const { return p_.shape.batch_a.elems() * p_.shape.gemm_m; }

  IntegerInputs inputs_;
  IntegerMatMul p_;
  std::vector<ProductRun> runs_;
  Panels panels_;
  bool known_;
  int threads_;
};

Offer offer(const Problem& node, const Target& target) {
  const IntegerInputs inputs = node.as<IntegerMatMulOp>().inputs();
  const bool known = is_known(node.inputs(), inputs.right, inputs.right_zero);
  return offer_prepared(node, target, known ? input_bit(inputs.right) | input_bit(inputs.right_zero) : no_inputs,
                        bind<BoundCpu>);
}

std::optional<BlobSpec> blob(const Problem& node, const Candidate&) {
  const IntegerInputs inputs = node.as<IntegerMatMulOp>().inputs();
  const MatrixProblem shape = problem_of(node).shape;
  const Panels panels(shape);
  const std::int64_t elems = shape.batch_b.elems() * panels.count() * panels.elems();
  if (!is_known(node.inputs(), inputs.right, inputs.right_zero) || elems == 0) return std::nullopt;
  return BlobSpec{.key = fmt::format("columns={} terms={}", panels.columns, integer_word_k()),
                  .bytes = static_cast<std::size_t>(elems) * sizeof(std::int32_t)};
}

void prepare(const Problem& node, const Candidate&, std::span<std::byte> blob) {
  const IntegerInputs inputs = node.as<IntegerMatMulOp>().inputs();
  const IntegerMatMul p = problem_of(node);
  const Panels panels(p.shape);
  const IntegerOperand b = operand_of(node, inputs.right, inputs.right_zero, p.lines.right_zero);
  auto* to = reinterpret_cast<std::int32_t*>(blob.data());
  for (std::int64_t matrix = 0; matrix < p.shape.batch_b.elems(); ++matrix)
    for (std::int64_t panel = 0; panel < panels.count(); ++panel, to += panels.elems())
      panels.pack(b, matrix, panel, to);
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  const IntegerMatMul p = problem_of(binding.problem);
  return bound(
      [p, runs = product_runs(p.shape), inputs = binding.op<IntegerMatMulOp>().inputs()](const KernelRun& run) {
        const IntegerRun of(run, inputs, p.lines);
        if constexpr (cuda_built)
          for (const ProductRun& products : runs)
            cuda::multiply_integers(*run.cuda, {p.shape.gemm_m, p.shape.gemm_n, p.shape.gemm_k, products}, of.left,
                                    of.right, of.result);
      });
}

std::optional<std::string> refuse_cuda(const Problem& node) {
  const MatrixProblem p = problem_of(node).shape;
  for (const std::int64_t elems : {p.batch_a.elems() * p.a_floats(), p.batch_b.elems() * p.b_floats(), p.y.elems()})
    if (elems > cuda::most_integers) return "a matrix of more than 2^30 elements";
  return std::nullopt;
}

constexpr SimpleKernel kernels[] = {
    {.types = dtypes<Int8Types>, .offer = offer, .bind = bind<BoundCpu>, .blob = blob, .prepare = prepare},
    {.device = DeviceKind::cuda, .types = dtypes<Int8Types>, .refuse = refuse_cuda, .bind = bind_cuda}};

}  // namespace

OpParts matmul_integer() { return {make_from<IntegerMatMulOp>, kernels}; }

}  // namespace lenslet
