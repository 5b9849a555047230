// SparseConv on the device in every arithmetic, on sites for many blocks, a hundred times over, and by rulebooks of
// noise. The cases of tests/ops/sparse_test.cpp and sparse_drawn_test.cpp run here, too.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>

#include "lenslet/numerics.h"
#include "ops/core/kernel.h"
#include "ops/sparse/cuda/neighbour_plan.h"
#include "oracle/oracle.h"
#include "tests/cuda/device_case.h"
#include "tests/cuda/tf32_rounding.h"
#include "tests/ops/op_runner.h"
#include "tests/ops/sparse_sites.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

using namespace cuda;

constexpr const char* arithmetics[] = {"fp32", "tf32", "fp16", "bf16"};

struct Wanted {
  std::string kind = "submanifold";  ///< as SparseConv has it
  Ints size, kernel{3, 3, 3}, strides{};
  std::int64_t channels, filters;
  double fill;
  std::string activation{};  ///< with it, a residual and scales
  const char* numerics = "fp32";
  bool copies = false;  ///< filters that give x back, and no bias

  std::string str() const {
    return fmt::format("{} [{}] of [{}] {} -> {} {} {}", kind, fmt::join(kernel, ","), fmt::join(size, ","), channels,
                       filters, activation, numerics);
  }
};

Tensor in_type(const Tensor& tensor, DType dtype) {
  oracle::Array array = oracle::from_tensor(tensor);
  array.dtype = dtype;
  return oracle::to_tensor(array);
}

SparseArithmetic arithmetic_of(const Call& call) {
  const DType dtype = call.problem.outputs()[0].dtype;
  return call.kernel.name().ends_with("tiles") ? SparseArithmetic::fma
         : dtype == DType::f32                 ? SparseArithmetic::tf32
         : dtype == DType::f16                 ? SparseArithmetic::fp16
                                               : SparseArithmetic::bf16;
}

/// The call in its kernel's other cuts: of large and small blocks, of one warp and of many, with all filters at hand or
/// two taps' at a time. Itself where its kernel does not cut.
std::vector<Candidate> cuts_of(const Call& call) {
  if (!call.kernel.name().starts_with("neighbour")) return {call.candidate};
  const SparseConvProblem p = call.problem.as<SparseConvOp>().problem(call.problem.inputs());
  const SparseArithmetic arithmetic = arithmetic_of(call);
  const NeighbourPlan planned = read_neighbour_plan(p, arithmetic, call.candidate.config);
  const std::int64_t chunks = planned.chunks(row_bytes(p, arithmetic));
  std::vector<Candidate> cuts;
  const auto add = [&](auto change) {
    NeighbourPlan plan = planned;
    change(plan);
    plan.rows = std::max(1, plan.rows / plan.tile_rows()) * plan.tile_rows();
    if (plan.shared_bytes(p.taps, chunks) > call.device.shared_bytes_per_block) return;
    Candidate cut = call.candidate;
    cut.config = plan.str();
    cuts.push_back(std::move(cut));
  };
  const auto other = [&](const NeighbourPlan& plan) {
    return plan.fma ? 4 : plan.aligned(row_bytes(p, arithmetic)) ? 2 : 1;
  };
  const int sites = static_cast<int>(p.max_outputs);
  add([](NeighbourPlan&) {});
  add([](NeighbourPlan& plan) { plan.warps = 1, plan.fill = 1 << 16; });
  add([](NeighbourPlan& plan) { plan.fill = 1, plan.rows = 256; });
  add([&](NeighbourPlan& plan) { plan.fill = sites / 70 + 1, plan.rows = 192, plan.stage = std::min(plan.stage, 2); });
  add([&](NeighbourPlan& plan) {
    plan.pieces = other(plan), plan.fill = sites / 300 + 1, plan.rows = 320, plan.warps = 3;
  });
  add([&](NeighbourPlan& plan) {
    plan.warps = 8, plan.pieces = other(plan), plan.stage = std::min(plan.stage, 5), plan.rows = 64;
  });
  return cuts;
}

