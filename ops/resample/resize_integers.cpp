#include "ops/resample/resize_integers.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/cuda_built.h"
#include "ops/core/grain.h"
#include "ops/movement/moves.h"
#include "ops/resample/resize_integers_cuda.h"

namespace lenslet {
namespace {

/// Contiguous elements blended at once.
constexpr std::int64_t chunk = 256;

/// A line of x that contributes to a row of y.
struct Line {
  std::int64_t at = 0;
  std::array<float, Shape::max_rank> weights{};  ///< of the axes above
};

class BoundIntegers final : public BoundKernel {
 public:
  BoundIntegers(IntegerResize resize, const BlendedCodes& codes, DType dtype)
      : p_(std::move(resize)), codes_(codes), dtype_(dtype) {}

  void run(const KernelRun& run) const override {
    if (p_.axes.empty()) return void(std::copy_n(run.in<std::byte>(0), run.outputs[0].bytes(), run.out<std::byte>()));
    dispatch(dtype_, Types<std::int8_t, std::uint8_t>(), [&]<typename T>(std::type_identity<T>) {
      std::int64_t rows = p_.outer;
      for (std::size_t a = 0; a + 1 < p_.axes.size(); ++a) rows *= p_.axes[a].out;
      const std::int64_t row = p_.axes.back().out * p_.inner;
      run.pool->parallel_for(rows, std::max<std::int64_t>(1, elementwise_grain / std::max<std::int64_t>(1, row)),
                             [&](std::int64_t begin, std::int64_t end, int) {
                               for (std::int64_t r = begin; r < end; ++r)
                                 blend_row(r, run.in<T>(0), run.out<T>() + r * row);
                             });
    });
  }

 private:
  using Lines = std::array<Line, std::size_t{1} << (Shape::max_rank - 1)>;

  /// Writes the lines of row `row` in summation order; returns their number.
  std::size_t lines_of(std::int64_t row, Lines& lines) const {
    const std::size_t above = p_.axes.size() - 1;
    std::array<const LinearTap*, Shape::max_rank> taps{};
    for (std::size_t a = above; a-- > 0; row /= p_.axes[a].out)
      taps[a] = &p_.axes[a].taps[static_cast<std::size_t>(row % p_.axes[a].out)];
    lines[0] = {.at = row};
    std::size_t count = 1;
    for (std::size_t a = 0; a < above; ++a) {
      const LinearTap& tap = *taps[a];
      const std::int64_t in = p_.axes[a].in;
      const bool two = tap.of_high != 0;
      for (std::size_t l = count; l-- > 0;) {
        Line line = lines[l];
        const std::int64_t first = line.at * in;
        line.weights[a] = tap.of_high;
        line.at = first + tap.high;
        if (two) lines[2 * l + 1] = line;
        line.weights[a] = tap.of_low;
        line.at = first + tap.low;
        lines[two ? 2 * l : l] = line;
      }
      if (two) count *= 2;
    }
    return count;
  }

  /// From the innermost axis outwards, in ONNX Runtime's order.
  float weight_of(const Line& line, float innermost) const {
    for (std::size_t a = p_.axes.size() - 1; a-- > 0;) innermost *= line.weights[a];
    return innermost;
  }

  template <typename T>
  T stored(float sum) const {
    return codes_.factor == 0 ? static_cast<T>(static_cast<int>(sum)) : static_cast<T>(codes_.code(sum));
  }

