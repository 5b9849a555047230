#include "tools/quantize/ranges.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lenslet::tool {

namespace {

constexpr double steps = 255;

/// The shares of a range that are tried: 1, 0.98 ... 0.3.
constexpr int shares = 36;
constexpr double share(int i) { return 1 - 0.02 * i; }

/// The range with the least `cost`: first its upper end, then its lower end is moved.
template <typename Cost>
Range least_cost(const Histogram& values, Cost&& cost) {
  Range best{values.least(), values.most()};
  double least = cost(best);
  for (double Range::*end : {&Range::high, &Range::low}) {
    const double whole = best.*end;
    if (whole == 0) continue;
    Range tried = best;
    for (int i = 1; i < shares; ++i) {
      tried.*end = whole * share(i);
      if (const double now = cost(tried); now < least) {
        least = now;
        best = tried;
      }
    }
  }
  return best;
}

Range percentile_range(const Histogram& values, double percentile) {
  const bool two_sides = values.least() < 0 && values.most() > 0;
  const double beyond = values.total() * (1 - percentile / 100) / (two_sides ? 2 : 1);
  double below = 0;
  Range range{0, 0};
  bool low_found = values.least() >= 0;
  values.each([&](double centre, double count) {
    below += count;
    if (!low_found && below > beyond) {
      range.low = std::min(centre, 0.0);
      low_found = true;
    }
    if (below - count < values.total() - beyond) range.high = std::max(centre, 0.0);
  });
  return {std::max(range.low, values.least()), std::min(range.high, values.most())};
}

/// Kullback-Leibler divergence of the values in 256 steps from the values themselves, both clipped to `range`. Within a
/// step the first are spread evenly over the bins with values.
double divergence(const Histogram& values, const Range& range) {
  const double scale = (range.high - range.low) / steps;
  if (scale <= 0) return std::numeric_limits<double>::infinity();
  struct Step {
    double sum = 0, inside = 0, bins = 0;
  };
  std::vector<Step> levels(256);
  const auto level = [&](double x) {
    return static_cast<std::size_t>(std::lround((std::clamp(x, range.low, range.high) - range.low) / scale));
  };
  double inside = 0;
  values.each([&](double x, double count) {
    Step& step = levels[level(x)];
    const bool is_inside = x >= range.low && x <= range.high;
    step.sum += count;
    step.bins += 1;
    if (is_inside) step.inside += count;
    inside += is_inside ? count : 0;
  });
  if (inside == 0) return std::numeric_limits<double>::infinity();
  double sum = 0;
  values.each([&](double x, double count) {
    const Step& step = levels[level(x)];
    const double p = count / values.total();
    const double q = std::max(step.inside / step.bins / inside, 1e-12);
    sum += p * std::log(p / q);
  });
  return sum;
}

}  // namespace

void Histogram::widen(double magnitude) {
  if (counts_.empty()) counts_.resize(2 * side);
  if (magnitude == 0) return;
  magnitude = std::max(magnitude, 1e-30);  // so that 1 / width_ is a float32
  if (width_ == 0) width_ = std::exp2(std::ceil(std::log2(magnitude / double{side})) - 1);
  while (magnitude >= width_ * double{side}) {
    std::vector<double> wider(2 * side);
    for (std::size_t i = 0; i < counts_.size(); ++i) wider[side / 2 + i / 2] += counts_[i];
    counts_ = std::move(wider);
    width_ *= 2;
  }
}

bool Histogram::add(std::span<const float> values) {
  float low = 0, high = 0;
  bool finite = true;
  for (const float value : values) {
    low = std::min(low, value);
    high = std::max(high, value);
    finite = finite && std::isfinite(value);
  }
  if (!finite) return false;
  widen(std::max(-double{low}, double{high}));
  least_ = std::min(least_, double{low});
  most_ = std::max(most_, double{high});
  const float inverse = width_ == 0 ? 0 : static_cast<float>(1 / width_);  // exact: a power of two
  for (const float value : values) {
    if (value == 0) continue;
    counts_[static_cast<std::size_t>(static_cast<std::int64_t>(std::floor(value * inverse)) + std::int64_t{side})] += 1;
    total_ += 1;
  }
  return true;
}

void Histogram::add(const Histogram& other) {
  if (other.counts_.empty()) return;
  widen(std::max(-other.least_, other.most_));
  least_ = std::min(least_, other.least_);
  most_ = std::max(most_, other.most_);
  total_ += other.total_;
  const double inverse = width_ == 0 ? 0 : 1 / width_;
  other.each([&](double centre, double count) {
    counts_[static_cast<std::size_t>(static_cast<std::int64_t>(std::floor(centre * inverse)) + std::int64_t{side})] +=
        count;
  });
}

std::optional<Histogram> Histogram::from(double least, double most, double width,
                                         std::span<const std::pair<std::size_t, double>> bins) {
  Histogram made;
  made.least_ = least;
  made.most_ = most;
  made.width_ = width;
  made.counts_.resize(2 * side);
  int exponent = 0;
  const bool power = std::isfinite(width) && std::frexp(width, &exponent) == 0.5 && std::abs(exponent) <= 127;
  if (!(least <= 0 && most >= 0) || (width == 0 ? most - least > 0 || !bins.empty() : !power) ||
      (width > 0 && !(std::max(-least, most) < width * double{side})))
    return std::nullopt;
  for (const auto& [bin, count] : bins) {
    if (bin >= made.counts_.size() || !(count > 0) || !(count < 0x1p53) || made.counts_[bin] > 0) return std::nullopt;
    made.counts_[bin] = count;
    made.total_ += count;
  }
  return made;
}

double squared_error(const Histogram& values, const Range& range) {
  const double scale = (range.high - range.low) / steps;
  double sum = 0;
  values.each([&](double x, double count) {
    const double clipped = std::clamp(x, range.low, range.high);
    const double error = scale > 0 ? std::nearbyint(clipped / scale) * scale - x : x;
    sum += count * std::fabs(x) * error * error;
  });
  return sum / std::max(values.total(), 1.0);
}

Range choose_range(const Histogram& values, Method method, double percentile) {
  const Range all{values.least(), values.most()};
  const auto error = [&](const Range& range) { return squared_error(values, range); };
  switch (method) {
    case Method::minmax:
      return all;
    case Method::percentile:
      return percentile_range(values, percentile);
    case Method::entropy:
      return least_cost(values, [&](const Range& range) { return divergence(values, range); });
    case Method::mse:
      return least_cost(values, error);
    case Method::automatic:
      break;
  }
  Range best = all;
  for (const Range& range :
       {percentile_range(values, percentile), percentile_range(values, 99.9),
        choose_range(values, Method::entropy, percentile), choose_range(values, Method::mse, percentile)})
    if (error(range) < error(best)) best = range;
  return best;
}

Quantization quantization_of(const Range& range, bool is_signed) {
  Quantization q;
  const double scale = (std::max(range.high, 0.0) - std::min(range.low, 0.0)) / steps;
  q.scale = static_cast<float>(scale);
  if (!(q.scale >= std::numeric_limits<float>::min())) q.scale = 1;  // zeros, or nearly
  const double zero = std::clamp(std::nearbyint(-range.low / double{q.scale}), 0.0, steps);
  q.zero_point = static_cast<std::int32_t>(zero) - (is_signed ? 128 : 0);
  return q;
}

}  // namespace lenslet::tool
