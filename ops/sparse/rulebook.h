#pragma once
// The rulebook: pairs of input and output sites per kernel tap, a value that all layers of one geometry share (spconv's
// indice pairs, named by an indice_key). Layout and sources: docs/sparse.md.

#include <cstdint>
#include <string_view>

#include "lenslet/tensor.h"
#include "ops/sparse/grid.h"

namespace lenslet {

/// Windows of the spatial axes.
struct SparseGeometry {
  enum class Kind {
    submanifold,  ///< outputs are where inputs are; odd kernels, stride 1, centred
    regular,      ///< outputs wherever a window meets an input: out * stride + tap * dilation - pad = in
    transposed,   ///< in * stride + tap * dilation - pad = out
  };
  Kind kind = Kind::submanifold;
  PerAxis kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1}, pad_begin{0, 0, 0}, pad_end{0, 0, 0},
      output_padding{0, 0, 0};

  std::int64_t volume() const { return kernel[0] * kernel[1] * kernel[2]; }
  /// Taps with stored pairs: for a submanifold convolution those before the centre. Tap volume - 1 - t has tap t's
  /// pairs reversed, and the centre pairs each site with itself.
  std::int64_t stored_taps() const { return kind == Kind::submanifold ? volume() / 2 : volume(); }
  /// Coordinates of tap `t` = (z * kernel[1] + y) * kernel[2] + x.
  PerAxis tap(std::int64_t t) const { return {t / (kernel[1] * kernel[2]), t / kernel[2] % kernel[1], t % kernel[2]}; }
  /// The grid of outputs. Error(invalid_model) when a window does not fit.
  SparseGrid output(const SparseGrid& in) const;
  /// The most outputs per input along axis `a`, over all taps.
  std::int64_t most_meetings(std::size_t a) const;
};

/// int32 values before the pairs: the numbers of input and output sites, the begin of each stored tap's pairs, and the
/// end of the last.
constexpr std::int64_t rulebook_header(std::int64_t stored_taps) { return 3 + stored_taps; }
/// Length of a rulebook with a capacity of `pairs`.
constexpr std::int64_t rulebook_length(std::int64_t stored_taps, std::int64_t max_pairs) {
  return rulebook_header(stored_taps) + 2 * max_pairs;
}

/// Rows of a rulebook's neighbour table [taps, rows]: for each tap and output its input, or -1, also behind the last
/// output. Padded to read four at a time.
constexpr std::int64_t neighbour_rows(std::int64_t max_outputs) { return (max_outputs + 3) / 4 * 4; }

/// Pairs of one tap, sorted by output.
struct TapPairs {
  bool identity = false;  ///< each site with itself; no lists
  const std::int32_t* in = nullptr;
  const std::int32_t* out = nullptr;
  std::int64_t count = 0;
};

/// A rulebook as kernels read it. Its content may come from a file: counts and begins are checked here, pairs where
/// they are used (require_pairs).
class RulebookView {
 public:
  /// `inverse`: inputs and outputs of the geometry are swapped. Error(invalid_argument) unless the value is a rulebook
  /// with that many stored taps and at most these numbers of inputs and outputs.
  RulebookView(const Tensor& rulebook, std::int64_t volume, bool submanifold, bool inverse, std::int64_t most_inputs,
               std::int64_t most_outputs);

  std::int64_t inputs() const { return inputs_; }
  std::int64_t outputs() const { return outputs_; }
  TapPairs pairs(std::int64_t tap) const;
  /// Pairs of all taps, identities included.
  std::int64_t pair_count() const;

 private:
  const std::int32_t *begins_, *in_, *out_;
  std::int64_t volume_, inputs_, outputs_;
  bool submanifold_;
};

/// Writes the neighbour table of all taps; `table` [volume, rows]. Error(invalid_argument) for pairs with invalid
/// sites.
void write_neighbours(const RulebookView& book, std::int64_t volume, std::int64_t rows, std::int32_t* table);

/// A tap's pairs [begin, end) with outputs in [first, last). `begin` is where to search from.
struct PairRange {
  std::int64_t begin = 0, end = 0;
};
/// The first pair of a tap whose output is at least `first`, by bisection.
std::int64_t first_pair(const TapPairs& pairs, std::int64_t first);
/// The end of the pairs from `begin` on with outputs below `last`. Error(invalid_argument) if one has an output below
/// `first` or an invalid input. Otherwise unsorted lists give wrong results, never accesses out of bounds.
std::int64_t end_of_pairs(const TapPairs& pairs, std::int64_t begin, std::int64_t first, std::int64_t last,
                          std::int64_t inputs);

}  // namespace lenslet
