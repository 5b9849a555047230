// Plans, packed filters and refusals of CUDA's SparseConv kernels. Needs no device.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/half.h"
#include "ops/sparse/cuda/gathered_plan.h"
#include "ops/sparse/cuda/neighbour_plan.h"
#include "ops/sparse/cuda/sparse_conv_cuda.h"
#include "tests/expect_error.h"
#include "tests/ops/op_runner.h"
#include "tests/ops/sparse_sites.h"

namespace lenslet::cuda {
namespace {

using test::random_f32;

SparseConvProblem problem(std::int64_t channels, std::int64_t filters, std::int64_t taps = 27) {
  return {.max_inputs = 1000,
          .max_outputs = 1000,
          .channels = channels,
          .filters = filters,
          .taps = taps,
          .max_pairs = 27000,
          .submanifold = true,
          .weights_known = true};
}

constexpr SparseArithmetic all[] = {SparseArithmetic::fma, SparseArithmetic::tf32, SparseArithmetic::fp16,
                                    SparseArithmetic::bf16};

TEST_CASE("sparse/plan/tilings") {
  for (const std::int64_t filters : {1, 16, 17, 32, 64, 65, 128, 129, 192, 200, 256, 1000}) {
    const SparseConvProblem p = problem(16, filters);
    const GatheredPlan plan = plan_gathered(p, reference_gpu());
    CHECK(plan.columns <= most_columns);
    CHECK(plan.tiles_n(p) * plan.columns >= filters);
    CHECK((plan.tiles_n(p) - 1) * plan.columns < filters);
    CHECK(plan.rows >= few_rows);
    CHECK(plan.rows % 16 == 0);
    CHECK(plan.rows_of(plan.fill * 64) == 64);
    CHECK(plan.rows_of(plan.fill * 64 - 1) == few_rows);
    CHECK(plan.split_k_of(plan.fill * 64 - 1, 27) == 2);
    CHECK(plan.split_k_of(plan.fill * 64, 27) == 1);
    const GatheredPlan of_a_line = plan_gathered(problem(16, filters, 3), reference_gpu());
    CHECK(of_a_line.split_k == 1);
    CHECK(of_a_line.rows_of(of_a_line.fill * 32 - 1) == fewest_rows);
    CHECK(plan.rows_of(plan.fill * 8 - 1) == fewest_rows);
    CHECK(read_gathered_plan(p, plan.str()).str() == plan.str());
    CHECK_ERROR((void)read_gathered_plan(p, "rows=65 columns=16 units=1 ahead=1 fill=1 split_k=1"), invalid_argument,
                "it has no such configuration");
  }
}

// For plans of many problems the product of their estimates (as a logarithm), and a checksum of their texts. A change
// needs new measurements, or was unintended.
TEST_CASE("sparse/plan/tilings_and_their_estimates_are_those_that_were_fitted") {
  const DeviceProfile& device = reference_gpu();
  struct Sum {
    double log_us = 0;
    std::uint32_t words = 0;
    void add(const std::string& text, double us) {
      log_us += std::log(us);
      for (const char c : text) words = words * 31 + static_cast<unsigned char>(c);
    }
    std::string str() const { return fmt::format("{:.10g} {:x}", log_us, words); }
  };
  Sum gathered, neighbours;
  for (const std::int64_t channels : {4, 16, 32, 64, 100, 128})
    for (const std::int64_t filters : {1, 16, 48, 64, 200})
      for (const std::int64_t taps : {3, 8, 9, 27, 125})
        for (const std::int64_t sites : {300, 20000, 1000000}) {
          SparseConvProblem p = problem(channels, filters, taps);
          p.max_inputs = p.max_outputs = sites;
          p.max_pairs = sites * taps;
          p.submanifold = taps % 2 == 1;
          const GatheredPlan plan = plan_gathered(p, device);
          gathered.add(fmt::format("{} {} {}", plan.str(), plan.workspace_bytes(p), gathered_filter_bytes(p, plan)),
                       gathered_us(p, plan, device));
          for (const SparseArithmetic arithmetic : all) {
            const NeighbourPlan of = plan_neighbours(p, arithmetic, device);
            neighbours.add(fmt::format("{} {} {} {}", of.str(), of.blocks(p), neighbour_filter_bytes(p, of, arithmetic),
                                       of.shared_bytes(taps, of.chunks(row_bytes(p, arithmetic)))),
                           neighbour_us(p, arithmetic, device));
            SparseConvProblem given = p;
            given.table_rows = sites;
            neighbours.add("", neighbour_us(given, arithmetic, device));
          }
        }
  CHECK(gathered.str() == "2206.230159 b921bd9");
  CHECK(neighbours.str() == "15381.64166 41c94789");
}

TEST_CASE("sparse/plan/sizes_are_taken_to_their_limits_and_not_beyond") {
  const auto refusal = [](std::int64_t sites, std::int64_t numbers, std::int64_t channels) {
    const InputInfo inputs[] = {{true, {DType::f32, {sites, channels}}},
                                {true, {DType::i32, {numbers}}},
                                {true, {DType::f32, {1, channels, 3, 1}}}};
    const AttributeList attributes{{"kind", std::string("submanifold")}};
    const Problem node(make_op("SparseConv", "lenslet", attributes, 3, 1, 1), inputs);
    return refuse_sizes(node.as<SparseConvOp>().problem(node.inputs()), node).value_or("");
  };
  constexpr std::int64_t k = 1024;
  CHECK(refusal(128 * k * k, 4, 4) == "");
  CHECK(refusal(128 * k * k + 1, 4, 4) == "more than 2^27 sites");
  CHECK(refusal(9, 2048 * k * k - 2, 4) == "");
  CHECK(refusal(9, 2048 * k * k, 4) == "a rulebook of more than 2^31 numbers");
  CHECK(refusal(9, 4, 4 * k * k) == "");
  CHECK(refusal(9, 4, 4 * k * k + 1) == "more than 2^22 channels or filters");
}

// Assumptions of the kernels' launch bounds: blocks on a multiprocessor with 228 KiB, of which each reserves one.
TEST_CASE("sparse/plan/shared") {
  for (const std::int64_t filters : {16, 32, 64})
    for (const std::int64_t channels : {1, 16, 32, 64, 100, 128, 300})
      for (const std::int64_t outputs : {1000, 1000000}) {
        SparseConvProblem p = problem(channels, filters);
        p.max_outputs = outputs;
        const std::int64_t pair_units = gathered_units(p);
        const GatheredPlan plan = plan_gathered(p, reference_gpu());
        CAPTURE(plan.str());
        constexpr std::size_t resident = 4;
        CHECK(resident * (plan.shared_bytes(27, pair_units) + 1024) <= 228U * 1024);
        CHECK(plan.shared_bytes(125, pair_units) <= 227U * 1024);
        CHECK(plan.number_slots(pair_units) * 2 * batch_rows * 4 >= 125 * 16);  // taps are listed there
      }
}

// The grid covers every block and split of any run, and the workspace their results.
TEST_CASE("sparse/plan/split_k") {
  int has_split_k = 0;
  for (const std::int64_t filters : {16, 64, 300})
    for (const std::int64_t taps : {1, 3, 27})
      for (const std::int64_t bound : {1, 700, 5000, 30000, 1000000})
        for (const int fill : {0, 1, 7, 300, 1 << 16})
          for (std::int64_t outputs = 0; outputs <= bound; outputs += 1 + outputs / 20) {
            SparseConvProblem p = problem(16, filters, taps);
            p.max_outputs = bound;
            GatheredPlan plan = plan_gathered(p, reference_gpu());
            if (fill > 0) plan.fill = fill;
            const std::int64_t rows = plan.rows_of(outputs), blocks = (outputs + rows - 1) / rows,
                               split_k = plan.split_k_of(outputs, taps);
            REQUIRE(rows >= fewest_rows);
            REQUIRE(rows <= plan.rows);
            REQUIRE(blocks <= plan.blocks(p));
            REQUIRE(blocks * split_k <= plan.grid_x(p));
            REQUIRE(split_k >= 1);
            REQUIRE(split_k <= max_split_k);
            if (split_k == 1) continue;
            ++has_split_k;
            REQUIRE(taps / split_k >= 3);
            REQUIRE(blocks * plan.tiles_n(p) <= plan.counters(plan.tiles_n(p)));
            const std::int64_t acc = blocks * split_k * plan.tiles_n(p) * rows * plan.columns;
            REQUIRE(plan.parts_offset(p) + static_cast<std::size_t>(acc) * 4 <= plan.workspace_bytes(p));
            REQUIRE(plan.parts_offset(p) % 16 == 0);
          }
  CHECK(has_split_k > 100);
}

// Every weight is where the kernel reads it, rounded once with its scale, with zeros everywhere else.
TEST_CASE("sparse/plan/filters") {
  const SparseConvProblem p = problem(21, 70, 9);
  const Tensor w = random_f32({70, 21, 3, 3}, 3);
  const float* const weights = w.values<float>().data();
  std::vector<double> scale(70);
  for (std::size_t k = 0; k < scale.size(); ++k) scale[k] = 0.5 + static_cast<double>(k % 3);
  const auto op = make_normalised_op("SparseConv", {{"weight_scale", scale}}, 3);
  const GatheredPlan plan = plan_gathered(p, reference_gpu());
  std::vector<float> blob(gathered_filter_bytes(p, plan) / sizeof(float), -1);
  pack_gathered_filters(static_cast<const SparseConvOp&>(*op), p, weights, plan,
                        std::as_writable_bytes(std::span(blob)));
  const std::int64_t units = gathered_units(p);
  CHECK(std::count_if(blob.begin(), blob.end(), [](float value) { return value != 0; }) == 70 * 21 * 9);
  for (const auto& [k, c, tap] : {std::tuple{0, 0, 0}, {69, 20, 8}, {64, 3, 4}, {37, 17, 5}, {12, 9, 1}}) {
    const std::int64_t unit = (k / plan.columns * 9 + tap) * units + c / 16;
    const double exact = double{weights[(k * 21 + c) * 9 + tap]} * scale[static_cast<std::size_t>(k)];
    CHECK(blob[static_cast<std::size_t>((unit * 16 + c % 16) * plan.columns + k % plan.columns)] ==
          static_cast<float>(exact));
  }
}

/// A number of a precision, from its bytes.
double number(SparseArithmetic arithmetic, const std::byte* at) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, at, static_cast<std::size_t>(element_bytes(arithmetic)));
  const auto half = static_cast<std::uint16_t>(bits);
  return arithmetic == SparseArithmetic::fp16   ? double{f32_from_f16(half)}
         : arithmetic == SparseArithmetic::bf16 ? double{f32_from_bf16(half)}
                                                : double{std::bit_cast<float>(bits)};
}

