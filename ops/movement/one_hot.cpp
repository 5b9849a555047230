// OneHot: adds an axis with the on-value at the index and the off-value elsewhere.

#include "ops/movement/one_hot.h"
#include "ops/core/needs_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/convert.h"
#include "base/cuda_built.h"
#include "ops/core/checks.h"
#include "ops/core/grain.h"

namespace lenslet {

namespace {

constexpr std::size_t indices_input = 0, depth_input = 1, values_input = 2;

class OneHot final : public Op {
 public:
  explicit OneHot(const NodeSpec& spec) {
    AttributeReader reader(spec);
    axis_ = reader.integer("axis", -1);
    reader.finish();
  }

  std::string_view type() const override { return "OneHot"; }
  AttributeList attributes() const override { return {{"axis", axis_}}; }

  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& indices = required_input(inputs, indices_input, "indices");
    require_dtype("indices", indices.dtype,
                  {DType::i64, DType::i32, DType::f32, DType::f64, DType::i8, DType::u8, DType::i16, DType::u16});
    const TensorType& values = required_input(inputs, values_input, "values");
    require_shape("values", values.shape, {2});
    const std::int64_t depth = this->depth(inputs);
    const auto dims = indices.shape.dims();
    std::vector<std::int64_t> y(dims.begin(), dims.end());
    y.insert(y.begin() + axis(indices.shape.rank()), depth);
    const Shape shape(y);
    shape.elems();  // throws for impossible sizes
    return {{values.dtype, shape}};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo> inputs, const Shape& y) const override {
    const int made = axis(inputs[indices_input].type.shape.rank());
    AxisMap map = axes_kept_if(3, y.rank(), [](int) { return false; });
    for (int i = 0; i < y.rank(); ++i)
      if (i != made)
        map.inputs[indices_input].axis[static_cast<std::size_t>(i)] = static_cast<std::int8_t>(i < made ? i : i - 1);
    return map;
  }

  /// The new axis of an output whose indices have this rank.
  int axis(int rank) const { return resolve_axis(axis_, rank + 1); }

 private:
  static std::int64_t depth(std::span<const InputInfo> inputs) {
    const TensorType& type = required_input(inputs, depth_input, "depth");
    const Tensor& known = known_value(inputs, depth_input, "depth");
    if (type.shape.elems() != 1)
      throw Error(ErrorKind::invalid_model, fmt::format("depth must be a scalar, not {}", type.shape.str()));
    const auto depth = known.to_dtype(DType::f64).values<double>()[0];
    if (!(depth >= 0 && depth <= 0x1p40)) throw Error(ErrorKind::invalid_model, fmt::format("depth is {}", depth));
    return static_cast<std::int64_t>(depth);
  }
  std::int64_t axis_ = -1;
};

OneHotShape shape_of(const Binding& binding) {
  const Shape &indices = binding.shape(indices_input), &y = binding.output_shape();
  const int axis = binding.op<OneHot>().axis(indices.rank());
  OneHotShape shape{.depth = y[axis]};
  for (int i = 0; i < indices.rank(); ++i) (i < axis ? shape.outer : shape.inner) *= indices[i];
  return shape;
}

std::unique_ptr<const BoundKernel> bind_cpu(const Binding& binding) {
  return bound([shape = shape_of(binding)](const KernelRun& run) {
    const std::size_t bytes = dtype_bytes(run.outputs[0].dtype());
    std::uint64_t off = 0, on = 0;
    std::memcpy(&off, run.in<std::byte>(values_input), bytes);
    std::memcpy(&on, run.in<std::byte>(values_input) + bytes, bytes);
    one_hot(*run.pool, bytes, shape, run.inputs[indices_input].dtype(), run.inputs[indices_input].data(), off, on,
            run.outputs[0].data());
  });
}

std::unique_ptr<const BoundKernel> bind_cuda(const Binding& binding) {
  return bound([shape = shape_of(binding)](const KernelRun& run) {
    if constexpr (cuda_built)
      cuda::one_hot(*run.cuda, dtype_bytes(run.outputs[0].dtype()), shape, run.inputs[indices_input].dtype(),
                    run.inputs[indices_input].data(), run.inputs[values_input].data(), 0, 0, run.outputs[0].data());
  });
}

constexpr auto kernels = on_both(
    {.typed_input = values_input, .reads = input_bit(indices_input) | input_bit(values_input)}, bind_cpu, bind_cuda);

}  // namespace

void one_hot(ThreadPool& pool, std::size_t element_bytes, const OneHotShape& shape, DType index_type,
             const void* indices, std::uint64_t off, std::uint64_t on, void* y) {
  if (shape.depth * shape.inner == 0) return;
  dispatch_bytes(element_bytes, [&]<typename T>(std::type_identity<T>) {
    dispatch(index_type, OneHotIndexTypes(), [&]<typename Index>(std::type_identity<Index>) {
      // Lines of `inner` elements, or if that is 1, of `depth`.
      const bool single = shape.inner == 1;
      const std::int64_t line = single ? shape.depth : shape.inner;
      pool.parallel_for(shape.outer * shape.depth * shape.inner / line,
                        std::max<std::int64_t>(1, elementwise_grain / line),
                        [&](std::int64_t begin, std::int64_t end, int) {
                          for (std::int64_t l = begin; l < end; ++l) {
                            T* to = static_cast<T*>(y) + l * line;
                            const auto* at = static_cast<const Index*>(indices);
                            const auto position = [&](std::int64_t i) {
                              const auto index = convert<std::int64_t>(at[i]);
                              return index < 0 ? index + shape.depth : index;
                            };
                            if (single) {
                              std::fill_n(to, line, static_cast<T>(off));
                              const std::int64_t named = position(l);
                              if (named >= 0 && named < shape.depth) to[named] = static_cast<T>(on);
                              continue;
                            }
                            const std::int64_t first = l / shape.depth * shape.inner, here = l % shape.depth;
                            for (std::int64_t i = 0; i < line; ++i)
                              to[i] = static_cast<T>(position(first + i) == here ? on : off);
                          }
                        });
    });
  });
}

OpParts one_hot() { return {make_from<OneHot>, kernels}; }

}  // namespace lenslet
