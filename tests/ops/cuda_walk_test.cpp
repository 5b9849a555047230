// How kernels index broadcast operands. The host decides it, so the test needs no device.

#include "ops/core/walk.h"

#include <doctest/doctest.h>

#include <limits>
#include <random>
#include <vector>

using namespace lenslet;
using namespace lenslet::cuda;

namespace {

struct Stored {
  Shape shape;
  Format layout = formats::nchw;
};

BroadcastLoops loops_over(const Stored& y, const Stored& operand) {
  const BroadcastLoops::Operand operands[] = {{&y.shape, y.layout}, {&operand.shape, operand.layout}};
  return {y.shape, y.layout, operands};
}

// The element of `operand` for each element of `y` in memory order, by the definition of broadcasting.
std::vector<std::int64_t> expected_offsets(const Stored& y, const Stored& operand) {
  const auto y_strides = element_strides(y.shape, y.layout);
  const auto strides = element_strides(operand.shape, operand.layout);
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(y.shape.elems()));
  std::vector<std::int64_t> index(static_cast<std::size_t>(y.shape.rank()));
  for (std::size_t count = 0; count < offsets.size(); ++count) {
    std::int64_t to = 0, from = 0;
    for (int d = 0; d < y.shape.rank(); ++d) {
      const auto at = index[static_cast<std::size_t>(d)];
      to += at * y_strides[static_cast<std::size_t>(d)];
      const int own = d - (y.shape.rank() - operand.shape.rank());
      if (own >= 0 && operand.shape[own] != 1) from += at * strides[static_cast<std::size_t>(own)];
    }
    offsets[static_cast<std::size_t>(to)] = from;
    for (int d = y.shape.rank() - 1; d >= 0 && ++index[static_cast<std::size_t>(d)] == y.shape[d]; --d)
      index[static_cast<std::size_t>(d)] = 0;
  }
  return offsets;
}

Walk walk_of(const Stored& y, const Stored& operand, bool aligned = true) {
  return make_walk(loops_over(y, operand), 1, aligned);
}

struct Case {
  Stored y, operand;
  Walk::Form form;
};

constexpr Format nhwc = formats::nhwc;
using Form = Walk::Form;

const Case cases[] = {
    {{{2, 3, 5, 7}}, {{2, 3, 5, 7}}, Form::whole},
    {{{2, 3, 5, 7}, nhwc}, {{2, 3, 5, 7}, nhwc}, Form::whole},
    {{{2, 3, 5, 7}}, {{}}, Form::single},
    {{{2, 3, 5, 7}}, {{1, 1, 1}}, Form::single},
    {{{}}, {{}}, Form::single},
    {{{2, 8, 5, 7}, nhwc}, {{8, 1, 1}}, Form::packs},
    {{{2, 9, 5, 7}, nhwc}, {{9, 1, 1}}, Form::each},
    {{{2, 9, 5, 8}}, {{9, 1, 1}}, Form::splats},
    {{{2, 9, 5, 7}}, {{9, 1, 1}}, Form::each},
    {{{2, 8, 5, 7}, nhwc}, {{2, 8, 1, 1}, nhwc}, Form::packs},
    {{{2, 8, 5, 7}, nhwc}, {{2, 1, 5, 7}, nhwc}, Form::splats},
    {{{2, 8, 5, 7}, nhwc}, {{2, 8, 5, 7}}, Form::each},
    {{{2, 8, 5, 8}}, {{2, 8, 5, 8}, nhwc}, Form::each},
    {{{2, 3, 5, 7}}, {{5, 1}}, Form::each},
    {{{2, 3, 5, 8}}, {{2, 1, 5, 8}}, Form::packs},
    {{{2, 3, 4, 5, 6}}, {{2, 1, 4, 1, 6}}, Form::each},
    {{{2, 1, 3, 1, 4, 1, 5, 4}}, {{2, 1, 1, 1, 4, 1, 1, 4}}, Form::packs},
};

}  // namespace

