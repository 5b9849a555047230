#include "ops/sparse/rulebook.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <numeric>

namespace lenslet {

SparseGrid SparseGeometry::output(const SparseGrid& in) const {
  if (kind == Kind::submanifold) return in;
  SparseGrid out = in;
  for (std::size_t a = 0; a < 3; ++a) {
    const std::int64_t extent = dilation[a] * (kernel[a] - 1) + 1, pads = pad_begin[a] + pad_end[a];
    if (kind == Kind::regular) {
      const std::int64_t room = in.size[a] + pads - extent;
      out.size[a] = room < 0 ? 0 : room / stride[a] + 1;
    } else {
      out.size[a] = (in.size[a] - 1) * stride[a] - pads + extent + output_padding[a];
    }
    if (out.size[a] < 1 || out.size[a] > std::int64_t{1} << 30)
      throw Error(ErrorKind::invalid_model, fmt::format("a window of {} over {} cells leaves {} of them on an axis",
                                                        extent, in.size[a], out.size[a]));
  }
  return out;
}

std::int64_t SparseGeometry::most_meetings(std::size_t a) const {
  if (kind == Kind::transposed) return kernel[a];
  // Taps t are counted by the class of t * dilation modulo the stride.
  const std::int64_t period = stride[a] / std::gcd(stride[a], dilation[a]);
  return (kernel[a] + period - 1) / period;
}

RulebookView::RulebookView(const Tensor& rulebook, std::int64_t volume, bool submanifold, bool inverse,
                           std::int64_t most_inputs, std::int64_t most_outputs)
    : volume_(volume), submanifold_(submanifold) {
  const std::int64_t stored = submanifold ? volume / 2 : volume, header = rulebook_header(stored);
  const auto values = rulebook.values<std::int32_t>();
  const std::int64_t room = (static_cast<std::int64_t>(values.size()) - header) / 2;
  begins_ = values.data() + 2;
  in_ = values.data() + header;
  out_ = in_ + room;
  if (inverse) std::swap(in_, out_);
  inputs_ = values[inverse ? 1 : 0];
  outputs_ = values[inverse ? 0 : 1];
  const bool ascending = std::is_sorted(begins_, begins_ + stored + 1);
  if (begins_[0] != 0 || !ascending || begins_[stored] > room || (submanifold && inputs_ != outputs_))
    throw Error(ErrorKind::invalid_argument,
                fmt::format("the rulebook is none of {} taps{}", volume, submanifold ? " of a submanifold" : ""));
  if (inputs_ < 0 || inputs_ > most_inputs || outputs_ < 0 || outputs_ > most_outputs)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("the rulebook leads from {} sites to {}; it holds at most {} and {}", inputs_, outputs_,
                            most_inputs, most_outputs));
}

TapPairs RulebookView::pairs(std::int64_t tap) const {
  assert(tap >= 0 && tap < volume_);
  const auto list = [&](std::int64_t t, const std::int32_t* in, const std::int32_t* out) -> TapPairs {
    return {false, in + begins_[t], out + begins_[t], begins_[t + 1] - begins_[t]};
  };
  if (!submanifold_) return list(tap, in_, out_);
  if (tap == volume_ / 2) return {.identity = true, .count = outputs_};
  return tap < volume_ / 2 ? list(tap, in_, out_) : list(volume_ - 1 - tap, out_, in_);
}

std::int64_t RulebookView::pair_count() const {
  const std::int64_t stored = submanifold_ ? volume_ / 2 : volume_;
  return submanifold_ ? 2 * std::int64_t{begins_[stored]} + outputs_ : begins_[stored];
}

void write_neighbours(const RulebookView& book, std::int64_t volume, std::int64_t rows, std::int32_t* table) {
  std::fill_n(table, volume * rows, -1);
  for (std::int64_t tap = 0; tap < volume; ++tap) {
    const TapPairs pairs = book.pairs(tap);
    std::int32_t* const of_tap = table + tap * rows;
    if (pairs.identity) {
      std::iota(of_tap, of_tap + pairs.count, 0);
      continue;
    }
    if (end_of_pairs(pairs, 0, 0, book.outputs(), book.inputs()) != pairs.count)
      throw Error(ErrorKind::invalid_argument,
                  "the rulebook has pairs that are out of order, or of sites that are not");
    for (std::int64_t i = 0; i < pairs.count; ++i) of_tap[pairs.out[i]] = pairs.in[i];
  }
}

std::int64_t first_pair(const TapPairs& pairs, std::int64_t first) {
  if (pairs.identity) return std::min(first, pairs.count);
  return std::lower_bound(pairs.out, pairs.out + pairs.count, first) - pairs.out;
}

std::int64_t end_of_pairs(const TapPairs& pairs, std::int64_t begin, std::int64_t first, std::int64_t last,
                          std::int64_t inputs) {
  if (pairs.identity) return std::min(last, pairs.count);
  std::int64_t end = begin;
  bool inside = true;
  for (; end < pairs.count && pairs.out[end] < last; ++end)
    inside = inside && pairs.out[end] >= first && pairs.in[end] >= 0 && pairs.in[end] < inputs;
  if (!inside)
    throw Error(ErrorKind::invalid_argument, "the rulebook has pairs that are out of order, or of sites that are not");
  return end;
}

}  // namespace lenslet
