// Packed filters of the tensor cores' convolutions: every weight once, zeros everywhere else.

#include "ops/conv/cuda/wgmma_filters.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/convert.h"
#include "base/half.h"
#include "base/tf32.h"
#include "ops/conv/cuda/wgmma_gemm_plan.h"
#include "ops/conv/cuda/wgmma_tf32_plan.h"
#include "tools/measuring/parse_conv.h"

namespace lenslet::cuda {
namespace {

struct Weights {
  std::vector<float> w;
  ConvFilter filter;

  explicit Weights(const ConvProblem& p) {
    std::mt19937 random(7);
    std::uniform_real_distribution<float> values(0.5F, 1.0F);  // large enough not to round to zero
    w.resize(static_cast<std::size_t>(p.k * p.group_c() * p.r * p.s));
    for (float& value : w) value = values(random);
    filter = {.w = w.data(), .gemm_k = p.group_c() * p.r * p.s};
  }
};

/// The filter, in [sets][filters][R*S][channels], at an offset of a set.
std::int64_t filter_at(const ConvProblem& p, std::int64_t place) {
  if (p.storage != DType::f32) return place;
  const auto in_part = static_cast<int>(place % tf32_staged_filters);
  return place - in_part + tf32_filter_at(in_part);
}

template <typename T>
void check(const ConvProblem& p, const WgmmaFilters& filters, std::int64_t channels) {
  CAPTURE(p.str());
  CAPTURE(filters.form(p));
  const Weights weights(p);
  std::vector<T> written(static_cast<std::size_t>(filters.elements(p)), T{});
  REQUIRE(filters.elements(p) == p.groups / filters.together * filters.filters * p.r * p.s * channels);
  std::memset(static_cast<void*>(written.data()), 0xFF, written.size() * sizeof(T));  // NaN in each type
  filters.write(p, weights.filter, std::as_writable_bytes(std::span(written)));

  const std::int64_t taps = p.r * p.s, set_k = filters.together * p.group_k();
  std::set<std::int64_t> found;
  bool right = true;
  std::size_t at = 0;
  for (std::int64_t set = 0; set < p.groups / filters.together; ++set)
    for (std::int64_t place = 0; place < filters.filters; ++place)
      for (std::int64_t tap = 0; tap < taps; ++tap)
        for (std::int64_t c = 0; c < channels; ++c, ++at) {
          const std::int64_t in_set = filter_at(p, place), k = set * set_k + in_set;
          const float value = convert<float>(written[at]);
          const std::int64_t group_in_set = c / p.group_c();
          if (in_set >= set_k || group_in_set >= filters.together || in_set / p.group_k() != group_in_set) {
            right = right && value == 0;
            continue;
          }
          const std::int64_t term = c % p.group_c() * taps + tap;
          const double exact = weights.filter.exact_weight(k, term);
          if constexpr (std::is_same_v<T, float>)
            right = right && value == tf32_from_f64(exact);
          else
            right = right && value == convert<float>(narrowed<T>(exact));
          found.insert(k * weights.filter.gemm_k + term);
        }
  CHECK(right);
  CHECK(found.size() == weights.w.size());
}

ConvProblem stored(ConvProblem p, DType dtype) {
  p.storage = p.x_storage = dtype;
  return p;
}

TEST_CASE("conv/wgmma_filters/every_weight_once") {
  const ConvProblem dense = parse_conv("1x20x8x8 -> 72, 3x2 s1 p0 g1");
  const ConvProblem grouped = parse_conv("1x48x8x8 -> 96, 3x3 s1 p0 g4");
  for (const DType storage : {DType::f16, DType::bf16, DType::f32}) {
    const auto both = [&](const ConvProblem& problem, std::int64_t together, int n) {
      const ConvProblem p = stored(problem, storage);
      const WgmmaFilters filters = in_whole_tiles(p, together, n);
      CHECK(filters.filters % n == 0);
      ConvProblem set = p;
      set.c = together * p.group_c();
      if (storage == DType::f16)
        check<Float16>(p, filters, prepared_channels(set));
      else if (storage == DType::bf16)
        check<BFloat16>(p, filters, prepared_channels(set));
      else
        check<float>(p, filters, prepared_channels(set));
    };
    both(dense, 1, 128);
    both(dense, 1, 32);
    both(grouped, 2, 32);
    both(grouped, 4, 96);
  }
}

TEST_CASE("conv/wgmma_filters/forms_tell_what_decides_them") {
  const ConvProblem p = stored(parse_conv("1x48x8x8 -> 96, 3x3 s1 p0 g4"), DType::f16);
  const std::set<std::string> forms{
      in_whole_tiles(p, 2, 32).form(p), in_whole_tiles(p, 4, 32).form(p), in_whole_tiles(p, 2, 64).form(p),
      in_whole_tiles(p, 2, 32).form(stored(p, DType::f32)), in_whole_tiles(p, 2, 32).form(stored(p, DType::bf16))};
  CHECK(forms.size() == 4);  // 48 filters are padded to 64 with tiles of both 32 and 64
}

}  // namespace
}  // namespace lenslet::cuda
