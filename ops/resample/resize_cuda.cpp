// Resize on CUDA: two adjacent axes in one launch if their taps together are few, so that an image is read and written
// once.

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/cuda_built.h"
#include "ops/movement/moves.h"
#include "ops/resample/resize_cuda.h"
#include "ops/resample/resize_passes.h"

namespace lenslet {

namespace {

/// With more taps, one axis after the other is less work.
constexpr std::int64_t most_taps_at_once = 4;
/// One axis alone if the inner elements fill a warp, whose lanes go along them.
constexpr std::int64_t wide_inner = 32;

struct Launch {
  cuda::ResizeLaunch shape = {};
  const AxisTaps *rows = nullptr, *columns = nullptr;  ///< null: the axis has one element, which stays
  std::size_t table = 0;                               ///< where its taps begin in the blob
};

/// Input rows spanned by a group of output rows, at most.
std::int64_t group_lines(const ResizePass& pass) {
  std::int64_t most = 1;
  for (std::int64_t j = 0; j < pass.out; j += cuda::resize_group) {
    const auto at = [&](std::int64_t row) {
      return pass.taps.index.begin() + pass.taps.first[static_cast<std::size_t>(std::min(row, pass.out))];
    };
    const std::span<const std::int64_t> read(at(j), at(j + cuda::resize_group));
    if (read.empty()) continue;
    const auto [low, high] = std::ranges::minmax(read);
    most = std::max(most, high - low + 1);
  }
  return most;
}

bool reaches_beyond(const AxisTaps* taps) {
  return taps != nullptr && std::ranges::adjacent_find(taps->first) != taps->first.end();
}

/// Empty if the tensor is unchanged.
std::vector<Launch> launches_of(std::span<const ResizePass> passes) {
  std::vector<Launch> launches;
  std::size_t table = 0;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const ResizePass *rows = &passes[i], *columns = nullptr;
    const auto few = [](const ResizePass& pass) { return pass.taps.most() <= most_taps_at_once; };
    if (i + 1 < passes.size() && few(passes[i]) && few(passes[i + 1])) {
      const ResizePass& next = passes[i + 1];
      if (next.axis == rows->axis + 1)
        columns = &next;
      else if (rows->axis == next.axis + 1)
        columns = std::exchange(rows, &next);
    }
    if (columns != nullptr)
      ++i;
    else if (rows->inner < wide_inner)
      columns = std::exchange(rows, nullptr);

    Launch launch{.table = table};
    const ResizePass &first = rows != nullptr ? *rows : *columns, &last = columns != nullptr ? *columns : *rows;
    std::int64_t taps = std::max(first.taps.most(), last.taps.most());
    taps = taps <= 2 ? taps : taps <= 4 ? 4 : taps;
    launch.shape = {
        .outer = first.outer, .inner = last.inner, .taps = static_cast<int>(std::max<std::int64_t>(1, taps))};
    if (rows != nullptr) {
      launch.rows = &rows->taps;
      launch.shape.rows_in = rows->in;
      launch.shape.rows_out = rows->out;
      launch.shape.group_lines = group_lines(*rows);
    }
    if (columns != nullptr) {
      launch.columns = &columns->taps;
      launch.shape.columns_in = columns->in;
      launch.shape.columns_out = columns->out;
    }
    launch.shape.reaches_beyond = reaches_beyond(launch.rows) || reaches_beyond(launch.columns);
    table += launch.shape.table_size();
    launches.push_back(launch);
  }
  return launches;
}

void fill_axis(const AxisTaps* taps, std::int64_t out, int most, cuda::ResizeTap*& to) {
  for (std::int64_t j = 0; j < out; ++j, to += most) {
    std::fill_n(to, most, cuda::ResizeTap());
    if (taps == nullptr) {
      to->weight = 1;
      continue;
    }
    const auto begin = static_cast<std::size_t>(taps->first[static_cast<std::size_t>(j)]);
    const auto end = static_cast<std::size_t>(taps->first[static_cast<std::size_t>(j) + 1]);
    if (begin == end) to->index = cuda::ResizeTap::beyond;
    for (std::size_t t = begin; t < end; ++t)
      to[t - begin] = {.index = static_cast<std::int32_t>(taps->index[t]), .weight = taps->weight[t]};
  }
}

class BoundResizeCuda final : public BoundKernel {
 public:
  BoundResizeCuda(std::span<const ResizePass> passes, const Binding& binding, float extrapolation)
      : dtype_(binding.problem.inputs()[0].type.dtype), extrapolation_(extrapolation) {
    for (const Launch& launch : launches_of(passes)) {
      launches_.push_back(launch.shape);
      tables_.push_back(launch.table);
    }
    for (std::size_t i = 0; i + 1 < launches_.size(); ++i) {
      const cuda::ResizeLaunch& l = launches_[i];
      const auto elems = static_cast<std::size_t>(l.outer * l.rows_out * l.columns_out * l.inner);
      between_ = std::max(between_, (elems * dtype_bytes(dtype_) + 255) / 256 * 256);
    }
  }
  std::size_t workspace_bytes() const override {
    return launches_.size() < 2 ? 0 : launches_.size() == 2 ? between_ : 2 * between_;
  }

  void run(const KernelRun& run) const override {
    if (run.outputs[0].elems() == 0) return;
    if (launches_.empty()) return copy_bytes(run, run.inputs[0], run.outputs[0]);
    if constexpr (cuda_built) {
      const auto* table = reinterpret_cast<const cuda::ResizeTap*>(run.blob);
      const void* from = run.inputs[0].data();
      for (std::size_t i = 0; i < launches_.size(); ++i) {
        void* const to =
            i + 1 == launches_.size() ? run.outputs[0].data() : run.workspace.data() + (i % 2 == 0 ? 0 : between_);
        cuda::resize(*run.cuda, launches_[i], dtype_, table + tables_[i], extrapolation_, from, to);
        from = to;
      }
    }
  }

 private:
  DType dtype_;
  float extrapolation_;
  std::vector<cuda::ResizeLaunch> launches_;
  std::vector<std::size_t> tables_;  ///< where each launch's taps begin
  std::size_t between_ = 0;          ///< bytes of the largest result that is not the last
};

}  // namespace

std::unique_ptr<const BoundKernel> bind_resize_cuda(std::span<const ResizePass> passes, const Binding& binding,
                                                    float extrapolation) {
  return std::make_unique<BoundResizeCuda>(passes, binding, extrapolation);
}

std::size_t resize_launches(std::span<const ResizePass> passes) { return launches_of(passes).size(); }

std::size_t resize_table_bytes(std::span<const ResizePass> passes) {
  const std::vector<Launch> launches = launches_of(passes);
  if (launches.empty()) return 0;
  return (launches.back().table + launches.back().shape.table_size()) * sizeof(cuda::ResizeTap);
}

void fill_resize_table(std::span<const ResizePass> passes, std::span<std::byte> table) {
  auto* to = reinterpret_cast<cuda::ResizeTap*>(table.data());
  for (const Launch& launch : launches_of(passes)) {
    fill_axis(launch.rows, launch.shape.rows_out, launch.shape.taps, to);
    fill_axis(launch.columns, launch.shape.columns_out, launch.shape.taps, to);
  }
  assert(reinterpret_cast<std::byte*>(to) == table.data() + table.size());
}

}  // namespace lenslet
