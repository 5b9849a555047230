// Gather: selects slices of `axis` by an index tensor of any rank. GatherElements: one index per result element.
// GatherND: selects slices by tuples of indices.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/core/kernel.h"
#include "ops/movement/gather_line.h"
#include "ops/movement/index_walk.h"
#include "ops/movement/index_walk_cuda.h"

namespace lenslet {

namespace {

/// An operator whose output follows an IndexWalk over its data, in loop order.
class GatherOp : public Op {
 public:
  virtual IndexWalk walk(const Shape& data, const Shape& indices) const = 0;
};

class Gather final : public GatherOp {
 public:
  explicit Gather(const NodeSpec& spec) {
    AttributeReader reader(spec);
    axis_ = reader.integer("axis", 0);
    reader.finish();
  }

  std::string_view type() const override { return "Gather"; }
  AttributeList attributes() const override { return {{"axis", axis_}}; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& data = required_input(inputs, 0, "data");
    const TensorType& indices = required_input(inputs, 1, "indices");
    require_dtype("indices", indices.dtype, {DType::i64, DType::i32});
    const auto dims = data.shape.dims();
    const int picked = axis(data.shape.rank());
    std::vector<std::int64_t> y(dims.begin(), dims.begin() + picked);
    y.insert(y.end(), indices.shape.dims().begin(), indices.shape.dims().end());
    y.insert(y.end(), dims.begin() + picked + 1, dims.end());
    return {{data.dtype, Shape(y)}};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    const int picked = axis(inputs[0].type.shape.rank()), count = inputs[1].type.shape.rank();
    AxisMap map = axes_kept(2, {});
    map.inputs[1].parameter = false;
    for (int i = 0; i < y.rank(); ++i) {
      const bool of_indices = i >= picked && i < picked + count;
      const int from = of_indices ? i - picked : i < picked ? i : i - count + 1;
      map.inputs[of_indices ? 1 : 0].axis[static_cast<std::size_t>(i)] = static_cast<std::int8_t>(from);
    }
    return map;
  }
  /// True if a list of known indices names all slices in order.
  bool gives_input_back(std::span<const InputInfo> inputs) const override {
    const Shape& x = inputs[0].type.shape;
    if (inputs[1].constant == nullptr || !(infer(inputs)[0].shape == x)) return false;
    const Tensor indices = inputs[1].constant->to_dtype(DType::i64);
    std::int64_t next = 0;
    return std::ranges::all_of(indices.values<std::int64_t>(), [&, dim = x[axis(x.rank())]](std::int64_t index) {
      return (index < 0 ? index + dim : index) == next++;
    });
  }

  IndexWalk walk(const Shape& data, const Shape& indices) const override {
    return slices_walk(data, axis(data.rank()), indices);
  }

  int axis(int rank) const { return resolve_axis(axis_, rank); }

 private:
  std::int64_t axis_ = 0;
};

class GatherElements final : public GatherOp {
 public:
  explicit GatherElements(const NodeSpec& spec) {
    AttributeReader reader(spec);
    axis_ = reader.integer("axis", 0);
    reader.finish();
  }

  std::string_view type() const override { return "GatherElements"; }
  AttributeList attributes() const override { return {{"axis", axis_}}; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& data = required_input(inputs, 0, "data");
    const TensorType& indices = required_input(inputs, 1, "indices");
    require_dtype("indices", indices.dtype, {DType::i64, DType::i32});
    require_index_per_element(data.shape, indices.shape, resolve_axis(axis_, data.shape.rank()));
    return {{data.dtype, indices.shape}};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    const Shape& data = inputs[0].type.shape;
    const int picked = resolve_axis(axis_, y.rank());
    AxisMap map = axes_kept_if(2, y.rank(), [&](int axis) { return axis != picked && data[axis] == y[axis]; });
    map.inputs[1] = axes_kept_if(1, y.rank(), [](int) { return true; }).inputs[0];
    return map;
  }
  IndexWalk walk(const Shape& data, const Shape& indices) const override {
    return elements_walk(data, resolve_axis(axis_, data.rank()), indices);
  }

