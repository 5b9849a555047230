// SparseVoxelize: points to sites; features are the mean of a cell's points (SECOND's simplified voxel encoder).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/core/kernel.h"
#include "ops/sparse/bound_checking.h"
#include "ops/sparse/clear.h"
#include "ops/sparse/cuda/features_cuda.h"
#include "ops/sparse/grid.h"
#include "ops/sparse/sort_sites.h"

namespace lenslet {

namespace {

/// Input: points [points,columns] or [images,points,columns]. Outputs: indices, features [max_sites,columns].
class SparseVoxelize final : public Op {
 public:
  explicit SparseVoxelize(const NodeSpec& spec) {
    AttributeReader reader(spec);
    read_three(reader, "voxel_size", size_);
    read_three(reader, "range_min", low_);
    read_three(reader, "range_max", high_);
    max_sites_ = read_bound(reader, "max_sites");
    reader.finish();
    for (std::size_t a = 0; a < 3; ++a) {
      const double cells = std::round((double{high_[a]} - double{low_[a]}) / double{size_[a]});
      // Written so that NaN fails.
      if (!(size_[a] > 0) || !(cells >= 1 && cells <= 1 << 30))
        throw Error(
            ErrorKind::invalid_model,
            fmt::format("attributes range_min, range_max and voxel_size make no 1 to 2^30 cells of axis {}", "xyz"[a]));
      grid_.size[2 - a] = static_cast<std::int64_t>(cells);
    }
    require_countable(grid_, {0, 0, 0});
  }

  std::string_view type() const override { return "SparseVoxelize"; }
  AttributeList attributes() const override {
    const auto list_of = [](const std::array<float, 3>& three) {
      return std::vector<double>(three.begin(), three.end());
    };
    AttributeList list{{"voxel_size", list_of(size_)}, {"range_min", list_of(low_)}, {"range_max", list_of(high_)}};
    if (max_sites_) list.emplace_back("max_sites", *max_sites_);
    return list;
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& points = required_input(inputs, 0, "points");
    require_rank("points", points.shape, 2, 3);
    const int last = points.shape.rank() - 1;
    const std::int64_t columns = points.shape[last], all = points.shape.elems() / std::max<std::int64_t>(1, columns);
    if (columns < 3)
      throw Error(ErrorKind::invalid_model, fmt::format("points {} have no x, y and z", points.shape.str()));
    SparseGrid grid = grid_;
    if (last == 2) grid.images = points.shape[0];
    require_countable(grid, {0, 0, 0});
    const std::int64_t most = max_sites_.value_or(std::min(all, grid.cells()));
    if (most > INT32_MAX || all > INT32_MAX)
      throw Error(ErrorKind::unsupported, fmt::format("{} points are more than 31 bits can count", all));
    return {{DType::i32, {most, 4}}, {points.dtype, {most, columns}}};
  }

  const SparseGrid& grid() const { return grid_; }
  const std::array<float, 3>& voxel_size() const { return size_; }
  const std::array<float, 3>& low() const { return low_; }

 private:
  static void read_three(AttributeReader& reader, const char* name, std::array<float, 3>& to) {
    const std::vector<double> values = reader.reals(name);
    if (values.size() != 3)
      throw Error(ErrorKind::invalid_model,
                  fmt::format("attribute {} has {} entries, not x, y, z", name, values.size()));
    std::transform(values.begin(), values.end(), to.begin(), [](double value) { return static_cast<float>(value); });
  }

