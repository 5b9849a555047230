// Every cut of gemm_cute against sums in double of the same rounded operands, at sizes that leave tails everywhere,
// over NaNs: between the operands' rows, around them, in y and in the workspace. And few_rows of 16-bit types.

#include "ops/gemm/cute/gemm_cute.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "base/cuda/session.h"
#include "base/cuda/upload.h"
#include "base/half.h"
#include "ops/core/config_text.h"
#include "ops/core/sum_tolerance.h"
#include "ops/gemm/gemm_cuda.h"
#include "tests/cuda/device_case.h"
#include "tests/larger_error.h"
#include "tests/ops/conv_data.h"
#include "tests/ops/exact_activation.h"
#include "tests/ops/op_runner.h"
#include "tests/random_seed.h"

namespace lenslet {
namespace {

using Multiply = Numerics::Multiply;

void put(DType type, float value, std::byte* to) {
  const std::uint16_t half = type == DType::f16 ? f16_from_f32(value) : bf16_from_f32(value);
  if (type == DType::f32)
    std::memcpy(to, &value, sizeof value);
  else
    std::memcpy(to, &half, sizeof half);
}

double get(DType type, const std::byte* from) {
  std::uint16_t half = 0;
  float value = 0;
  if (type == DType::f32)
    std::memcpy(&value, from, sizeof value);
  else
    std::memcpy(&half, from, sizeof half);
  return type == DType::f32 ? double{value} : double{type == DType::f16 ? f32_from_f16(half) : f32_from_bf16(half)};
}

constexpr std::int64_t guard = 64;  ///< elements of NaN before and behind

/// `rows` of `columns` drawn values on the device, `ld` elements apart, NaN between them and around.
class Drawn {
 public:
  Drawn(std::mt19937& random, DType type, std::int64_t rows, std::int64_t columns, std::int64_t ld)
      : element_bytes_(static_cast<std::int64_t>(dtype_bytes(type))) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<std::byte> bytes(static_cast<std::size_t>((rows * ld + 2 * guard) * element_bytes_), std::byte{0xff});
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) {
        std::byte* const at = bytes.data() + (guard + i * ld + j) * element_bytes_;
        put(type, uniform(random), at);
        values.push_back(get(type, at));
      }
    memory_ = cuda::upload(bytes);
  }
  const std::byte* data() const { return memory_.data() + guard * element_bytes_; }

  std::vector<double> values;  ///< as they are once rounded

 private:
  std::int64_t element_bytes_;
  cuda::DeviceBuffer<std::byte> memory_;
};

struct Case {
  std::int64_t m, n, k;
  bool b_transposed = true;
  std::int64_t batch = 1;
  bool one_b = false;        ///< for the whole batch
  std::int64_t between = 0;  ///< elements between rows of A and B
  bool row_of_c = false, full_c = false, residual = false;
  float alpha = 1, beta = 1;
  Activation activation = {};
  bool in_place = false;   ///< the residual is y
  std::int64_t shift = 0;  ///< elements that y begins behind 128 bytes
};

struct Types {
  Multiply multiply;
  DType x, y;
  std::string_view name;
};
constexpr Types types[] = {
    {Multiply::fp16, DType::f16, DType::f16, "fp16"},   {Multiply::fp16, DType::f16, DType::f32, "fp16 to fp32"},
    {Multiply::bf16, DType::bf16, DType::bf16, "bf16"}, {Multiply::bf16, DType::bf16, DType::f32, "bf16 to fp32"},
    {Multiply::tf32, DType::f32, DType::f32, "tf32"},   {Multiply::fp32, DType::f32, DType::f32, "fp32"}};

/// LENSLET_TEST_CUT="core=wgmma tile=128x256 cluster=2": only these, to find out which one hangs.
std::string_view wanted() {
  const char* const only = std::getenv("LENSLET_TEST_CUT");
  return only == nullptr ? "" : only;
}

std::string text(const cuda::CutePlan& plan) {
  ConfigWriter config;
  plan.write(config);
  return config.str();
}

