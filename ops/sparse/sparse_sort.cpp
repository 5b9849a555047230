// SparseSort: sorts sites, drops empty rows among them, and changes the bound: to the form that all other operators on
// sparse values require.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/cuda_built.h"
#include "ops/core/grain.h"
#include "ops/core/kernel.h"
#include "ops/sparse/bound_checking.h"
#include "ops/sparse/clear.h"
#include "ops/sparse/cuda/features_cuda.h"
#include "ops/sparse/grid.h"
#include "ops/sparse/sort_sites.h"

namespace lenslet {

namespace {

/// Inputs: indices, features [sites,C]. Outputs: the same, sorted.
class SparseSort final : public Op {
 public:
  explicit SparseSort(const NodeSpec& spec) {
    AttributeReader reader(spec);
    grid_ = read_grid(reader);
    max_sites_ = read_bound(reader, "max_sites");
    reader.finish();
  }

  std::string_view type() const override { return "SparseSort"; }
  AttributeList attributes() const override {
    AttributeList list;
    append_grid(list, grid_);
    if (max_sites_) list.emplace_back("max_sites", *max_sites_);
    return list;
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = require_features(inputs, grid_.dims);
    const std::int64_t most = max_sites_.value_or(x.shape[0]);
    if (most > INT32_MAX || x.shape[0] > INT32_MAX)
      throw Error(ErrorKind::unsupported, fmt::format("{} sites are more than 31 bits can count", x.shape[0]));
    return {{DType::i32, {most, 1 + grid_.dims}}, {x.dtype, {most, x.shape[1]}}};
  }

  const SparseGrid& grid() const { return grid_; }

 private:
  SparseGrid grid_;
  std::optional<std::int64_t> max_sites_;
};

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  const SparseGrid grid = binding.op<SparseSort>().grid();
  const std::int64_t rows = binding.shape(0)[0], channels = binding.shape(1)[1], most = binding.output_shape(0)[0];
  const auto workspace = static_cast<std::size_t>(rows) * 2 * sizeof(SiteEntry);
  return bound(
      [=](const KernelRun& run) {
        const std::int32_t* const indices = run.in<std::int32_t>(0);
        const float* const x = run.in<float>(1);
        auto* const to_indices = run.out<std::int32_t>(0);
        float* const y = run.out<float>(1);
        auto* const entries = reinterpret_cast<SiteEntry*>(run.workspace.data());
        const SiteKeys key(grid);
        std::int64_t sites = 0, largest = 0;
        bool sorted = true;
        for (std::int64_t i = 0; i < rows; ++i) {
          const auto site = site_at(indices, grid.dims, i);
          if (site[0] < 0) continue;
          if (!on_grid(grid, site))
            throw Error(ErrorKind::invalid_argument,
                        fmt::format("site {} {} lies outside {}", i, site_text(indices, grid.dims, i), grid.str()));
          entries[sites] = {key(site[0], site[1], site[2], site[3]), i};
          sorted = sorted && (sites == 0 || entries[sites - 1].key < entries[sites].key);
          largest = std::max(largest, entries[sites++].key);
        }
        const SiteEntry* const order = sorted ? entries : radix_sorted(entries, entries + rows, sites, largest);
        for (std::int64_t i = 1; i < sites; ++i)
          if (order[i].key == order[i - 1].key)
            throw Error(ErrorKind::invalid_argument,
                        fmt::format("site {} {} occurs twice: site {} is the same", order[i].row,
                                    site_text(indices, grid.dims, order[i].row), order[i - 1].row));
        if (sites > most) refuse_count(sites, most, "sites", "max_sites");
        const std::int64_t width = 1 + grid.dims;
        run.pool->parallel_for(sites, std::max<std::int64_t>(1, elementwise_grain / (channels + width)),
                               [&](std::int64_t begin, std::int64_t end, int) {
                                 for (std::int64_t i = begin; i < end; ++i) {
                                   const std::int64_t from = order[i].row;
                                   std::copy_n(indices + from * width, width, to_indices + i * width);
                                   std::copy_n(x + from * channels, channels, y + i * channels);
                                 }
                               });
        fill_with_none(to_indices + sites * width, (most - sites) * width, *run.pool);
        clear_rows(y, sites, most, channels, *run.pool);
      },
      workspace);
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  if constexpr (cuda_built) {
    const SparseGrid grid = binding.op<SparseSort>().grid();
    const cuda::SortSizes sizes{
        .rows = binding.shape(0)[0], .channels = binding.shape(1)[1], .most = binding.output_shape(0)[0]};
    const std::size_t element_bytes = dtype_bytes(binding.problem.inputs()[1].type.dtype);
    return bound_checking(
        [=](const KernelRun& run) {
          cuda::sparse_sort(*run.cuda, grid, sizes, element_bytes, run.in<std::int32_t>(0), run.in<void>(1),
                            run.out<std::int32_t>(0), run.out<void>(1), run.workspace.data());
        },
        cuda::sparse_sort_workspace_bytes(sizes), {.grid = grid, .max_sites = sizes.most});
  }
  return nullptr;
}

constexpr auto kernels =
    on_both({.types = dtypes<Types<float>>, .more_on_cuda = dtypes<Types<Float16, BFloat16>>, .typed_input = 1},
            bind_cpu, bind_cuda);

}  // namespace

OpParts sparse_sort() { return {make_from<SparseSort>, kernels}; }

}  // namespace lenslet
