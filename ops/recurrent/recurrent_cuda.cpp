// LSTM, GRU and RNN on CUDA: Gemm's kernel computes the product with W for all steps, recurrent.cu the steps.

#include "ops/recurrent/recurrent_cuda.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/config_text.h"
#include "ops/core/sum_tolerance.h"
#include "ops/gemm/problem.h"

namespace lenslet {
namespace {

/// X [seq*batch,input] times the transpose of W [directions*gates*hidden,input], both in place.
Problem input_product(const Problem& node) {
  static_assert(int{RecurrentOp::x} == int{MatrixOp::a} && int{RecurrentOp::w} == int{MatrixOp::b});
  const RecurrentProblem q = recurrent_problem(node);
  std::vector<InputInfo> inputs(node.inputs().begin(), node.inputs().begin() + 2);
  inputs[MatrixOp::a].type.shape = {q.seq * q.batch, q.input};
  inputs[MatrixOp::b].type.shape = {q.all_columns(), q.input};
  const TensorType y{DType::f32, {q.seq * q.batch, q.all_columns()}};
  return {make_normalised_op("Gemm", {{"transB", std::int64_t{1}}}, 2), inputs, {y}};
}

/// The product's part of the candidate, for its own kernel.
Candidate of_product(Candidate candidate) {
  candidate.inputs.assign(2, formats::nchw);
  candidate.outputs.assign(1, formats::nchw);
  return candidate;
}

std::size_t aligned(std::int64_t floats) { return static_cast<std::size_t>((floats + 63) / 64 * 64) * sizeof(float); }

class BoundOnCuda final : public BoundKernel {
 public:
  explicit BoundOnCuda(const Binding& binding) : q_(recurrent_problem(binding.problem)) {
    const Problem product = input_product(binding.problem);
    x_ = product.shape(MatrixOp::a);
    w_ = product.shape(MatrixOp::b);
    gates_ = product.output_shape();
    if (gates_.elems() > 0)
      product_ = cuda_product().bind({product, of_product(binding.candidate), binding.device});
    else
      ConfigReader(binding.candidate.config).finish();
    states_at_ = aligned(gates_.elems());
    product_at_ = states_at_ + aligned(cuda::recurrent_state_floats(q_));
    const std::size_t i = RecurrentOp::lengths;
    checks_ = present(binding.problem.inputs(), i) && binding.constant(i) == nullptr;
  }

  std::size_t workspace_bytes() const override {
    return product_at_ + (product_ == nullptr ? 0 : product_->workspace_bytes());
  }
  std::string fault() const override {
    return checks_ ? fmt::format("an entry of sequence_lens is outside [0,{}]", q_.seq) : std::string();
  }

  void run([[maybe_unused]] const KernelRun& run) const override {
    if constexpr (cuda_built) {
      std::byte* const workspace = run.workspace.data();
      auto* const gates = reinterpret_cast<float*>(workspace);
      if (product_ != nullptr) {
        const auto flat = [](const Tensor& of, const Shape& shape) {
          return of.empty() ? Tensor() : Tensor::share(of.dtype(), shape, nullptr, of.data());
        };
        const std::array<Tensor, 2> inputs{flat(run.inputs[MatrixOp::a], x_), flat(run.inputs[MatrixOp::b], w_)};
        std::array<Tensor, 1> outputs{Tensor::view(DType::f32, gates_, gates)};
        product_->run({.inputs = inputs,
                       .outputs = outputs,
                       .workspace = run.workspace.subspan(product_at_),
                       .blob = run.blob,
                       .cuda = run.cuda});
      }
      cuda::recurrent_steps(*run.cuda, q_,
                            {.gates = gates,
                             .r = run.in<float>(RecurrentOp::r),
                             .b = run.in<float>(RecurrentOp::b),
                             .initial_h = run.in<float>(RecurrentOp::initial_h),
                             .initial_c = run.in<float>(RecurrentOp::initial_c),
                             .p = run.in<float>(RecurrentOp::p),
                             .lengths = run.in<std::int32_t>(RecurrentOp::lengths),
                             .y = run.out<float>(RecurrentOp::y),
                             .y_h = run.out<float>(RecurrentOp::y_h),
                             .y_c = run.out<float>(RecurrentOp::y_c),
                             .states = reinterpret_cast<float*>(workspace + states_at_)});
    }
  }

 private:
  const RecurrentProblem q_;
  Shape x_, w_, gates_;
  std::unique_ptr<const BoundKernel> product_;  ///< null: there is nothing to multiply
  /// The workspace in bytes: gates of all steps, then these offsets.
  std::size_t states_at_ = 0, product_at_ = 0;
  bool checks_;
};

}  // namespace

Offer offer_recurrent_cuda(const Problem& node, const Target& target) {
  const RecurrentProblem q = recurrent_problem(node);
  if (q.hidden > cuda::most_hidden) return Offer::refuse(fmt::format("hidden_size {} exceeds 2^18", q.hidden));
  const Problem product = input_product(node);
  Offer offer = cuda_product().offer(product, target);
  for (Candidate& candidate : offer.candidates) {
    const double excess = candidate.tolerance - sum_tolerance(q.input);  // of TF32
    candidate.inputs.assign(node.inputs().size(), formats::nchw);
    candidate.outputs.assign(node.outputs().size(), formats::nchw);
    const bool reads_w = (candidate.reads & input_bit(RecurrentOp::w)) != 0;
    candidate.reads = reads_w ? all_inputs : all_inputs & ~input_bit(RecurrentOp::w);
    candidate.tolerance = recurrent_tolerance(q, excess);
    if (product.output_shape().elems() == 0) candidate.config.clear();  // nothing is multiplied
    candidate.estimated_us += static_cast<double>(q.seq) * target.device.launch_us;
    candidate.workspace_bytes = BoundOnCuda({node, candidate, target.device}).workspace_bytes();
  }
  return offer;
}

std::optional<BlobSpec> recurrent_cuda_blob(const Problem& node, const Candidate& candidate) {
  const Problem product = input_product(node);
  if (product.output_shape().elems() == 0) return std::nullopt;
  return cuda_product().blob(product, of_product(candidate));
}
void prepare_recurrent_cuda(const Problem& node, const Candidate& candidate, std::span<std::byte> blob) {
  cuda_product().prepare(input_product(node), of_product(candidate), blob);
}
std::unique_ptr<const BoundKernel> bind_recurrent_cuda(const Binding& binding) {
  return std::make_unique<BoundOnCuda>(binding);
}

}  // namespace lenslet