/// A product of drawn operands, exact and by whatever queues it.
class Product {
 public:
  Product(const cuda::Context& context, const Case& t, const Types& type)
      : context_(context),
        t_(t),
        type_(type),
        a_(random_, type.x, t.batch * t.m, t.k, t.k + t.between),
        b_(random_, type.x, (t.one_b ? 1 : t.batch) * b_rows(), b_columns(), b_columns() + t.between),
        c_(random_, DType::f32, t.m, t.n, t.n),
        residual_(random_, type.y, t.batch * t.m, t.n, t.n),
        y_(static_cast<std::size_t>(before() + elems() + guard) * dtype_bytes(type.y)) {
    compute();
  }

  static cuda::CuteProblem problem_of(const Case& t, const Types& type) {
    const auto vector = static_cast<std::int64_t>(16 / dtype_bytes(type.x));
    const std::int64_t b_columns = t.b_transposed ? t.k : t.n;
    return {.multiply = type.multiply,
            .y_type = type.y,
            .m = t.m,
            .n = t.n,
            .k = t.k,
            .batch = t.batch,
            .b_transposed = t.b_transposed,
            .aligned = t.k % vector == 0 && b_columns % vector == 0 && t.between % vector == 0};
  }

  /// Without workspace.
  cuda::CuteCall call() {
    const std::int64_t a_ld = t_.k + t_.between, b_ld = b_columns() + t_.between;
    return {.problem = problem_of(t_, type_),
            .a = {a_.data(), a_ld, t_.m * a_ld},
            .b = {b_.data(), b_ld, t_.one_b ? 0 : b_rows() * b_ld},
            .alpha = t_.alpha,
            .beta = t_.beta,
            .c = has_c() ? reinterpret_cast<const float*>(c_.data()) : nullptr,
            .c_row = t_.full_c ? t_.n : 0,
            .c_col = 1,
            .residual = t_.in_place   ? y_begin()
                        : t_.residual ? residual_.data()
                                      : nullptr,
            .activation = t_.activation,
            .y = y_begin()};
  }

  /// What `queue` makes of it twice over NaNs: near the exact one, nothing around it, the same bits.
  void check(const std::string& way, const std::function<void()>& queue) {
    const std::string name = fmt::format("{} {} {}x{}x{} B {} batch {}{}{}{}", type_.name, way, t_.m, t_.n, t_.k,
                                         t_.b_transposed ? "[n,k]" : "[k,n]", t_.batch, t_.residual ? " residual" : "",
                                         t_.in_place ? " in place" : "", t_.shift > 0 ? " shifted" : "");
    const std::vector<std::byte> made = run(queue);
    const auto begin = made.begin() + bytes(before()), end = begin + bytes(elems());
    double worst = 0;  // of what is allowed
    std::size_t where = 0;
    for (std::size_t at = 0; at < exact_.size(); ++at) {
      const double part = std::abs(value(made, at) - exact_[at]) / (sums_ + last_ * std::abs(exact_[at]));
      if (!(part <= worst)) where = at;
      worst = test::larger_error(worst, part);
    }
    CHECK_MESSAGE(worst <= 1, fmt::format("{}: y[{}] is {}, exact {}, off by {} of what is allowed", name, where,
                                          value(made, where), exact_[where], worst));
    const auto untouched = [](std::byte byte) { return byte == std::byte{0xff}; };
    CHECK_MESSAGE(std::all_of(made.begin(), begin, untouched), name, ": wrote before y");
    CHECK_MESSAGE(std::all_of(end, made.end(), untouched), name, ": wrote behind y");
    CHECK_MESSAGE(run(queue) == made, name, ": other bits in the second run");
  }

