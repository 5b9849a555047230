// SparseToDense: features of sites to images [N,C,spatial axes], zero elsewhere. SparseFromDense: the reverse; sites
// are cells with a nonzero channel.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/core/kernel.h"
#include "ops/sparse/bound_checking.h"
#include "ops/sparse/clear.h"
#include "ops/sparse/cuda/features_cuda.h"
#include "ops/sparse/grid.h"

namespace lenslet {

namespace {

/// Inputs: indices, features [sites,C].
class SparseToDense final : public Op {
 public:
  explicit SparseToDense(const NodeSpec& spec) {
    AttributeReader reader(spec);
    grid_ = read_grid(reader);
    reader.finish();
  }

  std::string_view type() const override { return "SparseToDense"; }
  AttributeList attributes() const override {
    AttributeList list;
    append_grid(list, grid_);
    return list;
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = require_features(inputs, grid_.dims);
    std::vector<std::int64_t> dims{grid_.images, x.shape[1]};
    for (const std::int64_t size : last_axes(grid_.size, grid_.dims)) dims.push_back(size);
    return {{x.dtype, Shape(std::span<const std::int64_t>(dims))}};
  }

  const SparseGrid& grid() const { return grid_; }

 private:
  SparseGrid grid_;
};

std::unique_ptr<const BoundKernel> bind_to_dense(const Binding& binding) {
  const SparseGrid grid = binding.op<SparseToDense>().grid();
  const std::int64_t bound_rows = binding.shape(0)[0], channels = binding.shape(1)[1];
  return bound([=](const KernelRun& run) {
    const std::int32_t* const indices = run.in<std::int32_t>(0);
    const float* const x = run.in<float>(1);
    float* const y = run.out<float>();
    const SiteKeys cell(grid);
    const std::int64_t sites = read_sites(indices, bound_rows, grid, cell, nullptr);
    const std::int64_t volume = grid.cells() / grid.images;
    run.pool->parallel_for(grid.cells() * channels, elementwise_grain,
                           [&](std::int64_t begin, std::int64_t end, int) { std::fill(y + begin, y + end, 0.0F); });
    run.pool->parallel_for(sites, std::max<std::int64_t>(1, elementwise_grain / (channels + 1)),
                           [&](std::int64_t begin, std::int64_t end, int) {
                             for (std::int64_t i = begin; i < end; ++i) {
                               const auto site = site_at(indices, grid.dims, i);
                               float* const to = y + site[0] * channels * volume + cell(0, site[1], site[2], site[3]);
                               for (std::int64_t c = 0; c < channels; ++c) to[c * volume] = x[i * channels + c];
                             }
                           });
  });
}

/// Input: x [N,C,spatial axes]. Outputs: indices, features.
class SparseFromDense final : public Op {
 public:
  explicit SparseFromDense(const NodeSpec& spec) {
    AttributeReader reader(spec);
    max_sites_ = read_bound(reader, "max_sites");
    reader.finish();
  }

  std::string_view type() const override { return "SparseFromDense"; }
  AttributeList attributes() const override {
    if (!max_sites_) return {};
    return {{"max_sites", *max_sites_}};
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "x");
    require_rank("x", x.shape, 4, 5);
    const std::int64_t cells = grid(x.shape).cells(), most = max_sites_.value_or(cells);
    if (cells > INT32_MAX || most > INT32_MAX)
      throw Error(ErrorKind::unsupported, fmt::format("{} cells are more than 31 bits can count", cells));
    return {{DType::i32, {most, x.shape.rank() - 1}}, {x.dtype, {most, x.shape[1]}}};
  }

  /// May have no cells.
  static SparseGrid grid(const Shape& x) {
    SparseGrid grid{.dims = x.rank() - 2, .images = x[0]};
    for (int a = 0; a < grid.dims; ++a) grid.size[static_cast<std::size_t>(3 - grid.dims + a)] = x[2 + a];
    return grid;
  }