 private:
  std::int64_t axis_ = 0;
};

class GatherND final : public GatherOp {
 public:
  explicit GatherND(const NodeSpec& spec) {
    AttributeReader reader(spec);
    batch_dims_ = spec.before(12) ? 0 : reader.integer("batch_dims", 0);
    reader.finish();
  }

  std::string_view type() const override { return "GatherND"; }
  AttributeList attributes() const override { return {{"batch_dims", batch_dims_}}; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& data = required_input(inputs, 0, "data");
    const TensorType& indices = required_input(inputs, 1, "indices");
    require_dtype("indices", indices.dtype, {DType::i64, DType::i32});
    const auto x = data.shape.dims(), tuples = indices.shape.dims();
    if (batch_dims_ < 0 || batch_dims_ >= std::min(data.shape.rank(), indices.shape.rank()) ||
        !std::ranges::equal(x.first(batch()), tuples.first(batch())))
      throw Error(ErrorKind::invalid_model, fmt::format("batch_dims={} for data {} and indices {}", batch_dims_,
                                                        data.shape.str(), indices.shape.str()));
    const std::size_t begin = batch() + require_tuples(data.shape, indices.shape, batch_dims_);
    std::vector<std::int64_t> y(tuples.begin(), tuples.end() - 1);
    y.insert(y.end(), x.begin() + static_cast<std::ptrdiff_t>(begin), x.end());
    return {{data.dtype, Shape(y)}};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    const int data = inputs[0].type.shape.rank(), tuples = inputs[1].type.shape.rank() - 1;
    AxisMap map = axes_kept_if(2, static_cast<int>(batch_dims_), [](int) { return true; });
    map.inputs[1] = axes_kept_if(1, tuples, [](int) { return true; }).inputs[0];
    for (int axis = tuples; axis < y.rank(); ++axis)
      map.inputs[0].axis[static_cast<std::size_t>(axis)] = static_cast<std::int8_t>(axis + data - y.rank());
    return map;
  }
  IndexWalk walk(const Shape& data, const Shape& indices) const override {
    return tuples_walk(data, static_cast<int>(batch_dims_), indices);
  }

 private:
  std::size_t batch() const { return static_cast<std::size_t>(batch_dims_); }
  std::int64_t batch_dims_ = 0;
};

class BoundGather final : public BoundKernel {
 public:
  /// Error(invalid_argument) when known indices are out of range.
  explicit BoundGather(const Binding& binding)
      : walk_(binding.op<GatherOp>().walk(binding.shape(0), binding.shape(1))), known_(binding.constant(1) != nullptr) {
    if (!known_) return;
    if (auto wrong = wrong_index(walk_, *binding.constant(1)))
      throw Error(ErrorKind::invalid_argument, std::move(*wrong));
  }

  std::string fault() const override { return known_ ? std::string() : index_fault(walk_); }

  void run(const KernelRun& run) const override {
    const Tensor &data = run.inputs[0], &indices = run.inputs[1];
    const std::size_t element_bytes = dtype_bytes(data.dtype());
    if constexpr (cuda_built)
      if (run.cuda != nullptr)
        return cuda::gather(*run.cuda, element_bytes, walk_, data.data(), indices.data(), indices.dtype() == DType::i64,
                            run.outputs[0].data());
    std::atomic<bool> right = true;
    dispatch(indices.dtype(), IndexTypes(), [&]<typename Index>(std::type_identity<Index>) {
      const Index* all = indices.values<Index>().data();
      const auto follow = [&](std::int64_t begin, std::int64_t end, const auto& use) {
        if (!for_each_place(walk_, all, begin, end, use)) right = false;
      };
      if (in_lines(element_bytes)) return pick_lines(run, all, right);
      if (walk_.inner != 1) return pick_slices(run, follow, static_cast<std::int64_t>(element_bytes));
      dispatch_bytes(element_bytes, [&]<typename T>(std::type_identity<T>) { pick_elements<T>(run, follow); });
    });
    if (!right) throw Error(ErrorKind::invalid_argument, *wrong_index(walk_, indices));
  }