 private:
  std::int64_t b_rows() const { return t_.b_transposed ? t_.n : t_.k; }
  std::int64_t b_columns() const { return t_.b_transposed ? t_.k : t_.n; }
  std::int64_t elems() const { return t_.batch * t_.m * t_.n; }
  std::int64_t before() const { return guard + t_.shift; }
  std::int64_t bytes(std::int64_t count) const { return count * static_cast<std::int64_t>(dtype_bytes(type_.y)); }
  bool has_c() const { return t_.row_of_c || t_.full_c; }
  bool has_residual() const { return t_.residual || t_.in_place; }
  std::byte* y_begin() { return y_.data() + bytes(before()); }
  double value(const std::vector<std::byte>& made, std::size_t at) const {
    return get(type_.y, made.data() + bytes(before() + static_cast<std::int64_t>(at)));
  }

  void compute() {
    const auto exact_of = test::exact_activation(t_.activation);
    const std::int64_t step = t_.b_transposed ? 1 : t_.n;
    for (std::int64_t at = 0; at < elems(); ++at) {
      const std::int64_t product = at / (t_.m * t_.n), i = at / t_.n % t_.m, j = at % t_.n;
      const double* const row = a_.values.data() + (product * t_.m + i) * t_.k;
      const double* const column =
          b_.values.data() + (t_.one_b ? 0 : product * t_.k * t_.n) + (t_.b_transposed ? j * t_.k : j);
      double sum = 0;
      for (std::int64_t l = 0; l < t_.k; ++l) sum += row[l] * column[l * step];
      sum *= double{t_.alpha};
      if (has_c()) sum += double{t_.beta} * c_.values[static_cast<std::size_t>(t_.full_c ? i * t_.n + j : j)];
      if (has_residual()) sum += residual_.values[static_cast<std::size_t>(at)];
      exact_.push_back(exact_of(sum));
    }
    // Factors in (-1, 1) have the variance 1/3. The operands are what they are: rounding them is not to be allowed for,
    // but in tf32. The last rounding errs by half a unit in the last place, and what is rounded to 16 bits may be
    // within 2^-17 before (ops/core/approximate_math.cuh).
    const double rms =
        std::sqrt(double{t_.alpha} * double{t_.alpha} * static_cast<double>(t_.k) / 9 +
                  (has_c() ? double{t_.beta} * double{t_.beta} / 3 : 0) + (has_residual() ? 1.0 / 3 : 0));
    sums_ = (type_.multiply == Multiply::tf32 ? tf32_sum_tolerance(t_.k) : sum_tolerance(t_.k)) * rms;
    last_ = type_.y == DType::f32 ? 0 : unit_roundoff(type_.y) + 0x1p-17;
  }

  std::vector<std::byte> run(const std::function<void()>& queue) {
    CUDA_CHECK(cudaMemset(y_.data(), 0xff, y_.bytes()));
    if (t_.in_place)
      CUDA_CHECK(
          cudaMemcpy(y_begin(), residual_.data(), static_cast<std::size_t>(bytes(elems())), cudaMemcpyDeviceToDevice));
    CUDA_CHECK(cudaDeviceSynchronize());  // the session's stream does not wait for the one that fills
    queue();
    CUDA_CHECK(cudaStreamSynchronize(context_.stream));
    std::vector<std::byte> made(y_.size());
    CUDA_CHECK(cudaMemcpy(made.data(), y_.data(), y_.bytes(), cudaMemcpyDeviceToHost));
    return made;
  }

  const cuda::Context& context_;
  const Case t_;
  const Types type_;
  std::mt19937 random_{test::random_seed()};
  const Drawn a_, b_, c_, residual_;
  cuda::DeviceBuffer<std::byte> y_;
  std::vector<double> exact_;
  double sums_ = 0, last_ = 0;  ///< what is allowed: of all sums alike, and of an element's magnitude
};

