// SparseMaxPool: per channel the maximum of the inputs paired with an output. Cells without a site are ignored, not
// zero.
#include <fmt/format.h>

#include <algorithm>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/sparse/bound_checking.h"
#include "ops/sparse/clear.h"
#include "ops/sparse/cuda/features_cuda.h"
#include "ops/sparse/rulebook.h"
#include "ops/sparse/sparse_conv.h"

namespace lenslet {

namespace {

constexpr std::int64_t block_rows = 256;

/// Inputs: x [sites,C], rulebook (regular), sites (indices of the outputs).
class SparseMaxPool final : public Op {
 public:
  explicit SparseMaxPool(const NodeSpec& spec) {
    AttributeReader reader(spec);
    const std::vector<std::int64_t> kernel = reader.integers("kernel_shape");
    if (kernel.size() != 2 && kernel.size() != 3)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("attribute kernel_shape has {} entries; 2-D and 3-D are supported", kernel.size()));
    dims_ = static_cast<int>(kernel.size());
    kernel_ = read_per_axis(reader, "kernel_shape", dims_, 1, 1, 1, 5);
    reader.finish();
  }

  std::string_view type() const override { return "SparseMaxPool"; }
  AttributeList attributes() const override { return {{"kernel_shape", last_axes(kernel_, dims_)}}; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "x");
    const TensorType& book = required_input(inputs, 1, "rulebook");
    const TensorType& sites = required_input(inputs, 2, "sites");
    require_rank("x", x.shape, 2, 2);
    require_dtype("rulebook", book.dtype, {DType::i32});
    require_rank("rulebook", book.shape, 1, 1);
    require_indices(sites, dims_);
    const std::int64_t rest = book.shape[0] - rulebook_header(taps());
    if (rest < 0 || rest % 2 != 0)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("a rulebook {} is no regular one of {} taps", book.shape.str(), taps()));
    return {{x.dtype, {sites.shape[0], x.shape[1]}}};
  }

  std::int64_t taps() const { return kernel_[0] * kernel_[1] * kernel_[2]; }

 private:
  int dims_;
  PerAxis kernel_;
};

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  const std::int64_t taps = binding.op<SparseMaxPool>().taps(), channels = binding.shape(0)[1];
  const std::int64_t most_inputs = binding.shape(0)[0], most_outputs = binding.output_shape()[0];
  return bound([=](const KernelRun& run) {
    const RulebookView book(run.inputs[1], taps, false, false, most_inputs, most_outputs);
    const float* const x = run.in<float>(0);
    float* const y = run.out<float>();
    const std::int64_t outputs = book.outputs();
    run.pool->parallel_for(outputs, block_rows, [&](std::int64_t first, std::int64_t last, int) {
      // Rows that have a value already: the first one is copied, so that no infinity is needed as a start.
      std::fill(y + first * channels, y + last * channels, 0.0F);
      for (std::int64_t begin = first; begin < last; begin += block_rows) {
        const std::int64_t end = std::min(last, begin + block_rows);
        bool has[block_rows] = {};
        for (std::int64_t tap = 0; tap < taps; ++tap) {
          const TapPairs pairs = book.pairs(tap);
          const std::int64_t from = first_pair(pairs, begin);
          const std::int64_t to = end_of_pairs(pairs, from, begin, end, book.inputs());
          for (std::int64_t p = from; p < to; ++p) {
            const float* const row = x + pairs.in[p] * channels;
            float* const into = y + pairs.out[p] * channels;
            bool& filled = has[pairs.out[p] - begin];
            // A NaN stays, because comparisons with it are false.
            for (std::int64_t c = 0; c < channels; ++c)
              if (!filled || row[c] > into[c] || row[c] != row[c]) into[c] = row[c];
            filled = true;
          }
        }
      }
    });
    clear_rows(y, outputs, most_outputs, channels, *run.pool);
  });
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  if constexpr (cuda_built) {
    const std::int64_t taps = binding.op<SparseMaxPool>().taps();
    const cuda::SparsePoolSizes sizes{.taps = taps,
                                      .capacity = (binding.shape(1)[0] - rulebook_header(taps)) / 2,
                                      .most_inputs = binding.shape(0)[0],
                                      .most_outputs = binding.output_shape()[0],
                                      .channels = binding.shape(0)[1]};
    const DType dtype = binding.problem.inputs()[0].type.dtype;
    return bound_checking(
        [=](const KernelRun& run) {
          cuda::sparse_max_pool(*run.cuda, sizes, dtype, run.in<void>(0), run.in<std::int32_t>(1), run.out<void>());
        },
        0, {.taps = taps, .most_inputs = sizes.most_inputs, .most_outputs = sizes.most_outputs});
  }
  return nullptr;
}

constexpr auto kernels =
    on_both({.types = dtypes<Types<float>>, .more_on_cuda = dtypes<Types<Float16, BFloat16>>}, bind_cpu, bind_cuda);

}  // namespace

OpParts sparse_max_pool() { return {make_from<SparseMaxPool>, kernels}; }

}  // namespace lenslet