 private:
  /// True if elements can be gathered with vectors.
  bool in_lines(std::size_t element_bytes) const {
    const int last = walk_.loops.rank() - 1;
    return element_bytes == sizeof(std::uint32_t) && walk_.inner == 1 && walk_.depth == 1 && last >= 0 &&
           walk_.loops[last].to == 1 && line().serves(walk_.loops[last].dim);
  }
  GatherLine line() const { return {walk_.loops[walk_.loops.rank() - 1].from, walk_.axes[0].dim, walk_.axes[0].step}; }
  template <typename Index>
  void pick_lines(const KernelRun& run, const Index* all, std::atomic<bool>& right) const {
    const auto* from = run.in<std::uint32_t>(0);
    auto* to = run.out<std::uint32_t>();
    run.pool->parallel_for(walk_.loops.count(), elementwise_grain, [&](std::int64_t begin, std::int64_t end, int) {
      for_each_line(walk_, begin, end,
                    [&](std::int64_t row, std::int64_t n, std::int64_t tuple, std::int64_t offset, const auto&) {
                      if (!gather_line(line(), all + tuple, n, from + offset, to + row)) right = false;
                    });
    });
  }
  // follow(begin, end, use): for_each_place of these rows.
  template <typename Follow>
  void pick_slices(const KernelRun& run, const Follow& follow, std::int64_t element_bytes) const {
    const auto* from = run.in<std::byte>(0);
    auto* to = run.out<std::byte>();
    const std::int64_t bytes = walk_.inner * element_bytes, pitch = std::max<std::int64_t>(1, bytes);
    // Pieces may begin and end within a slice. Adjacent slices are copied at once.
    run.pool->parallel_for(
        walk_.loops.count() * pitch, copy_grain_bytes, [&](std::int64_t begin, std::int64_t end, int) {
          std::int64_t source = 0, target = begin, length = 0;
          const auto copy = [&] {
            if (length > 0) std::memcpy(to + target, from + source, static_cast<std::size_t>(length));
            target += length;
          };
          follow(begin / pitch, (end + pitch - 1) / pitch, [&](std::int64_t row, std::int64_t, auto at) {
            const std::int64_t skipped = std::max<std::int64_t>(0, begin - row * pitch);
            const std::int64_t first = at * element_bytes + skipped;
            if (first != source + length) {
              copy();
              source = first;
              length = 0;
            }
            length += std::min(end - row * pitch, bytes) - skipped;
          });
          copy();
        });
  }
  template <typename T, typename Follow>
  void pick_elements(const KernelRun& run, const Follow& follow) const {
    const T* from = run.in<T>(0);
    T* to = run.out<T>();
    run.pool->parallel_for(walk_.loops.count(), elementwise_grain, [&](std::int64_t begin, std::int64_t end, int) {
      follow(begin, end, [&](std::int64_t row, std::int64_t, auto at) { to[row] = from[at]; });
    });
  }

  IndexWalk walk_;
  bool known_;  ///< the indices, which were checked
};

std::optional<std::string> refuse_cuda(const Problem& problem) {
  return refuse_indices(problem, problem.as<GatherOp>().walk(problem.shape(0), problem.shape(1)));
}

constexpr SimpleKernel kernels[] = {
    {.bind = bind<BoundGather>},
    {.device = DeviceKind::cuda, .refuse = refuse_cuda, .bind = bind<BoundGather>},
};

}  // namespace

OpParts gather() { return {make_from<Gather>, kernels}; }
OpParts gather_elements() { return {make_from<GatherElements>, kernels}; }
OpParts gather_nd() { return {make_from<GatherND>, kernels}; }

}  // namespace lenslet