/// Runs the plans that say `only` somewhere, and few_rows where that says nothing; gives how many plans ran.
int check(const cuda::Context& context, const DeviceProfile& device, const Case& t, const Types& type,
          std::string_view only) {
  const cuda::CuteProblem problem = Product::problem_of(t, type);
  std::vector<cuda::CutePlan> plans;
  for (const cuda::CutePlan& plan : cuda::cute_plans(problem, device))
    if (text(plan).find(only) != std::string::npos) plans.push_back(plan);
  if (plans.empty()) return 0;

  Product product(context, t, type);
  cuda::CuteCall call = product.call();
  // In the second run B may be read early, which is to change nothing.
  const auto check_way = [&](const std::string& way, const auto& queue) {
    call.b_known = false;
    product.check(way, [&] {
      queue();
      call.b_known = true;
    });
  };
  for (const cuda::CutePlan& plan : plans) {
    cuda::DeviceBuffer<float> workspace(cuda::cute_workspace_bytes(problem, plan) / sizeof(float));
    if (workspace.size() > 0) CUDA_CHECK(cudaMemset(workspace.data(), 0xff, workspace.bytes()));
    call.workspace = workspace.data();
    check_way(text(plan), [&] { cuda::gemm_cute(context, call, plan); });
  }
  if (type.x != DType::f32 && t.batch == 1 && t.b_transposed && call.residual == nullptr && only.empty()) {
    if (t.m <= cuda::most_few_rows)
      for (const int slices : {1, 2, 4, 8})
        product.check(fmt::format("few_rows in {}", slices), [&] { cuda::gemm_few_rows_half(context, call, slices); });
    if (t.m <= cuda::most_few_rows_mma && problem.aligned)
      for (const int eights : {1, 2})
        check_way(fmt::format("few_rows_mma of {}", eights), [&] { cuda::gemm_few_rows_mma(context, call, eights); });
  }
  return static_cast<int>(plans.size());
}

void check_all(const std::vector<Case>& cases) {
  const cuda::Session session(0);
  const DeviceProfile device = cuda::device_profile(0);
  for (const Case& t : cases)
    for (const Types& type : types) check(session.context(), device, t, type, wanted());
}

const Activation relu{Activation::Kind::relu, 0, 0}, silu{Activation::Kind::silu, 0, 0};

/// One cut alone, from a single tile to blocks that make several: the first thing to look at when anything fails.
void check_cut(const std::string& only) {
  const cuda::Session session(0);
  const DeviceProfile device = cuda::device_profile(0);
  const std::string reason = !cuda::cute_built()              ? "this build has no gemm_cute"
                             : only.starts_with("core=wgmma") ? test::no_wgmma()
                                                              : "";
  if (!test::can_run("cuda/gemm_cute/cut of " + only, reason)) return;
  int ran = 0;
  // A step of one tile; all steps of a ring and more; tails everywhere; rows of y that TMA cannot store; every word of
  // the epilogue, in place, too; a batch; B as [k,n]; more tiles than multiprocessors, few steps each and many.
  for (const Case& t : {Case{.m = 128, .n = 256, .k = 64}, Case{.m = 64, .n = 64, .k = 1024},
                        Case{.m = 257, .n = 264, .k = 520, .row_of_c = true, .activation = relu},
                        Case{.m = 100, .n = 300, .k = 648, .full_c = true},
                        Case{.m = 129, .n = 69, .k = 520, .row_of_c = true, .residual = true, .activation = silu},
                        Case{.m = 130, .n = 136, .k = 520, .shift = 1},
                        Case{.m = 130, .n = 136, .k = 520, .full_c = true, .alpha = 0.5F, .in_place = true},
                        Case{.m = 70, .n = 136, .k = 520, .batch = 3, .one_b = true},
                        Case{.m = 300, .n = 136, .k = 520, .b_transposed = false, .batch = 3},
                        Case{.m = 140, .n = 136, .k = 24, .batch = 100, .row_of_c = true, .residual = true},
                        Case{.m = 140, .n = 136, .k = 104, .b_transposed = false, .batch = 100}})
    for (const Types& type : types) ran += check(session.context(), device, t, type, only);
  CHECK_MESSAGE(ran > 0, only, " was never run");
}

#define LENSLET_CUT(NAME, CONFIG) \
  TEST_CASE("cuda/gemm_cute/cut/" NAME) { check_cut(CONFIG); }
