// A sparse convolution of 8-bit integers by a kernel that only shows what SparseConv offers to such kernels.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "ops/sparse/sparse_conv.h"
#include "tests/ops/op_runner.h"
#include "tests/ops/sparse_sites.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

std::span<const float> multipliers_of(const Problem& node) { return node.op().epilogue()->requantize->multipliers; }

class Bound final : public BoundKernel {
 public:
  explicit Bound(SparseConvProblem problem) : p_(std::move(problem)) {}

  void run(const KernelRun& run) const override {
    const SparseConvRun r(p_, run);
    for (std::int64_t i = 0; i < p_.max_outputs * p_.filters; ++i) {
      const std::int64_t k = i % p_.filters;
      std::int32_t acc = 0;
      for (std::int64_t tap = 0; tap < p_.taps; ++tap) {
        const TapPairs pairs = r.rulebook.pairs(tap);
        for (std::int64_t j = 0; j < pairs.count; ++j) {
          const std::int64_t out = pairs.identity ? j : pairs.out[j], in = pairs.identity ? j : pairs.in[j];
          if (out != i / p_.filters) continue;
          for (std::int64_t c = 0; c < p_.channels; ++c)
            acc += r.x<std::int8_t>()[in * p_.channels + c] *
                   r.filter<std::int8_t>()[(k * p_.channels + c) * p_.taps + tap];
        }
      }
      if (p_.bias) acc += r.bias<std::int32_t>()[k];
      r.y<std::uint8_t>()[i] = r.requantization.stored<std::uint8_t>(acc, k);
    }
  }

 private:
  SparseConvProblem p_;
};

class Requantizing final : public Kernel {
 public:
  std::string_view name() const override { return "requantizing"; }
  DeviceKind device() const override { return DeviceKind::cpu; }
  DTypeSet types() const override { return dtypes<Types<std::uint8_t>>; }

  Offer offer(const Problem& node, const Target&) const override {
    Candidate candidate;
    candidate.inputs.resize(node.inputs().size());
    candidate.outputs.resize(1);
    candidate.reads = all_inputs & ~input_bit(SparseConvOp::filter);
    return candidate;
  }
  std::optional<BlobSpec> blob(const Problem& node, const Candidate&) const override {
    const auto weights = static_cast<std::size_t>(node.shape(SparseConvOp::filter).elems());
    return BlobSpec{.key = "requantizing", .bytes = multiplier_bytes(node.shape(SparseConvOp::filter)[0]) + weights};
  }
  void prepare(const Problem& node, const Candidate&, std::span<std::byte> blob) const override {
    std::ranges::fill(blob, std::byte{0});
    std::ranges::copy(multipliers_of(node), reinterpret_cast<float*>(blob.data()));
    const Tensor& w = *node.inputs()[SparseConvOp::filter].constant;
    std::memcpy(blob.data() + multiplier_bytes(w.shape()[0]), w.data(), w.bytes());
  }
  std::unique_ptr<const BoundKernel> bind(const Binding& binding) const override {
    return std::make_unique<Bound>(binding.op<SparseConvOp>().problem(binding.problem.inputs()));
  }
};

}  // namespace

TEST_CASE("requantized/sparse_conv") {
  const unsigned seed = random_seed();
  std::mt19937 random(seed);
  constexpr std::int64_t channels = 6, filters = 5, taps = 9;
  const Ints size{7, 8};
  const std::vector<Site> sites = draw_sites(random, 2, size, 0.4);
  const auto bound = static_cast<std::int64_t>(sites.size());
  const Tensor book = run_op(rulebook_case("submanifold", size, {3, 3}, indices_of(sites, bound, 2), 2))[0];
  const std::vector<Tensor> inputs{random_of(DType::i8, {bound, channels}, seed, -128, 128), book,
                                   random_of(DType::i8, {filters, channels, 3, 3}, seed + 1, -128, 128), Tensor(),
                                   random_of(DType::i32, {filters}, seed + 2, -9999, 9999)};
  const auto plain = make_normalised_op("SparseConv", {{"kind", std::string("submanifold")}}, inputs.size());
  Epilogue epilogue = *plain->epilogue();
  epilogue.requantize = {.multipliers = {0.001F, 0.002F, 0.01F, 0.0005F, 0.004F}, .zero_point = 99};
  const Problem problem(plain->with_epilogue(epilogue), infos_of(inputs, {2}));
  REQUIRE(problem.outputs()[0].dtype == DType::u8);

  // The neighbours of each site, by its coordinates.
  std::vector<double> exact;
  for (const Site& at : sites)
    for (std::int64_t k = 0; k < filters; ++k) {
      std::int64_t sum = inputs[4].values<std::int32_t>()[static_cast<std::size_t>(k)];
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        const Site wanted{at[0], at[1] + tap / 3 - 1, at[2] + tap % 3 - 1};
        const auto found = std::ranges::find(sites, wanted);
        if (found == sites.end()) continue;
        for (std::int64_t c = 0; c < channels; ++c)
          sum += inputs[0].values<std::int8_t>()[static_cast<std::size_t>((found - sites.begin()) * channels + c)] *
                 inputs[2].values<std::int8_t>()[static_cast<std::size_t>((k * channels + c) * taps + tap)];
      }
      exact.push_back(static_cast<double>(sum) * epilogue.requantize->multipliers[static_cast<std::size_t>(k)] + 99);
    }

  const Requantizing kernel;
  const auto refusals = for_each_call(op_runner(), problem, kernel, 1, [&](const Call& call) {
    const Tensor y = run_between_guards(op_runner(), call, inputs, "requantized")[0];
    REQUIRE(y.elems() == std::ssize(exact));
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const double in_range = std::clamp(exact[i], 0.0, 255.0);
      CHECK(std::abs(y.values<std::uint8_t>()[i] - in_range) <= 0.5 + 1e-4);
    }
  });
  CHECK(refusals.empty());
  for (const Kernel* floats : kernels_of("SparseConv", DeviceKind::cpu))
    CHECK(!floats->offer(problem, {op_runner().profiles(1).at(0)}).refusal.empty());
}

}  // namespace lenslet::test
