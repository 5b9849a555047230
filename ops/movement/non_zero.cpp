// NonZero: the positions of nonzero elements, one column of indices each, in row-major order.

#include "base/convert.h"
#include "ops/core/checks.h"
#include "ops/core/whole_op.h"

namespace lenslet {

namespace {

template <typename T>
bool is_zero(T value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>)
    return widened(value) == 0;
  else
    return value == T();
}

class NonZero final : public WholeOp {
 public:
  std::string_view type() const override { return "NonZero"; }
  void check(std::span<const InputInfo> inputs) const override { static_cast<void>(required_input(inputs, 0, "X")); }

  std::vector<Shape> bounds(std::span<const InputInfo> inputs) const override {
    const Shape& x = inputs[0].type.shape;
    return {{x.rank(), x.elems()}};
  }

  std::vector<Tensor> compute(std::span<const Tensor> inputs) const override {
    const Tensor& x = inputs[0];
    std::vector<std::int64_t> found;
    dispatch(x.dtype(), AllTypes(), [&]<typename T>(std::type_identity<T>) {
      const auto values = x.values<T>();
      for (std::size_t i = 0; i < values.size(); ++i)
        if (!is_zero(values[i])) found.push_back(static_cast<std::int64_t>(i));
    });
    const int rank = x.shape().rank();
    const auto count = static_cast<std::int64_t>(found.size());
    Tensor y(DType::i64, Shape{rank, count});
    const auto rows = y.values<std::int64_t>();
    for (int axis = rank - 1; axis >= 0; --axis)
      for (std::size_t i = 0; i < found.size(); ++i) {
        rows[static_cast<std::size_t>(axis * count) + i] = found[i] % x.shape()[axis];
        found[i] /= x.shape()[axis];
      }
    return {y};
  }
};

constexpr SimpleKernel kernels[] = {{.types = dtypes<AllTypes>, .bind = bind_whole}};

}  // namespace

OpParts non_zero() { return {make_plain<NonZero>, kernels}; }

}  // namespace lenslet
