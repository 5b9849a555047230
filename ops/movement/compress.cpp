// Compress: selects the slices of an axis, or the elements of the flattened input, by a condition known before the run.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "ops/core/checks.h"
#include "ops/core/grain.h"
#include "ops/core/needs_value.h"
#include "ops/movement/moves.h"

namespace lenslet {

namespace {

class Compress final : public Op {
 public:
  explicit Compress(const NodeSpec& spec) {
    AttributeReader reader(spec);
    if (reader.has("axis")) axis_ = reader.required_integer("axis");
    reader.finish();
  }

  std::string_view type() const override { return "Compress"; }
  AttributeList attributes() const override {
    if (!axis_) return {};
    return {{"axis", *axis_}};
  }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = required_input(inputs, 0, "input");
    const TensorType& type = required_input(inputs, 1, "condition");
    require_dtype("condition", type.dtype, {DType::boolean});
    require_rank("condition", type.shape, 1, 1);
    const std::int64_t dim = axis_ ? x.shape[axis(x.shape)] : x.shape.elems();
    if (type.shape[0] > dim)
      throw Error(ErrorKind::invalid_model, fmt::format("condition has {} elements for {}", type.shape[0], dim));
    std::int64_t count = 0;
    for (const bool holds : known_value(inputs, 1, "condition").values<bool>()) count += holds ? 1 : 0;
    return {{x.dtype, axis_ ? x.shape.with(axis(x.shape), count) : Shape{count}}};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    if (!axis_) return axes_kept(inputs.size(), {});
    return axes_kept_if(inputs.size(), y.rank(), [along = axis(y)](int a) { return a != along; });
  }
  bool gives_input_back(std::span<const InputInfo> inputs) const override { return infer(inputs)[0] == inputs[0].type; }

  /// x and y [outer, dim, inner], compressed along the middle.
  struct Extents {
    std::int64_t outer = 1, x = 1, y = 1, inner = 1;
  };
  Extents extents(const Shape& x, const Shape& y) const {
    if (!axis_) return {.x = x.elems(), .y = y.elems()};
    const int along = axis(x);
    Extents extents{.x = x[along], .y = y[along]};
    for (int i = 0; i < x.rank(); ++i)
      if (i != along) (i < along ? extents.outer : extents.inner) *= x[i];
    return extents;
  }

 private:
  int axis(const Shape& shape) const { return resolve_axis(*axis_, shape.rank()); }
  std::optional<std::int64_t> axis_;  ///< none: the input counts as flattened
};

/// One move per run of selected slices.
std::vector<Move> moves(const Binding& binding) {
  const auto [outer, x, y, inner] = binding.op<Compress>().extents(binding.shape(0), binding.output_shape());
  const auto condition = binding.constant(1)->values<bool>();
  std::vector<Move> moves;
  std::int64_t taken = 0;
  for (std::size_t i = 0; i < condition.size();) {
    const std::size_t first = i;
    while (i < condition.size() && condition[i]) ++i;
    if (const auto count = static_cast<std::int64_t>(i - first); count > 0) {
      Move move;
      move.from = static_cast<std::int64_t>(first) * inner;
      move.to = taken * inner;
      move.loops.add(outer, x * inner, y * inner);
      move.loops.add(count * inner, 1, 1);
      moves.push_back(move);
      taken += count;
    }
    if (i < condition.size()) ++i;
  }
  return moves;
}

/// Copies selected slices one by one: runs shorter than a thread's share do not pay for a loop nest each.
class BoundCompress final : public BoundKernel {
 public:
  explicit BoundCompress(const Binding& binding)
      : extents_(binding.op<Compress>().extents(binding.shape(0), binding.output_shape())),
        element_bytes_(dtype_bytes(binding.problem.outputs()[0].dtype)) {
    const auto condition = binding.constant(1)->values<bool>();
    for (std::size_t i = 0; i < condition.size(); ++i)
      if (condition[i]) taken_.push_back(static_cast<std::int64_t>(i));
  }

  void run(const KernelRun& run) const override {
    const std::int64_t bytes = extents_.inner * static_cast<std::int64_t>(element_bytes_);
    if (run.outputs[0].empty()) return;
    const auto for_each = [&](const auto& copy) {
      const auto count = static_cast<std::int64_t>(taken_.size());
      run.pool->parallel_for(extents_.outer * count, std::max<std::int64_t>(1, copy_grain_bytes / bytes),
                             [&](std::int64_t begin, std::int64_t end, int) {
                               while (begin < end) {
                                 const std::int64_t outer = begin / count, first = begin % count;
                                 const std::int64_t stop = std::min(count, first + end - begin);
                                 for (std::int64_t i = first; i < stop; ++i)
                                   copy(outer * extents_.x + taken_[static_cast<std::size_t>(i)], outer * count + i);
                                 begin += stop - first;
                               }
                             });
    };
    if (extents_.inner == 1)
      return dispatch_bytes(element_bytes_, [&]<typename T>(std::type_identity<T>) {
        for_each([x = run.in<T>(0), y = run.out<T>()](std::int64_t from, std::int64_t to) { y[to] = x[from]; });
      });
    for_each([&, x = run.in<std::byte>(0), y = run.out<std::byte>()](std::int64_t from, std::int64_t to) {
      std::memcpy(y + to * bytes, x + from * bytes, static_cast<std::size_t>(bytes));
    });
  }

 private:
  Compress::Extents extents_;
  std::size_t element_bytes_;
  std::vector<std::int64_t> taken_;
};

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  const auto condition = binding.constant(1)->values<bool>();
  std::size_t runs = 0;
  for (std::size_t i = 0; i < condition.size(); ++i) runs += condition[i] && (i == 0 || !condition[i - 1]) ? 1 : 0;
  const TensorType& y = binding.problem.outputs()[0];
  const std::size_t bytes = static_cast<std::size_t>(y.shape.elems()) * dtype_bytes(y.dtype);
  return runs * static_cast<std::size_t>(copy_grain_bytes) > bytes ? bind<BoundCompress>(binding)
                                                                   : bind_moves<moves>(binding);
}

constexpr auto kernels = on_both({.reads = input_bit(0)}, bind_cpu, bind_moves<moves>);

}  // namespace

OpParts compress() { return {make_from<Compress>, kernels}; }

}  // namespace lenslet