// Fragments that a warp's lanes read from a row of x and from the filters, multiplied as by the instruction, give the
// sum of products over channels, at the position that the lane stores.
TEST_CASE("sparse/neighbours/filters") {
  for (const SparseArithmetic arithmetic : all)
    for (const auto& [channels, filters, taps_of_axis] :
         {std::tuple{16, 16, 3}, {21, 70, 3}, {64, 64, 3}, {100, 33, 1}, {4, 16, 3}, {48, 128, 2}}) {
      const std::int64_t taps = taps_of_axis * taps_of_axis;
      const SparseConvProblem p = problem(channels, filters, taps);
      const Tensor w = random_f32({filters, channels, taps_of_axis, taps_of_axis}, 3);
      const float* const weights = w.values<float>().data();
      std::vector<double> scale(static_cast<std::size_t>(filters));
      for (std::size_t k = 0; k < scale.size(); ++k) scale[k] = 0.5 + static_cast<double>(k % 3);
      const auto op = make_normalised_op("SparseConv", {{"weight_scale", scale}}, 3);
      for (const int width : {16, 32, 64})
        for (const int terms : {1, 2, 4}) {
          NeighbourPlan plan = plan_neighbours(p, arithmetic, reference_gpu());
          plan.width = width;
          plan.columns = 64;
          if (!plan.fma) plan.terms = terms;
          const std::int64_t bytes = element_bytes(arithmetic), chunks = plan.chunks(channels * bytes);
          std::vector<std::byte> blob(neighbour_filter_bytes(p, plan, arithmetic), std::byte{0x5A});
          pack_neighbour_filters(static_cast<const SparseConvOp&>(*op), p, weights, plan, arithmetic, blob);
          std::vector<double> x(static_cast<std::size_t>(chunks * plan.step_bytes() / bytes));
          for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c)
            x[c] = 1 + 0.125 * static_cast<double>(c);
          for (const std::int64_t tap : {std::int64_t{0}, taps - 1})
            for (const std::int64_t k : {0, 1, 7, filters / 2, filters - 1}) {
              double exact = 0, size = 0, got = 0;
              for (std::int64_t c = 0; c < channels; ++c) {
                const double term = double{weights[(k * channels + c) * taps + tap]} *
                                    scale[static_cast<std::size_t>(k)] * x[static_cast<std::size_t>(c)];
                exact += term;
                size += std::abs(term);
              }
              for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
                const std::byte* const step =
                    blob.data() + ((k / width * taps + tap) * chunks + chunk) * plan.step_bytes() * width;
                const auto x_at = [&](std::int64_t byte) {
                  return x[static_cast<std::size_t>((chunk * plan.step_bytes() + byte) / bytes)];
                };
                if (plan.fma) {
                  for (std::int64_t c = 0; c < 16; ++c)
                    got += x_at(c * 4) * number(arithmetic, step + (c * width + k % width) * 4);
                  continue;
                }
                // Lane t of four stores filters from t * width / 4 on: columns 2t and 2t + 1 of accumulators j.
                const std::int64_t t_of = k % width / (width / 4), in_lane = k % width % (width / 4);
                const std::int64_t j = in_lane / 2, g = 2 * t_of + in_lane % 2;
                for (int term = 0; term < terms; ++term)
                  for (int t = 0; t < 4; ++t)
                    for (int word = 0; word < 2; ++word)
                      for (std::int64_t e = 0; e < 4; e += bytes) {
                        const int of_lane = terms == 1 ? t * 8 : term / 2 * 64 + t * 16 + term % 2 * 8;
                        const std::byte* const lane = step + (term * (width / 16) + j / 2) * 512 + (g * 4 + t) * 16;
                        got += x_at(of_lane + word * 4 + e) * number(arithmetic, lane + (j % 2 * 2 + word) * 4 + e);
                      }
              }
              CHECK(std::abs(got - exact) <= size * (arithmetic == SparseArithmetic::bf16 ? 0x1p-8 : 0x1p-11));
            }
        }
    }
}