 private:
  std::optional<std::int64_t> max_sites_;
};

// Cells per piece; each piece is counted at once.
constexpr std::int64_t piece_cells = 4096;

std::unique_ptr<const BoundKernel> bind_from_dense(const Binding& binding) {
  const SparseGrid grid = SparseFromDense::grid(binding.shape(0));
  const std::int64_t channels = binding.shape(0)[1], most = binding.output_shape(0)[0];
  const std::int64_t cells = grid.cells(), volume = grid.images == 0 ? 0 : cells / grid.images;
  const std::int64_t pieces = (cells + piece_cells - 1) / piece_cells;
  // Sites per piece, then prefix sums of them; and a byte per cell: is it a site?
  const auto workspace = static_cast<std::size_t>((pieces + 1) * 8 + cells);
  return bound(
      [=](const KernelRun& run) {
        const float* const x = run.in<float>(0);
        auto* const indices = run.out<std::int32_t>(0);
        float* const y = run.out<float>(1);
        auto* const before = reinterpret_cast<std::int64_t*>(run.workspace.data());
        auto* const is_site = reinterpret_cast<unsigned char*>(before + pieces + 1);
        const auto at = [&](std::int64_t cell) { return x + cell / volume * channels * volume + cell % volume; };
        run.pool->parallel_for(pieces, 1, [&](std::int64_t first, std::int64_t last, int) {
          for (std::int64_t piece = first; piece < last; ++piece) {
            std::int64_t count = 0;
            for (std::int64_t cell = piece * piece_cells; cell < std::min(cells, (piece + 1) * piece_cells); ++cell) {
              const float* const from = at(cell);
              bool any = false;
              for (std::int64_t c = 0; c < channels && !any; ++c) any = from[c * volume] != 0;
              is_site[cell] = any ? 1 : 0;
              count += any ? 1 : 0;
            }
            before[piece] = count;
          }
        });
        before[pieces] = 0;
        std::exclusive_scan(before, before + pieces + 1, before, std::int64_t{0});
        const std::int64_t sites = before[pieces];
        if (sites > most) refuse_count(sites, most, "sites", "max_sites");
        const std::int64_t width = 1 + grid.dims;
        run.pool->parallel_for(pieces, 1, [&](std::int64_t first, std::int64_t last, int) {
          for (std::int64_t piece = first; piece < last; ++piece) {
            std::int64_t to = before[piece];
            for (std::int64_t cell = piece * piece_cells; cell < std::min(cells, (piece + 1) * piece_cells); ++cell) {
              if (is_site[cell] == 0) continue;
              put_cell(indices, grid, to, cell);
              for (std::int64_t c = 0; c < channels; ++c) y[to * channels + c] = at(cell)[c * volume];
              ++to;
            }
          }
        });
        fill_with_none(indices + sites * width, (most - sites) * width, *run.pool);
        clear_rows(y, sites, most, channels, *run.pool);
      },
      workspace);
}

std::unique_ptr<const BoundKernel> bind_to_dense_cuda(const Binding& binding) {
  if constexpr (cuda_built) {
    const SparseGrid grid = binding.op<SparseToDense>().grid();
    const std::int64_t rows = binding.shape(0)[0], channels = binding.shape(1)[1];
    const std::size_t element_bytes = dtype_bytes(binding.problem.inputs()[1].type.dtype);
    return bound_checking(
        [=](const KernelRun& run) {
          cuda::sparse_to_dense(*run.cuda, grid, rows, channels, element_bytes, run.in<std::int32_t>(0),
                                run.in<void>(1), run.out<void>(), run.workspace.data());
        },
        cuda::sparse_to_dense_workspace_bytes(rows), {.grid = grid});
  }
  return nullptr;
}

std::unique_ptr<const BoundKernel> bind_from_dense_cuda(const Binding& binding) {
  if constexpr (cuda_built) {
    const SparseGrid grid = SparseFromDense::grid(binding.shape(0));
    const std::int64_t channels = binding.shape(0)[1], most = binding.output_shape(0)[0];
    const std::size_t element_bytes = dtype_bytes(binding.problem.inputs()[0].type.dtype);
    return bound_checking(
        [=](const KernelRun& run) {
          cuda::sparse_from_dense(*run.cuda, grid, channels, most, element_bytes, run.in<void>(0),
                                  run.out<std::int32_t>(0), run.out<void>(1), run.workspace.data());
        },
        cuda::sparse_from_dense_workspace_bytes(grid), {.grid = grid, .max_sites = most});
  }
  return nullptr;
}

constexpr auto to_dense_kernels =
    on_both({.types = dtypes<Types<float>>, .more_on_cuda = dtypes<Types<Float16, BFloat16>>, .typed_input = 1},
            bind_to_dense, bind_to_dense_cuda);
constexpr auto from_dense_kernels =
    on_both({.types = dtypes<Types<float>>, .more_on_cuda = dtypes<Types<Float16, BFloat16>>}, bind_from_dense,
            bind_from_dense_cuda);

}  // namespace

OpParts sparse_to_dense() { return {make_from<SparseToDense>, to_dense_kernels}; }
OpParts sparse_from_dense() { return {make_from<SparseFromDense>, from_dense_kernels}; }

}  // namespace lenslet