/// What a plan in some arithmetic asks of the kernels, and the exact result of what they are given.
class Posed {
 public:
  Posed(const Wanted& w, unsigned seed) : numerics_(parse_numerics(w.numerics)) {
    std::mt19937 random(seed);
    const std::vector<Site> sites = draw_sites(random, 2, w.size, w.fill);
    const std::size_t dims = w.size.size();
    const auto bound = static_cast<std::int64_t>(sites.size()) + 77;
    const Tensor indices = indices_of(sites, bound, dims);
    const bool submanifold = w.kind == "submanifold", inverse = w.kind == "inverse";
    AttributeList grid{{"kind", std::string(submanifold ? "submanifold" : "regular")},
                       {"spatial_shape", w.size},
                       {"images", std::int64_t{2}},
                       {"kernel_shape", w.kernel}};
    if (!w.strides.empty()) grid.emplace_back("strides", w.strides);
    const std::vector<Tensor> book = run_op({.op = "SparseRulebook",
                                             .domain = "lenslet",
                                             .attributes = grid,
                                             .inputs = {indices},
                                             .outputs = submanifold ? 1U : 2U});
    const auto inputs = static_cast<std::size_t>(book[0].values<std::int32_t>()[inverse ? 1 : 0]);
    const std::int64_t rows = submanifold || inverse ? bound : book[1].shape()[0];
    Ints filter_shape{w.filters, w.channels};
    filter_shape.insert(filter_shape.end(), w.kernel.begin(), w.kernel.end());
    const DType storage = numerics_.storage;
    inputs_ = {in_type(features_of(inputs, inverse ? book[1].shape()[0] : bound, w.channels, seed), storage), book[0],
               random_f32(Shape(std::span<const std::int64_t>(filter_shape)), seed + 1),
               submanifold ? Tensor()
               : inverse   ? indices
                           : book[1],
               random_f32({w.filters}, seed + 2)};
    if (w.copies) {
      for (const std::size_t i : {2, 4}) std::ranges::fill(inputs_[i].values<float>(), 0.0F);
      const std::int64_t taps = inputs_[2].shape().elems() / (w.filters * w.channels);
      for (std::int64_t k = 0; k < w.filters; ++k)
        inputs_[2].values<float>()[static_cast<std::size_t>((k * w.channels + k) * taps + taps / 2)] = 1;
    }
    AttributeList attributes{{"kind", w.kind}};
    if (!w.activation.empty()) {
      inputs_.push_back(in_type(random_f32({rows, w.filters}, seed + 3), storage));
      std::vector<double> scale(static_cast<std::size_t>(w.filters));
      for (std::size_t k = 0; k < scale.size(); ++k) scale[k] = 0.5 + static_cast<double>(k % 4) / 4;
      attributes.emplace_back("activation", w.activation);
      attributes.emplace_back("weight_scale", scale);
    }
    const std::shared_ptr<const Op> op = make_normalised_op("SparseConv", attributes, inputs_.size());
    const std::vector<InputInfo> infos = infos_of(inputs_, {2, 4});
    const std::vector<TensorType> outputs{{storage, {rows, w.filters}}};
    problem_ = std::make_unique<Problem>(op, infos, outputs);
    const SparseConvProblem p = problem_->as<SparseConvOp>().problem(infos);
    const RulebookView view(book[0], p.taps, p.submanifold, p.inverse, p.max_inputs, p.max_outputs);
    table_ = Tensor(DType::i32, {p.taps, neighbour_rows(rows)});
    write_neighbours(view, p.taps, table_.shape()[1], table_.values<std::int32_t>().data());
    with_table_ = std::make_unique<Problem>(op, infos_of(and_table(inputs_), {2, 4}), outputs);
    std::vector<oracle::Array> arrays;
    for (const Tensor& input : inputs_) arrays.push_back(oracle::from_tensor(input));
    exact_ = oracle::run("SparseConv", op->attributes(), arrays).value()[0];
  }

  std::vector<Tensor>& inputs() { return inputs_; }
  const oracle::Array& exact() const { return exact_; }

  /// f(call) for every kernel of the device that takes it, with blocks of every size, and of those that use one with a
  /// table of neighbours, too.
  template <typename F>
  int for_each_call(const F& f) const {
    int calls = 0;
    for (const Kernel* kernel : kernels_of("SparseConv", op_runner().device()))
      for (const Problem* problem : {problem_.get(), with_table_.get()}) {
        if (problem == with_table_.get() && !kernel->name().starts_with("neighbour")) continue;
        test::for_each_call(
            op_runner(), *problem, *kernel, 1,
            [&](const Call& call) {
              ++calls;
              for (const Candidate& cut : cuts_of(call))
                f({.problem = call.problem,
                   .kernel = call.kernel,
                   .candidate = cut,
                   .device = call.device,
                   .in_place = call.in_place});
            },
            numerics_);
      }
    return calls;
  }

  std::vector<Tensor> run(const Call& call, const std::string& where) const {
    const bool with_table = call.problem.inputs().size() > SparseConvOp::neighbours;
    return run_between_guards(op_runner(), call, with_table ? and_table(inputs_) : inputs_, where);
  }

  void check(const Tensor& y, const Call& call, const std::string& where) const {
    const std::vector<double> got = oracle::from_tensor(y).values;
    REQUIRE(got.size() == exact_.values.size());
    double worst = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double error = oracle::error_at(got[i], exact_, i, y.dtype());
      if (!(error <= worst)) {
        worst = error;
        at = i;
      }
    }
    CHECK_MESSAGE(worst <= call.candidate.tolerance, where, ": ", call.str(), ": element ", at, " is ", got[at],
                  " instead of ", exact_.values[at], ", allowed are ", call.candidate.tolerance, " of ",
                  oracle::scale_at(exact_, at));
  }

 private:
  std::vector<Tensor> and_table(std::vector<Tensor> inputs) const {
    inputs.resize(SparseConvOp::neighbours);
    inputs.push_back(table_);
    return inputs;
  }

  Numerics numerics_;
  std::vector<Tensor> inputs_;
  Tensor table_;
  std::unique_ptr<Problem> problem_, with_table_;
  oracle::Array exact_;
};

