#pragma once
// The rulebook: which input site meets which output site through which tap of a kernel, as a value of its own that all
// layers of one geometry share (spconv calls it indice pairs, and its name an indice_key). docs/sparse.md has the
// layout and the sources.

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
  /// Taps whose pairs are stored: of a submanifold convolution those before the centre. Tap volume - 1 - t has the
  /// pairs of tap t the other way round, and the centre pairs each site with itself.
  std::int64_t stored_taps() const { return kind == Kind::submanifold ? volume() / 2 : volume(); }
  /// Coordinates of tap `t` = (z * kernel[1] + y) * kernel[2] + x.
  PerAxis tap(std::int64_t t) const { return {t / (kernel[1] * kernel[2]), t / kernel[2] % kernel[1], t % kernel[2]}; }
  /// The grid of the outputs. Error(invalid_model) when a window does not fit.
  SparseGrid output(const SparseGrid& in) const;
  /// The most outputs, along axis `a`, that one input meets through different taps.
  std::int64_t most_meetings(std::size_t a) const;
};

/// Numbers of int32 in front of the pairs: the counts of input and output sites, and where each stored tap's pairs
/// begin and the last one's end.
constexpr std::int64_t rulebook_header(std::int64_t stored_taps) { return 3 + stored_taps; }
/// Length of a rulebook with room for so many pairs.
constexpr std::int64_t rulebook_length(std::int64_t stored_taps, std::int64_t max_pairs) {
  return rulebook_header(stored_taps) + 2 * max_pairs;
}

/// Rows of a rulebook's table of neighbours, [taps, rows]: for each tap and output the input that meets it there, or
/// -1, as behind the outputs that there are. Four are read at a time.
constexpr std::int64_t neighbour_rows(std::int64_t max_outputs) { return (max_outputs + 3) / 4 * 4; }

/// Pairs of one tap, in ascending order of outputs.
struct TapPairs {
  bool identity = false;  ///< each site with itself; no lists
  const std::int32_t* in = nullptr;
  const std::int32_t* out = nullptr;
  std::int64_t count = 0;
};

/// A rulebook as a kernel reads it. What it holds may come from a file: counts and begins are checked here, the pairs
/// by whoever follows them (require_pairs).
class RulebookView {
 public:
  /// `inverse`: inputs are the outputs of the geometry, and the reverse. Error(invalid_argument) unless the value is of
  /// a rulebook of so many stored taps, with at most these numbers of inputs and outputs.
  RulebookView(const Tensor& rulebook, std::int64_t volume, bool submanifold, bool inverse, std::int64_t most_inputs,
               std::int64_t most_outputs);

  std::int64_t inputs() const { return inputs_; }
  std::int64_t outputs() const { return outputs_; }
  TapPairs pairs(std::int64_t tap) const;
  /// Of all taps, identities included.
  std::int64_t pair_count() const;

 private:
  const std::int32_t *begins_, *in_, *out_;
  std::int64_t volume_, inputs_, outputs_;
  bool submanifold_;
};

/// The table of neighbours, of all taps; `table` [volume, rows]. Error(invalid_argument) where a pair is none of the
/// sites that there are.
void write_neighbours(const RulebookView& book, std::int64_t volume, std::int64_t rows, std::int32_t* table);

/// Pairs [begin, end) of a tap: those whose outputs lie in [first, last). `begin` is where to look from.
struct PairRange {
  std::int64_t begin = 0, end = 0;
};
/// The first pair of a tap whose output is not below `first`, by bisection.
std::int64_t first_pair(const TapPairs& pairs, std::int64_t first);
/// Where the pairs end whose outputs lie below `last`, from `begin` on. Error(invalid_argument) where one of those has
/// an output below `first`, or an input that is none of `inputs`. Lists that are out of order otherwise lead to wrong
/// results, never outside.
std::int64_t end_of_pairs(const TapPairs& pairs, std::int64_t begin, std::int64_t first, std::int64_t last,
                          std::int64_t inputs);

}  // namespace lenslet