LENSLET_CUT("mma_64x64", "core=mma tile=64x64 slices=1")
LENSLET_CUT("mma_128x128", "core=mma tile=128x128 slices=1")
LENSLET_CUT("wgmma_128x64", "core=wgmma tile=128x64 cluster=1 slices=1")
LENSLET_CUT("wgmma_128x128", "core=wgmma tile=128x128 cluster=1 slices=1")
LENSLET_CUT("wgmma_128x256", "core=wgmma tile=128x256 cluster=1 slices=1")
LENSLET_CUT("wgmma_256x128", "core=wgmma tile=256x128 cluster=1 slices=1")
LENSLET_CUT("wgmma_64x128", "core=wgmma tile=64x128 cluster=1 slices=1")
LENSLET_CUT("wgmma_64x64", "core=wgmma tile=64x64 cluster=1 slices=1")
LENSLET_CUT("wgmma_64x256", "core=wgmma tile=64x256 cluster=1 slices=1")
LENSLET_CUT("wgmma_64x64_join2", "core=wgmma tile=64x64 cluster=2 slices=2")
LENSLET_CUT("wgmma_64x64_join4", "core=wgmma tile=64x64 cluster=4 slices=4")
LENSLET_CUT("wgmma_64x64_join8", "core=wgmma tile=64x64 cluster=8 slices=8")
LENSLET_CUT("wgmma_64x256_join2", "core=wgmma tile=64x256 cluster=2 slices=2")
LENSLET_CUT("wgmma_64x256_join8", "core=wgmma tile=64x256 cluster=8 slices=8")
LENSLET_CUT("wgmma_128x64_slices", "core=wgmma tile=128x64 cluster=1 slices=3")
LENSLET_CUT("wgmma_128x256_slices", "core=wgmma tile=128x256 cluster=1 slices=2")
LENSLET_CUT("wgmma_128x64_cluster", "core=wgmma tile=128x64 cluster=2 slices=1")
LENSLET_CUT("wgmma_128x128_cluster", "core=wgmma tile=128x128 cluster=2 slices=1")
LENSLET_CUT("wgmma_128x256_cluster", "core=wgmma tile=128x256 cluster=2 slices=1")
LENSLET_CUT("wgmma_256x128_cluster", "core=wgmma tile=256x128 cluster=2 slices=1")
LENSLET_CUT("wgmma_128x64_join2", "core=wgmma tile=128x64 cluster=2 slices=2")
LENSLET_CUT("wgmma_128x64_join4", "core=wgmma tile=128x64 cluster=4 slices=4")
LENSLET_CUT("wgmma_128x64_join8", "core=wgmma tile=128x64 cluster=8 slices=8")
LENSLET_CUT("wgmma_64x128_join2", "core=wgmma tile=64x128 cluster=2 slices=2")
LENSLET_CUT("wgmma_64x128_join8", "core=wgmma tile=64x128 cluster=8 slices=8")
LENSLET_CUT("wgmma_128x128_join2", "core=wgmma tile=128x128 cluster=2 slices=2")
LENSLET_CUT("wgmma_128x128_join4", "core=wgmma tile=128x128 cluster=4 slices=4")
LENSLET_CUT("wgmma_128x128_join8", "core=wgmma tile=128x128 cluster=8 slices=8")
#undef LENSLET_CUT

TEST_CASE("cuda/gemm_cute/sizes") {
  std::vector<Case> cases;
  // One element, one more and one less than tiles of 64, 128 and 256 and steps of 32 and 64; k that has no vectors.
  for (const std::int64_t k : {1, 8, 63, 64, 72, 200})
    for (const std::int64_t m : {1, 5, 9, 16, 64, 129})
      for (const std::int64_t n : {1, 8, 65, 260}) cases.push_back({.m = m, .n = n, .k = k});
  cases.push_back({.m = 257, .n = 520, .k = 1000});
  check_all(cases);
}