void check_all(const Wanted& w, unsigned seed) {
  Posed posed(w, seed);
  const int calls =
      posed.for_each_call([&](const Call& call) { posed.check(posed.run(call, w.str())[0], call, w.str()); });
  CHECK_MESSAGE(calls >= 1, w.str());
}

}  // namespace

// Rows of x by 16, 4 and 2 bytes; filters that fill tiles of 16, 32, 64 and 128, of which there are several, and that
// do not.
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
        // A channel alone may have a bias that leaves nothing of it, and nothing to judge errors by.
        if (filters > 1) w.activation = seed % 2 == 0 ? "relu" : "silu";
        check_all(w, seed += 5);
      }
}

TEST_CASE("cuda/sparse_conv/sizes") {
  for (const char* const numerics : {"fp32", "fp16"}) {
    check_all({.size = {3, 3, 3}, .channels = 8, .filters = 8, .fill = 0, .numerics = numerics}, 1);
    check_all({.size = {8, 8, 8}, .channels = 16, .filters = 16, .fill = 1, .numerics = numerics}, 2);
    check_all(
        {.size = {6, 6, 6}, .kernel = {1, 1, 1}, .channels = 32, .filters = 40, .fill = 0.5, .numerics = numerics}, 3);
    if (reduced() && std::string_view(numerics) == "fp32") continue;  // by nothing that the others don't run
    check_all(
        {.size = {9, 9, 9}, .kernel = {5, 5, 5}, .channels = 12, .filters = 20, .fill = 0.5, .numerics = numerics}, 4);
  }
}

TEST_CASE("cuda/sparse_conv/many_blocks") {
  if (!can_run("cuda/sparse_conv/many_blocks", reduced() ? "LENSLET_TEST_REDUCED asks for less" : "")) return;
  for (const char* const numerics : arithmetics) {
    check_all({.size = {20, 120, 120}, .channels = 16, .filters = 16, .fill = 0.07, .numerics = numerics}, 11);
    check_all({.size = {12, 100, 100},
               .channels = 64,
               .filters = 64,
               .fill = 0.05,
               .activation = "relu",
               .numerics = numerics},
              12);
    check_all({.kind = "regular",
               .size = {20, 120, 120},
               .strides = {2, 2, 2},
               .channels = 16,
               .filters = 32,
               .fill = 0.07,
               .numerics = numerics},
              13);
    check_all({.kind = "inverse",
               .size = {20, 120, 120},
               .strides = {2, 2, 2},
               .channels = 32,
               .filters = 16,
               .fill = 0.07,
               .numerics = numerics},
              14);
    check_all({.kind = "regular",
               .size = {12, 60, 60},
               .kernel = {3, 1, 1},
               .strides = {2, 1, 1},
               .channels = 64,
               .filters = 128,
               .fill = 0.1,
               .numerics = numerics},
              15);
  }
}

// By whole and half vectors of channels, in every cut.
TEST_CASE("cuda/sparse_conv/x_is_rounded_to_the_nearest_tf32") {
  for (const std::int64_t channels : {16, 20, 18}) {
    const unsigned seed = random_seed();
    const Wanted w{.size = {6, 20, 20},
                   .channels = channels,
                   .filters = channels,
                   .fill = 0.3,
                   .numerics = "tf32",
                   .copies = true};
    const Posed posed(w, seed);
    const std::vector<float> x(posed.exact().values.begin(), posed.exact().values.end());
    int calls = 0;
    posed.for_each_call([&](const Call& call) {
      if (call.kernel.name() != "neighbour_mma") return;
      ++calls;
      const std::size_t wrong = not_rounded_to_tf32(x, posed.run(call, w.str())[0].values<float>());
      CHECK_MESSAGE(wrong == 0, call.str(), " on ", w.str(), ", seed ", seed, ": ", wrong, " of ", x.size());
    });
    CHECK(calls > 0);
  }
}

// Of some hundred outputs, whose blocks are cut into eight slices, and of some thousand, in two to four.
TEST_CASE("cuda/sparse_conv/the_same_bits_a_hundred_times") {
  for (const char* const numerics : arithmetics)
    for (const std::int64_t depth : {1, 10}) {
      const Wanted w{.size = {depth, 40, 40}, .channels = 32, .filters = 64, .fill = 0.1, .numerics = numerics};
      Posed posed(w, 21);
      posed.for_each_call([&](const Call& call) {
        Tensor first;
        for (int i = 0; i < (reduced() ? 1 : 50); ++i) {  // each of them two
          const Tensor y = posed.run(call, w.str())[0];
          if (first.empty()) first = y.clone();
          REQUIRE_MESSAGE(std::memcmp(first.data(), y.data(), y.bytes()) == 0, w.str(), ": ", call.str(), ", run ", i);
        }
      });
    }
}

// Whatever a rulebook says, nothing outside is read or written; what is wrong is said or, where it is in order and of
// sites that there are, computed.
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
      posed.for_each_call([&](const Call& call) { posed.check(posed.run(call, w.str())[0], call, w.str()); });
    }
}

}  // namespace lenslet::test
