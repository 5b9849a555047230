#include "ops/movement/index_walk.h"

#include <fmt/format.h>

#include <atomic>

#include "base/format.h"
#include "ops/core/grain.h"
#include "ops/core/kernel.h"

namespace lenslet {

namespace {

template <typename Index>
bool inside(Index index, std::int64_t dim) {
  return index >= -dim && index < dim;
}

}  // namespace

IndexWalk slices_walk(const Shape& data, int axis, const Shape& indices) {
  IndexWalk walk{.data = data};
  std::int64_t outer = 1;
  for (int i = 0; i < axis; ++i) outer *= data[i];
  for (int i = axis + 1; i < data.rank(); ++i) walk.inner *= data[i];
  walk.axes[0] = {axis, data[axis], walk.inner};
  walk.loops.add(outer, data[axis] * walk.inner, 0);
  walk.loops.add(indices.elems(), 0, 1);
  return walk;
}

IndexWalk elements_walk(const Shape& data, int axis, const Shape& indices, StridedLoops::Loop* chain) {
  IndexWalk walk{.data = data};
  const AxisSteps from = element_strides(data, formats::nchw), to = element_strides(indices, formats::nchw);
  for (int i = 0; i < data.rank(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (i != axis)
      walk.loops.add(indices[i], from[at], to[at]);
    else if (chain == nullptr)
      walk.loops.add(indices[i], 0, to[at]);
    else
      *chain = {indices[i], 0, to[at]};
  }
  walk.axes[0] = {axis, data[axis], from[static_cast<std::size_t>(axis)]};
  return walk;
}

IndexWalk tuples_walk(const Shape& data, int batch_dims, const Shape& indices) {
  IndexWalk walk{.data = data, .depth = static_cast<int>(indices[indices.rank() - 1])};
  const AxisSteps steps = element_strides(data, formats::nchw);
  for (int i = batch_dims + walk.depth; i < data.rank(); ++i) walk.inner *= data[i];
  for (int i = 0; i < walk.depth; ++i) {
    const int axis = batch_dims + i;
    walk.axes[static_cast<std::size_t>(i)] = {axis, data[axis], steps[static_cast<std::size_t>(axis)]};
  }
  AxisSteps tuples{};
  std::int64_t step = 1;
  for (int i = indices.rank() - 2; i >= 0; step *= indices[i--]) tuples[static_cast<std::size_t>(i)] = step;
  for (int i = 0; i + 1 < indices.rank(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    walk.loops.add(indices[i], i < batch_dims ? steps[at] : 0, tuples[at]);
  }
  return walk;
}

void require_index_per_element(const Shape& data, const Shape& indices, int axis) {
  bool fits = indices.rank() == data.rank();
  for (int i = 0; fits && i < data.rank(); ++i) fits = i == axis || indices[i] <= data[i];
  if (!fits)
    throw Error(ErrorKind::invalid_model,
                fmt::format("indices of shape {} along axis {} of {}", indices.str(), axis, data.str()));
}

std::size_t require_tuples(const Shape& data, const Shape& indices, std::int64_t batch_dims) {
  const std::int64_t depth = indices.rank() == 0 ? 0 : indices[indices.rank() - 1];
  if (depth < 1 || depth > data.rank() - batch_dims)
    throw Error(ErrorKind::invalid_model,
                fmt::format("indices of shape {} for data of shape {}", indices.str(), data.str()));
  return static_cast<std::size_t>(depth);
}

std::optional<std::string> wrong_index(const IndexWalk& walk, const Tensor& indices) {
  return dispatch(indices.dtype(), IndexTypes(),
                  [&]<typename Index>(std::type_identity<Index>) -> std::optional<std::string> {
                    std::size_t i = 0;
                    for (const Index index : indices.values<Index>()) {
                      const auto& [axis, dim, step] = walk.axes[i];
                      if (!inside(index, dim))
                        return fmt::format("index {} is outside axis {} of {}", index, axis, walk.data.str());
                      i = i + 1 == static_cast<std::size_t>(walk.depth) ? 0 : i + 1;
                    }
                    return std::nullopt;
                  });
}

void check_indices(const IndexWalk& walk, const Tensor& indices, ThreadPool& pool) {
  std::atomic<bool> right = true;
  const std::int64_t tuples = indices.elems() / walk.depth;
  dispatch(indices.dtype(), IndexTypes(), [&]<typename Index>(std::type_identity<Index>) {
    const Index* all = indices.values<Index>().data();
    pool.parallel_for(tuples, elementwise_grain, [&](std::int64_t begin, std::int64_t end, int) {
      bool fine = true;
      for (int i = 0; i < walk.depth; ++i) {
        const std::int64_t dim = walk.axes[static_cast<std::size_t>(i)].dim;
        for (std::int64_t tuple = begin; tuple < end; ++tuple) fine &= inside(all[tuple * walk.depth + i], dim);
      }
      if (!fine) right = false;
    });
  });
  if (!right) throw Error(ErrorKind::invalid_argument, *wrong_index(walk, indices));
}

std::string index_fault(const IndexWalk& walk) {
  std::string axes;
  for (int i = 0; i < walk.depth; ++i)
    axes += fmt::format("{}{}", i == 0 ? "" : " or ", walk.axes[static_cast<std::size_t>(i)].axis);
  return fmt::format("an index is outside axis {} of {}", axes, walk.data.str());
}

std::optional<std::string> refuse_indices(const Problem& problem, const IndexWalk& walk) {
  const Tensor* indices = problem.inputs()[1].constant;
  return indices == nullptr ? std::nullopt : wrong_index(walk, *indices);
}

}  // namespace lenslet
