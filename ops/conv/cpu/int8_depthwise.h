#pragma once
// Depthwise convolutions of uint8: what the algorithm and its kernels, one for each instruction set, agree on.
//
// A 32-bit word holds a column's elements of one channel in several image rows: 4 bytes, or 2 elements of 16 bits where
// the instruction set cannot multiply bytes. One instruction thus multiplies as many taps. The words of the rows that a
// window covers are a ring: an output row replaces the elements that it no longer needs, and reads filters that are
// rotated alike.

#include <algorithm>
#include <cstdint>

namespace lenslet {

/// Words of an image row: element 0 of a part's column i belongs to the padded image's column i * stride + part.
struct DepthwiseColumns {
  std::int64_t stride = 1, pad = 0, image = 0;  ///< image: its columns
  std::int64_t part = 0;                        ///< columns of a part
  std::int64_t channels = 0;                    ///< words of a column

  /// The columns of part `i` that are in the image: [first, end).
  std::int64_t first(std::int64_t i) const { return std::max<std::int64_t>(0, pad - i + stride - 1) / stride; }
  std::int64_t end(std::int64_t i) const { return std::max(first(i), (image + pad - i + stride - 1) / stride); }
};

/// One row of x or two, some channels of which go into the same words.
struct DepthwiseInput {
  int rows = 1;
  const std::uint8_t* x[2] = {};      ///< the first channel of the first column; null, of one: all are `outside`
  int positions[2] = {};              ///< of their elements in the word
  const std::uint8_t* end = nullptr;  ///< behind the last byte that may be read
  std::int64_t pixel = 0, channels = 0;
  std::uint8_t outside = 0;
  std::int32_t* words = nullptr;  ///< of the first part
};

/// One row of y or two adjacent ones, some channels of it.
struct DepthwiseOutput {
  const std::int32_t* words = nullptr;
  const std::int64_t* taps = nullptr;  ///< words from there to each tap's of the first output
  std::int64_t tap_count = 0;          ///< taps that no word shares
  int rows = 1;
  const std::int32_t* filters[2] = {};  ///< of each row: [vectors of channels][tap_count][lanes]
  std::uint8_t* y[2] = {};
  const std::int32_t* start = nullptr;  ///< summand of each channel, whole vectors
  const float* multipliers = nullptr;   ///< likewise
  bool below_one = false;               ///< their magnitudes: products are below 2^31
  std::int64_t word_pixel = 0;          ///< words from output to output
  std::int64_t columns = 0, channels = 0;
  std::int64_t y_pixel = 0;
  std::int32_t zero_point = 0, least = 0, most = 255;  ///< of uint8
  std::uint8_t flip = 0;                               ///< makes them codes of y's type
};

/// Words behind a ring that are read and have no effect, in columns.
inline constexpr std::int64_t depthwise_slack_columns = 4;

}  // namespace lenslet