  std::array<float, 3> size_{}, low_{}, high_{};
  SparseGrid grid_;
  std::optional<std::int64_t> max_sites_;
};

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  const auto& op = binding.op<SparseVoxelize>();
  const Shape& shape = binding.shape(0);
  const int last = shape.rank() - 1;
  const std::int64_t columns = shape[last], rows = shape[last - 1], images = last == 2 ? shape[0] : 1;
  const std::int64_t points = images * rows, most = binding.output_shape(0)[0];
  const SparseGrid grid = op.grid();
  const std::array<float, 3> low = op.low(), size = op.voxel_size();
  // Two copies of the entries for sorting, and the first entry of each site.
  const auto workspace = static_cast<std::size_t>(points * 2) * sizeof(SiteEntry) +
                         static_cast<std::size_t>(most + 1) * sizeof(std::int64_t);
  return bound(
      [=](const KernelRun& run) {
        const float* const x = run.in<float>(0);
        auto* const indices = run.out<std::int32_t>(0);
        float* const y = run.out<float>(1);
        auto* const entries = reinterpret_cast<SiteEntry*>(run.workspace.data());
        auto* const begins = reinterpret_cast<std::int64_t*>(entries + 2 * points);
        const SiteKeys key(grid);
        std::int64_t inside = 0, largest = 0;
        for (std::int64_t i = 0; i < points; ++i) {
          const float* const point = x + i * columns;
          std::array<std::int64_t, 3> cell{};  // x, y, z
          bool is_inside = true;
          for (std::size_t a = 0; a < 3; ++a) {
            // In float32 like spconv's point2voxel, so that points on cell faces fall into the same cell.
            const float at = std::floor((point[a] - low[a]) / size[a]);
            is_inside = is_inside && at >= 0 && at < static_cast<float>(grid.size[2 - a]);
            cell[a] = is_inside ? static_cast<std::int64_t>(at) : 0;
          }
          if (!is_inside) continue;
          entries[inside] = {key(i / std::max<std::int64_t>(1, rows), cell[2], cell[1], cell[0]), i};
          largest = std::max(largest, entries[inside++].key);
        }
        const SiteEntry* const order = radix_sorted(entries, entries + points, inside, largest);
        std::int64_t sites = 0;
        for (std::int64_t i = 0; i < inside; ++i) {
          if (i > 0 && order[i].key == order[i - 1].key) continue;
          if (sites < most) begins[sites] = i;
          ++sites;
        }
        if (sites > most) refuse_count(sites, most, "sites", "max_sites");
        begins[sites] = inside;
        run.pool->parallel_for(sites, std::max<std::int64_t>(1, elementwise_grain / (columns + 4)),
                               [&](std::int64_t begin, std::int64_t end, int) {
                                 for (std::int64_t site = begin; site < end; ++site) {
                                   put_cell(indices, grid, site, order[begins[site]].key);
                                   const auto count = static_cast<double>(begins[site + 1] - begins[site]);
                                   for (std::int64_t c = 0; c < columns; ++c) {
                                     double sum = 0;  // in the order of the points
                                     for (std::int64_t i = begins[site]; i < begins[site + 1]; ++i)
                                       sum += x[order[i].row * columns + c];
                                     y[site * columns + c] = static_cast<float>(sum / count);
                                   }
                                 }
                               });
        fill_with_none(indices + sites * 4, (most - sites) * 4, *run.pool);
        clear_rows(y, sites, most, columns, *run.pool);
      },
      workspace);
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  if constexpr (cuda_built) {
    const auto& op = binding.op<SparseVoxelize>();
    const SparseGrid grid = op.grid();
    const Shape& shape = binding.shape(0);
    const int last = shape.rank() - 1;
    const cuda::VoxelSizes sizes{.images = last == 2 ? shape[0] : 1,
                                 .rows = shape[last - 1],
                                 .columns = shape[last],
                                 .most = binding.output_shape(0)[0],
                                 .low = op.low(),
                                 .size = op.voxel_size()};
    return bound_checking(
        [=](const KernelRun& run) {
          cuda::sparse_voxelize(*run.cuda, grid, sizes, run.in<float>(0), run.out<std::int32_t>(0), run.out<float>(1),
                                run.workspace.data());
        },
        cuda::sparse_voxelize_workspace_bytes(sizes), {.grid = grid, .max_sites = sizes.most});
  }
  return nullptr;
}

// Means are summed in double and rounded once.
constexpr auto kernels = on_both({.types = dtypes<Types<float>>, .tolerance = 0x1.01p-24}, bind_cpu, bind_cuda);

}  // namespace

OpParts sparse_voxelize() { return {make_from<SparseVoxelize>, kernels}; }

}  // namespace lenslet