TEST_CASE("cuda_walk/offsets_and_forms") {
  for (const Case& c : cases) {
    CAPTURE(c.y.shape.str());
    CAPTURE(c.operand.shape.str());
    const Walk walk = walk_of(c.y, c.operand);
    CHECK(static_cast<int>(walk.form) == static_cast<int>(c.form));
    const std::vector<std::int64_t> expected = expected_offsets(c.y, c.operand);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      wrong += walk.offset(static_cast<std::uint32_t>(i)) != expected[i];
      // What each form guarantees for the four elements of a pack.
      if (i % pack_elems == 0 && walk.form == Form::packs) wrong += expected[i] % pack_elems != 0;
      if (i % pack_elems != 0 && walk.form == Form::packs) wrong += expected[i] != expected[i - 1] + 1;
      if (i % pack_elems != 0 && walk.form == Form::splats) wrong += expected[i] != expected[i - 1];
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("cuda_walk/unaligned_operands_are_never_read_as_packs") {
  CHECK(walk_of({{2, 3, 5, 7}}, {{2, 3, 5, 7}}, false).form == Form::each);
  CHECK(walk_of({{2, 8, 5, 7}, nhwc}, {{8, 1, 1}}, false).form == Form::each);
  CHECK(walk_of({{2, 9, 5, 8}}, {{9, 1, 1}}, false).form == Form::splats);
}

TEST_CASE("cuda_walk/packs_of_halves") {
  const auto form = [](const Stored& y, const Stored& operand) {
    return make_walk(loops_over(y, operand), 1, true, half_pack_elems).form;
  };
  CHECK(form({{2, 16, 5, 7}, nhwc}, {{16, 1, 1}}) == Form::packs);
  CHECK(form({{2, 12, 5, 7}, nhwc}, {{12, 1, 1}}) == Form::each);
  CHECK(form({{2, 9, 4, 4}}, {{9, 1, 1}}) == Form::splats);
  CHECK(form({{2, 9, 4, 5}}, {{9, 1, 1}}) == Form::each);
  CHECK(form({{2, 9, 4, 5}}, {{2, 9, 4, 5}}) == Form::whole);
}

// Large outputs are split: here at a few elements, on the device at 2^30.
TEST_CASE("cuda_walk/pieces") {
  for (const Case& c : cases)
    for (const std::int64_t most : {1, 5, 64, 1000}) {
      const std::vector<std::int64_t> expected = expected_offsets(c.y, c.operand);
      std::int64_t done = 0;
      std::size_t wrong = 0;
      for_each_piece(loops_over(c.y, c.operand), most, [&](const Piece& piece) {
        wrong += piece.elems > most || piece.offsets[0] != done;
        const Walk walk = make_walk(piece.loops, 1, false);
        for (std::int64_t i = 0; i < piece.elems; ++i)
          wrong += piece.offsets[1] + walk.offset(static_cast<std::uint32_t>(i)) !=
                   expected[static_cast<std::size_t>(done + i)];
        done += piece.elems;
      });
      CHECK(wrong == 0);
      CHECK(done == c.y.shape.elems());
    }
}

TEST_CASE("cuda_walk/pieces_of_long_rows_stay_aligned") {
  const Stored y{{1000}};
  for_each_piece(loops_over(y, y), 300, [&](const Piece& piece) { CHECK(piece.offsets[0] % 64 == 0); });
  bool called = false;
  const Stored none{{0, 4}};
  for_each_piece(loops_over(none, none), 300, [&](const Piece&) { called = true; });
  CHECK_FALSE(called);
}

TEST_CASE("cuda_walk/fast_divider") {
  constexpr std::uint32_t most = std::numeric_limits<std::int32_t>::max();
  std::mt19937 generator(7);
  const auto random = [&] { return static_cast<std::uint32_t>(generator()); };
  std::vector<std::uint32_t> divisors{1,   2,    3,     4,     5,     7,     9,        49,  64,
                                      641, 3136, 12544, 65535, 65536, 65537, most - 1, most};
  for (int shift = 20; shift < 31; ++shift)
    for (const int off : {-1, 0, 1}) divisors.push_back((1U << shift) + static_cast<std::uint32_t>(off));
  for (int i = 0; i < 200; ++i) divisors.push_back((random() >> (i % 31 + 1)) + 1);
  std::size_t wrong = 0;
  for (const std::uint32_t by : divisors) {
    const FastDivider divider(by);
    const auto check = [&](std::uint32_t n) {
      auto quotient = static_cast<std::int32_t>(n);
      const auto rest = static_cast<std::uint32_t>(divider.split(quotient));
      wrong += divider.divide(n) != n / by || static_cast<std::uint32_t>(quotient) != n / by || rest != n % by;
    };
    for (std::uint32_t n = 0; n < 100; ++n) {
      check(n);
      check(most - n);
      check(random() >> 1);
      // Around multiples of the divisor, where a quotient would first be wrong.
      const std::uint32_t multiple = (random() >> 1) / by * by;
      check(multiple);
      if (multiple > 0) check(multiple - 1);
    }
  }
  CHECK(wrong == 0);
}
