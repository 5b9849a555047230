// SparseConv on the device in every precision, with sites for many blocks, repeated a hundred times, and with random
// rulebooks. The cases of tests/ops/sparse_test.cpp and sparse_drawn_test.cpp run on the device, too.

#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <span>
#include <string>

#include "tests/cuda/device_case.h"
#include "tests/cuda/posed_sparse_conv.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

constexpr const char* arithmetics[] = {"fp32", "tf32", "fp16", "bf16"};

void check_all(const Wanted& w, unsigned seed) {
  Posed posed(w, seed);
  const int calls = posed.for_each_call([&](const Call& call) { posed.check(call, w.str()); });
  CHECK_MESSAGE(calls >= 1, w.str());
}

void check_in(std::span<const char* const> precisions, std::span<const Wanted> all, unsigned seed) {
  for (const char* const numerics : precisions)
    for (std::size_t i = 0; i < all.size(); ++i) {
      Wanted w = all[i];
      w.numerics = numerics;
      check_all(w, seed + static_cast<unsigned>(i));
    }
}

}  // namespace

// Rows of x in vectors of 16, 4 and 2 bytes; filters in one or several tiles of 16, 32, 64 and 128, full and partial.
TEST_CASE("cuda/sparse_conv/arithmetics") {
  const std::pair<std::int64_t, std::int64_t> widths[] = {{16, 16}, {4, 16},   {5, 7},   {33, 33},  {64, 64},
                                                          {1, 1},   {20, 128}, {8, 200}, {48, 130}, {18, 300}};
  unsigned seed = random_seed() % 1'000'000'000U;
  MESSAGE("seed ", seed);
  int index = 0;
  for (const char* const numerics : arithmetics)
    for (const auto& [channels, filters] : widths)
      for (const char* const kind : {"submanifold", "regular", "inverse"}) {
        if (reduced() && index++ % 7 != 0) continue;
        Wanted w{.kind = kind,
                 .size = {5, 9, 11},
                 .channels = channels,
                 .filters = filters,
                 .fill = 0.3,
                 .numerics = numerics};
        check_all(w, seed += 5);
        w.size = {13, 10};
        w.kernel = {5, 3};
        w.fill = 0.6;
        // With one channel the bias and activation may leave only zeros, and nothing to measure errors by.
        if (filters > 1) w.activation = seed % 2 == 0 ? "relu" : "silu";
        check_all(w, seed += 5);
      }
}

TEST_CASE("cuda/sparse_conv/sizes") {
  const Wanted all[] = {{"submanifold", {3, 3, 3}, {3, 3, 3}, {}, 8, 8, 0},
                        {"submanifold", {8, 8, 8}, {3, 3, 3}, {}, 16, 16, 1},
                        {"submanifold", {6, 6, 6}, {1, 1, 1}, {}, 32, 40, 0.5},
                        {"submanifold", {9, 9, 9}, {5, 5, 5}, {}, 12, 20, 0.5}};
  // The last fp32 configuration runs no code that others do not.
  constexpr const char *fp32[] = {"fp32"}, *fp16[] = {"fp16"};
  check_in(fp32, std::span(all).first(reduced() ? 3 : 4), 1);
  check_in(fp16, all, 1);
}

TEST_CASE("cuda/sparse_conv/many_blocks") {
  if (!can_run("cuda/sparse_conv/many_blocks", reduced() ? "LENSLET_TEST_REDUCED asks for less" : "")) return;
  const Wanted all[] = {{"submanifold", {20, 120, 120}, {3, 3, 3}, {}, 16, 16, 0.07},
                        {"submanifold", {12, 100, 100}, {3, 3, 3}, {}, 64, 64, 0.05, "relu"},
                        {"regular", {20, 120, 120}, {3, 3, 3}, {2, 2, 2}, 16, 32, 0.07},
                        {"inverse", {20, 120, 120}, {3, 3, 3}, {2, 2, 2}, 32, 16, 0.07},
                        {"regular", {12, 60, 60}, {3, 1, 1}, {2, 1, 1}, 64, 128, 0.1}};
  check_in(arithmetics, all, 11);
}

// Some hundred outputs with split-K by eight, and some thousand with two to four.
TEST_CASE("cuda/sparse_conv/the_same_bits_a_hundred_times") {
  for (const char* const numerics : arithmetics)
    for (const std::int64_t depth : {1, 10}) {
      const Wanted w{.size = {depth, 40, 40}, .channels = 32, .filters = 64, .fill = 0.1, .numerics = numerics};
      Posed posed(w, 21);
      posed.for_each_call([&](const Call& call) {
        Tensor first;
        for (int i = 0; i < (reduced() ? 1 : 50); ++i) {  // each runs twice
          const Tensor y = posed.run(call, w.str())[0];
          if (first.empty()) first = y.clone();
          REQUIRE_MESSAGE(std::memcmp(first.data(), y.data(), y.bytes()) == 0, w.str(), ": ", call.str(), ", run ", i);
        }
      });
    }
}

// Whatever a rulebook contains, nothing outside is read or written. An invalid one is reported; a valid one with
// existing sites is computed.
TEST_CASE("cuda/sparse_conv/rulebooks_of_noise") {
  for (const char* const numerics : {"fp32", "fp16"})
    for (const char* const kind : {"submanifold", "regular", "inverse"}) {
      const Wanted w{
          .kind = kind, .size = {6, 20, 20}, .channels = 16, .filters = 32, .fill = 0.3, .numerics = numerics};
      Posed posed(w, 31);
      const Tensor good = posed.inputs()[1].clone();
      std::mt19937 random(32);
      for (int round = 0; round < (reduced() ? 3 : 30); ++round) {
        posed.inputs()[1] = good.clone();
        const auto values = posed.inputs()[1].values<std::int32_t>();
        std::uniform_int_distribution<std::int32_t> any(-5, round % 2 == 0 ? 1 << 30 : 2000);
        std::uniform_int_distribution<std::size_t> at(0, round % 3 == 0 ? 29 : values.size() - 1);
        for (int i = 0; i < 1 + round * 20; ++i) values[at(random)] = any(random);
        posed.for_each_call([&](const Call& call) {
          try {
            (void)posed.run(call, w.str());
          } catch (const Error& error) {
            CHECK_MESSAGE(error.kind() == ErrorKind::invalid_argument, std::string(error.what()));
          }
        });
      }
      posed.inputs()[1] = good;
      posed.for_each_call([&](const Call& call) { posed.check(call, w.str()); });
    }
}

}  // namespace lenslet::test