// Any number of outputs has enough blocks, and their tables fit.
TEST_CASE("sparse/neighbours/tilings") {
  for (const SparseArithmetic arithmetic : all)
    for (const std::int64_t filters : {1, 16, 17, 32, 64, 100, 128, 300})
      for (const std::int64_t channels : {1, 4, 16, 32, 64, 100, 128, 300, 1 << 22})
        for (const std::int64_t taps : {1, 3, 27, 125})
          for (const std::int64_t bound : {1, 700, 30000, 1000000}) {
            SparseConvProblem p = problem(channels, filters, taps);
            p.max_outputs = bound;
            const NeighbourPlan plan = plan_neighbours(p, arithmetic, reference_gpu());
            CAPTURE(plan.str());
            REQUIRE(plan.columns % plan.width == 0);
            REQUIRE(plan.rows % plan.tile_rows() == 0);
            REQUIRE(plan.tiles_n(p) * plan.columns >= filters);
            REQUIRE(plan.shared_bytes(taps, plan.chunks(channels * element_bytes(arithmetic))) <= 227U * 1024);
            REQUIRE(read_neighbour_plan(p, arithmetic, plan.str()).str() == plan.str());
            for (std::int64_t outputs = 0; outputs <= bound; outputs += 1 + outputs / 9) {
              const std::int64_t rows = plan.rows_of(outputs);
              REQUIRE(rows >= 1);
              REQUIRE(rows <= plan.rows);
              REQUIRE(rows % plan.tile_rows() == 0);
              REQUIRE((outputs + rows - 1) / rows <= plan.blocks(p));
            }
          }
}