TEST_CASE("cuda/gemm_cute/epilogues") {
  std::vector<Case> cases;
  for (const std::int64_t n : {36, 37, 130, 264}) {
    cases.push_back({.m = 70, .n = n, .k = 96, .row_of_c = true, .activation = relu});
    cases.push_back(
        {.m = 70, .n = n, .k = 96, .full_c = true, .residual = true, .alpha = 0.5F, .beta = -2, .activation = silu});
    cases.push_back({.m = 5, .n = n, .k = 136, .row_of_c = true, .activation = {Activation::Kind::clip, 0, 6}});
  }
  check_all(cases);
}

TEST_CASE("cuda/gemm_cute/batches") {
  check_all({{.m = 3, .n = 7, .k = 11, .batch = 7'000},
             {.m = 130, .n = 72, .k = 80, .batch = 5, .residual = true},
             {.m = 50, .n = 136, .k = 64, .batch = 3, .one_b = true, .row_of_c = true},
             {.m = 33, .n = 31, .k = 29, .b_transposed = false, .batch = 4},
             {.m = 200, .n = 136, .k = 328, .b_transposed = false, .batch = 3}});
}

TEST_CASE("cuda/gemm_cute/operands") {
  check_all({{.m = 100, .n = 264, .k = 136, .b_transposed = false},
             {.m = 100, .n = 200, .k = 77, .b_transposed = false},
             {.m = 100, .n = 100, .k = 136, .between = 8},
             {.m = 100, .n = 104, .k = 136, .b_transposed = false, .between = 16},
             {.m = 100, .n = 100, .k = 136, .between = 3}});
}

// A persistent block makes several tiles, over the edges of groups of tile rows; rings go round often.
TEST_CASE("cuda/gemm_cute/many_tiles") {
  check_all({{.m = 1300, .n = 2570, .k = 24}, {.m = 2500, .n = 136, .k = 72}, {.m = 64, .n = 200, .k = 4104}});
}

// What a network does: A of 16 bit, weights and bias known in float32, rounded once when they are prepared, or not at
// all where few rows make a float32 y.
TEST_CASE("cuda/gemm_cute/op_of_16_bit") {
  constexpr std::int64_t n = 40, k = 72;
  const Kernel& kernel = *kernels_of("Gemm", DeviceKind::cuda).front();
  unsigned seed = test::random_seed();
  for (const std::int64_t m : {1, 2, 3, 8, 12, 50})
    for (const DType type : {DType::f16, DType::bf16})
      for (const DType y_type : {type, DType::f32}) {
        const auto op =
            make_normalised_op("Gemm", {{"alpha", 0.75}, {"weight_scale", std::vector<double>(n, 1.25)}}, 3);
        const std::vector<Tensor> inputs{test::random_f32({m, k}, seed++).to_dtype(type),
                                         test::random_f32({k, n}, seed++), test::random_f32({n}, seed++)};
        const Problem problem(op, test::infos_of(inputs, {1, 2}), {{y_type, {m, n}}});
        test::ConvData judged;  // its reference alone
        judged.reference = [&](std::int64_t) {
          std::vector<oracle::Array> arrays;
          for (const Tensor& input : inputs) arrays.push_back(oracle::from_tensor(input));
          return oracle::run("Gemm", op->attributes(), arrays).value().at(0);
        };
        const bool exact_weights = m <= cuda::most_few_rows && y_type == DType::f32;
        int calls = 0;
        test::for_each_call(test::op_runner(), problem, kernel, 1, [&](const test::Call& call) {
          ++calls;
          const Candidate& candidate = call.candidate;
          CHECK(kernel.blob(problem, candidate).value().bytes == n * k * (exact_weights ? 4 : 2));
          CHECK((candidate.tolerance == sum_tolerance(k)) == exact_weights);
          const std::string where =
              fmt::format("{} {} to {} of {} rows", call.str(), to_string(type), to_string(y_type), m);
          const Tensor y = test::run_between_guards(test::op_runner(), call, inputs, where).at(0);
          test::compare(y, judged, candidate.tolerance, where);
        });
        CHECK((calls > 0) == cuda::cute_built());
      }
}

}  // namespace
}  // namespace lenslet
