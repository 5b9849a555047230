#include "ops/conv/cuda/wgmma_filters.h"

#include "base/convert.h"
#include "base/dtypes.h"
#include "base/tf32.h"
#include "ops/conv/cuda/group_sets.h"
#include "ops/conv/cuda/wgmma_tf32_plan.h"
#include "ops/core/config_text.h"

namespace lenslet::cuda {

std::int64_t WgmmaFilters::elements(const ConvProblem& p) const {
  return all(p) * p.r * p.s * prepared_channels(group_set(p, together));
}

std::string WgmmaFilters::form(const ConvProblem& p) const {
  ConfigWriter text;
  text.add("filters", filters).add("as", p.x_storage == DType::f32 ? "tf32" : to_string(p.x_storage));
  if (together != 1) text.add("together", together);
  return text.str();
}

void WgmmaFilters::write(const ConvProblem& p, const ConvFilter& filter, std::span<std::byte> to) const {
  const ConvProblem set = group_set(p, together);
  const std::int64_t taps = p.r * p.s, group_c = p.group_c(), padded = prepared_channels(set);
  dispatch(p.x_storage, Types<Float16, BFloat16, float>(), [&]<typename T>(std::type_identity<T>) {
    T* next = reinterpret_cast<T*>(to.data());
    for (std::int64_t place = 0; place < all(p); ++place) {
      const std::int64_t first_k = place / filters * set.k;
      std::int64_t k = place % filters;
      if constexpr (std::is_same_v<T, float>) {
        const auto in_part = static_cast<int>(k % tf32_staged_filters);
        k += tf32_filter_at(in_part) - in_part;
      }
      const std::int64_t first_c = k / p.group_k() * group_c;  // first channel of its group in the set
      for (std::int64_t tap = 0; tap < taps; ++tap)
        for (std::int64_t c = 0; c < padded; ++c) {
          const bool meets = k < set.k && c >= first_c && c < first_c + group_c;
          const double weight = meets ? filter.exact_weight(first_k + k, (c - first_c) * taps + tap) : 0.0;
          if constexpr (std::is_same_v<T, float>)
            *next++ = tf32_from_f64(weight);
          else
            *next++ = narrowed<T>(weight);
        }
    }
  });
}

WgmmaFilters in_whole_tiles(const ConvProblem& p, std::int64_t together, int n) {
  return {.together = together, .filters = (group_set(p, together).k + n - 1) / n * n};
}

ConvAlgorithm::FilterForm WgmmaConv::filter_form(const ConvProblem& p, std::string_view config) const {
  const WgmmaFilters filters = filters_of(p, config);
  return {.elements = filters.elements(p), .form = filters.form(p), .element_bytes = dtype_bytes(p.x_storage)};
}

void WgmmaConv::transform(const ConvProblem& p, std::string_view config, const ConvFilter& filter,
                          std::span<std::byte> to) const {
  filters_of(p, config).write(p, filter, to);
}

}  // namespace lenslet::cuda