TEST_CASE("sparse/plan/offers") {
  const Tensor w = random_f32({32, 16, 3, 3, 3}, 3);
  const auto refusal = [&](const char* kernel, const char* numerics, DType type, bool known = true,
                           DType w_type = DType::f32) {
    const auto op = make_normalised_op("SparseConv", {}, 3);
    const std::vector<InputInfo> inputs{
        {.present = true, .type = {type, {1000, 16}}},
        {.present = true, .type = {DType::i32, {rulebook_length(13, 13000)}}},
        {.present = true, .type = {w_type, w.shape()}, .constant = known ? &w : nullptr}};
    const Problem posed(op, inputs, {{type, {1000, 32}}});
    return find_kernel("SparseConv", DeviceKind::cuda, kernel)
        ->offer(posed, {reference_gpu(), parse_numerics(numerics)})
        .refusal;
  };
  CHECK(refusal("gathered_tiles", "fp32", DType::f32).empty());
  CHECK(refusal("gathered_tiles", "tf32", DType::f32).empty());  // more exact than requested
  CHECK(refusal("gathered_tiles", "fp16", DType::f16) == "it multiplies float32");
  CHECK(refusal("gathered_tiles", "fp32", DType::f32, false) == "its filters are computed by the network");
  CHECK(refusal("neighbour_tiles", "fp32", DType::f32) ==
        "more than 16 channels or filters: gathered_tiles takes less");
  CHECK(refusal("gather_scatter", "fp32", DType::f32, false).empty());
  CHECK(refusal("neighbour_mma", "fp32", DType::f32) ==
        "tensor cores would round float32 to TF32, which was not asked for");
  CHECK(refusal("neighbour_mma", "tf32", DType::f32).empty());
  CHECK(refusal("neighbour_mma", "fp16", DType::f16).empty());
  CHECK(refusal("neighbour_mma", "bf16", DType::bf16).empty());
  CHECK(refusal("neighbour_mma", "fp16", DType::f16, true, DType::f16) ==
        "its filter is float16; kernels round float32");
}