  template <typename T>
  void blend_row(std::int64_t row, const T* x, T* y) const {
    Lines lines;
    const std::size_t count = lines_of(row, lines);
    const IntegerResize::Axis& along = p_.axes.back();
    for (std::size_t l = 0; l < count; ++l) lines[l].at *= along.in * p_.inner;
    if (p_.inner == 1) {
      for (const LinearTap& tap : along.taps) {
        float sum = 0;
        for (std::size_t l = 0; l < count; ++l) {
          const T* const line = x + lines[l].at;
          sum += weight_of(lines[l], tap.of_low) * static_cast<float>(line[tap.low]);
          if (tap.of_high != 0) sum += weight_of(lines[l], tap.of_high) * static_cast<float>(line[tap.high]);
        }
        *y++ = stored<T>(sum);
      }
      return;
    }
    if (codes_.factor != 0) {
      std::array<BlendTap, std::size_t{1} << Shape::max_rank> taps;
      for (const LinearTap& tap : along.taps) {
        std::int64_t terms = 0;
        for (std::size_t l = 0; l < count; ++l) {
          const auto add = [&](std::int64_t at, float weight) {
            taps[static_cast<std::size_t>(terms++)] = {lines[l].at + at * p_.inner, weight_of(lines[l], weight)};
          };
          add(tap.low, tap.of_low);
          if (tap.of_high != 0) add(tap.high, tap.of_high);
        }
        blend_codes(dtype_, x, taps.data(), terms, p_.inner, codes_, reinterpret_cast<std::uint8_t*>(y));
        y += p_.inner;
      }
      return;
    }
    for (const LinearTap& tap : along.taps)
      for (std::int64_t done = 0; done < p_.inner; done += chunk) {
        const std::int64_t length = std::min(chunk, p_.inner - done);
        std::array<float, chunk> sums{};
        const auto add = [&](const T* from, float weight) {
          for (std::int64_t i = 0; i < length; ++i)
            sums[static_cast<std::size_t>(i)] += weight * static_cast<float>(from[i]);
        };
        for (std::size_t l = 0; l < count; ++l) {
          const T* const line = x + lines[l].at + done;
          add(line + tap.low * p_.inner, weight_of(lines[l], tap.of_low));
          if (tap.of_high != 0) add(line + tap.high * p_.inner, weight_of(lines[l], tap.of_high));
        }
        for (std::int64_t i = 0; i < length; ++i)
          *y++ = static_cast<T>(static_cast<int>(sums[static_cast<std::size_t>(i)]));
      }
  }

  IntegerResize p_;
  BlendedCodes codes_;
  DType dtype_;
};

}  // namespace

IntegerResize::IntegerResize(const ResizeRule& rule, std::span<const ResizedAxis> all, const Format& format) {
  // Images and volumes are blended along all axes, unchanged ones included.
  const std::size_t rank = all.size(), spatial = rank == 2 || rank == 4 ? 2 : rank == 3 || rank == 5 ? 3 : 0;
  const auto changes = [](const ResizedAxis& axis) { return axis.changes; };
  const bool any = std::ranges::any_of(all, changes), outside = std::ranges::any_of(all.first(rank - spatial), changes);
  struct Ordered {
    ResizedAxis axis;
    bool blended;
  };
  std::vector<Ordered> order;
  for (std::size_t i = 0; i < rank; ++i)
    order.push_back({all[i], all[i].changes || (any && !outside && i >= rank - spatial)});
  if (format == formats::nhwc) order = {order[0], order[2], order[3], order[1]};
  const auto first = std::ranges::find_if(order, &Ordered::blended);
  const auto end = std::find_if(order.rbegin(), order.rend(), [](const Ordered& one) { return one.blended; }).base();
  for (auto one = order.begin(); one != order.end(); ++one) {
    if (one < first || first == order.end())
      outer *= one->axis.in;
    else if (one >= end)
      inner *= one->axis.in;
    else
      axes.push_back({.in = one->axis.in, .out = one->axis.out, .taps = linear_taps(rule, one->axis, one->blended)});
  }
}

std::unique_ptr<const BoundKernel> bind_resize_integers(IntegerResize resize, const BlendedCodes& codes,
                                                        const Binding& binding) {
  return std::make_unique<BoundIntegers>(std::move(resize), codes, binding.problem.inputs()[0].type.dtype);
}

std::unique_ptr<const BoundKernel> bind_resize_integers_cuda(const IntegerResize& resize, const Binding& binding) {
  if (resize.axes.empty()) return bound([](const KernelRun& run) { copy_bytes(run, run.inputs[0], run.outputs[0]); });
  cuda::IntegerResizeLaunch launch{.outer = resize.outer, .inner = resize.inner};
  for (const IntegerResize::Axis& axis : resize.axes) {
    launch.in[launch.axes] = axis.in;
    launch.out[launch.axes++] = axis.out;
  }
  const DType dtype = binding.problem.inputs()[0].type.dtype;
  return bound([=]([[maybe_unused]] const KernelRun& run) {
    if constexpr (cuda_built)
      cuda::resize_integers(*run.cuda, launch, dtype, reinterpret_cast<const LinearTap*>(run.blob),
                            run.inputs[0].data(), run.outputs[0].data());
  });
}

std::size_t integer_taps_bytes(const IntegerResize& resize) {
  std::size_t bytes = 0;
  for (const IntegerResize::Axis& axis : resize.axes) bytes += axis.taps.size() * sizeof(LinearTap);
  return bytes;
}

void fill_integer_taps(const IntegerResize& resize, std::span<std::byte> table) {
  for (const IntegerResize::Axis& axis : resize.axes) {
    const std::size_t bytes = axis.taps.size() * sizeof(LinearTap);
    std::memcpy(table.data(), axis.taps.data(), bytes);
    table = table.subspan(bytes);
  }
}

}  // namespace lenslet
