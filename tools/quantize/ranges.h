#pragma once
// How large values are in calibration, and which range of them 8 bits shall cover.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace lenslet::tool {

/// Counts of values in bins of equal width on both sides of 0. The width is a power of two, and doubles when a value is
/// beyond the bins. Zeros, which every range has a code for, are not counted.
class Histogram {
 public:
  static constexpr std::size_t side = 2048;  ///< bins on each side

  /// False if a value is infinite or NaN; nothing is counted then.
  bool add(std::span<const float> values);
  void add(const Histogram& other);

  double least() const { return least_; }  ///< at most 0
  double most() const { return most_; }    ///< at least 0
  double total() const { return total_; }
  double width() const { return width_; }  ///< of a bin; 0 before the first value but 0
  /// A histogram from its parts; nothing if they cannot be one's.
  static std::optional<Histogram> from(double least, double most, double width,
                                       std::span<const std::pair<std::size_t, double>> bins);
  /// `see(centre, count)` for each bin with values, ascending.
  template <typename See>
  void each(See&& see) const {
    each_bin([&](std::size_t i, double count) { see((static_cast<double>(i) - double{side} + 0.5) * width_, count); });
  }
  /// `see(bin, count)` for the same bins.
  template <typename See>
  void each_bin(See&& see) const {
    for (std::size_t i = 0; i < counts_.size(); ++i)
      if (counts_[i] > 0) see(i, counts_[i]);
  }

 private:
  void widen(double magnitude);

  double least_ = 0, most_ = 0, total_ = 0, width_ = 0;
  std::vector<double> counts_;
};

struct Range {
  double low = 0, high = 0;
};

enum class Method : std::uint8_t { automatic, minmax, percentile, entropy, mse };
inline constexpr std::array<std::string_view, 5> method_names = {"auto", "minmax", "percentile", "entropy", "mse"};

/// A range with 0 in it. `percentile`: of the values that it covers. Method::automatic: of all methods (and percentile
/// 99.9) the one with the least mean squared error.
Range choose_range(const Histogram& values, Method method, double percentile);
/// Mean squared error of `values` in 256 steps over `range`.
double squared_error(const Histogram& values, const Range& range);

/// Scale and zero point of uint8 (0 to 255) or int8 (-128 to 127).
struct Quantization {
  float scale = 1;
  std::int32_t zero_point = 0;
};
Quantization quantization_of(const Range& range, bool is_signed);

}  // namespace lenslet::tool