// Runners of one Model share blobs by their keys: filters in another layout have another key.
TEST_CASE("sparse/plan/keys") {
  const Tensor w = random_f32({16, 16, 3, 3, 3}, 3);
  const auto op = make_normalised_op("SparseConv", {}, 3);
  std::map<std::string, Tensor> blobs;
  for (const char* const numerics : {"fp32", "tf32", "fp16", "bf16"})
    for (const char* const name : {"neighbour_mma", "neighbour_tiles", "gathered_tiles"}) {
      const Numerics asked = parse_numerics(numerics);
      const std::vector<InputInfo> inputs{{.present = true, .type = {asked.storage, {1000, 16}}},
                                          {.present = true, .type = {DType::i32, {rulebook_length(13, 13000)}}},
                                          {.present = true, .type = {DType::f32, w.shape()}, .constant = &w}};
      const Problem posed(op, inputs, {{asked.storage, {1000, 16}}});
      const Kernel& kernel = *find_kernel("SparseConv", DeviceKind::cuda, name);
      const Offer offer = kernel.offer(posed, {reference_gpu(), asked});
      if (!offer.refusal.empty()) continue;
      const Tensor blob = prepared_blob(kernel, posed, offer.candidates[0]);
      const auto [found, is_new] = blobs.emplace(kernel.blob(posed, offer.candidates[0])->key, blob);
      if (is_new) continue;
      REQUIRE(found->second.bytes() == blob.bytes());
      CHECK(std::memcmp(found->second.data(), blob.data(), blob.bytes()) == 0);
    }
  CHECK(blobs.size() == 5);
}

}  // namespace
}  // namespace lenslet::cuda
