// Every configuration of gemm_cute compared with sums in double of the same rounded operands, at sizes with tails,
// with NaNs between and around the operands' rows, in y and in the workspace. Also few_rows of 16-bit types.

#include "ops/gemm/cute/gemm_cute.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <functional>
#include <vector>

#include "base/cuda/session.h"
#include "ops/core/config_text.h"
#include "ops/core/sum_tolerance.h"
#include "ops/gemm/gemm_cuda.h"
#include "tests/cuda/device_case.h"
#include "tests/cuda/drawn_product.h"
#include "tests/ops/conv_data.h"
#include "tests/ops/exact_activation.h"
#include "tests/ops/op_runner.h"
#include "tests/random_seed.h"

namespace lenslet {
namespace {

using Multiply = Numerics::Multiply;

using Case = test::ProductCase;

struct Types {
  Multiply multiply;
  DType x, y;
  std::string_view name;
};
constexpr Types types[] = {
    {Multiply::fp16, DType::f16, DType::f16, "fp16"},   {Multiply::fp16, DType::f16, DType::f32, "fp16 to fp32"},
    {Multiply::bf16, DType::bf16, DType::bf16, "bf16"}, {Multiply::bf16, DType::bf16, DType::f32, "bf16 to fp32"},
    {Multiply::tf32, DType::f32, DType::f32, "tf32"},   {Multiply::fp32, DType::f32, DType::f32, "fp32"}};

/// LENSLET_TEST_TILING="core=wgmma tile=128x256 cluster=2" selects plans, to find the one that hangs.
std::string_view wanted() {
  const char* const only = std::getenv("LENSLET_TEST_TILING");
  return only == nullptr ? "" : only;
}

std::string text(const cuda::CutePlan& plan) {
  ConfigWriter config;
  plan.write(config);
  return config.str();
}

cuda::CuteProblem problem_of(const Case& t, const Types& type) {
  const auto vector = static_cast<std::int64_t>(16 / dtype_bytes(type.x));
  return {.multiply = type.multiply,
          .y_type = type.y,
          .m = t.m,
          .n = t.n,
          .k = t.k,
          .batch = t.batch,
          .b_transposed = t.trans_b,
          .aligned = t.k % vector == 0 && (t.trans_b ? t.k : t.n) % vector == 0 && t.between % vector == 0};
}

/// Without workspace.
cuda::CuteCall call_of(test::DrawnProduct& product, const Case& t, const Types& type) {
  return {.problem = problem_of(t, type),
          .a = {product.a().data(), product.a().ld, t.m * product.a().ld},
          .b = {product.b().data(), product.b().ld, product.b_step()},
          .alpha = t.alpha,
          .beta = t.beta,
          .c = product.c(),
          .c_row = t.full_c ? t.n : 0,
          .c_col = 1,
          .residual = product.residual(),
          .activation = t.activation,
          .y = product.y()};
}

/// Runs the plans whose text contains `only`, and few_rows if it is empty; returns the number of plans.
int check(const cuda::Context& context, const DeviceProfile& device, const Case& t, const Types& type,
          std::string_view only) {
  const cuda::CuteProblem problem = problem_of(t, type);
  std::vector<cuda::CutePlan> plans;
  for (const cuda::CutePlan& plan : cuda::cute_plans(problem, device))
    if (text(plan).find(only) != std::string::npos) plans.push_back(plan);
  if (plans.empty()) return 0;

  test::DrawnProduct product(context, t, type.x, type.y, test::random_seed(), test::exact_activation(t.activation));
  cuda::CuteCall call = call_of(product, t, type);
  // The operands are already rounded, except in tf32, so their rounding needs no allowance. The last rounding errs by
  // half a unit in the last place; a value rounded to 16 bits may be off by 2^-17 before it
  // (ops/core/approximate_math.cuh).
  const double acc = type.multiply == Multiply::tf32 ? tf32_sum_tolerance(t.k) : sum_tolerance(t.k);
  const double last = type.y == DType::f32 ? 0 : unit_roundoff(type.y) + 0x1p-17;
  const auto check = [&](const std::string& way, const std::function<void()>& queue) {
    product.check(fmt::format("{} {}", type.name, way), acc, last, queue);
  };
  // In the second run B may be read early, which must change nothing.
  const auto check_way = [&](const std::string& way, const auto& queue) {
    call.b_known = false;
    check(way, [&] {
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
  if (type.x != DType::f32 && t.batch == 1 && t.trans_b && call.residual == nullptr && only.empty()) {
    if (t.m <= cuda::most_few_rows)
      for (const int split_k : {1, 2, 4, 8})
        check(fmt::format("few_rows in {}", split_k), [&] { cuda::gemm_few_rows_half(context, call, split_k); });
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

/// A single configuration, from one tile to blocks with several: the first test to look at after a failure.
void check_tiling(const std::string& only) {
  const cuda::Session session(0);
  const DeviceProfile device = cuda::device_profile(0);
  const std::string reason = !cuda::cute_built()              ? "this build has no gemm_cute"
                             : only.starts_with("core=wgmma") ? test::no_wgmma()
                                                              : "";
  if (!test::can_run("cuda/gemm_cute/tiling of " + only, reason)) return;
  int ran = 0;
  // One k-block of one tile; all stages of a ring and more; tails everywhere; rows of y that TMA cannot store; every
  // word of the epilogue, also in place; a batch; B as [k,n]; more tiles than multiprocessors, few and many k-blocks.
  for (const Case& t : {Case{.m = 128, .n = 256, .k = 64}, Case{.m = 64, .n = 64, .k = 1024},
                        Case{.m = 257, .n = 264, .k = 520, .row_of_c = true, .activation = relu},
                        Case{.m = 100, .n = 300, .k = 648, .full_c = true},
                        Case{.m = 129, .n = 69, .k = 520, .row_of_c = true, .residual = true, .activation = silu},
                        Case{.m = 130, .n = 136, .k = 520, .y_shift = 1},
                        Case{.m = 130, .n = 136, .k = 520, .full_c = true, .alpha = 0.5F, .in_place = true},
                        Case{.m = 70, .n = 136, .k = 520, .batch = 3, .one_b = true},
                        Case{.m = 300, .n = 136, .k = 520, .trans_b = false, .batch = 3},
                        Case{.m = 140, .n = 136, .k = 24, .batch = 100, .row_of_c = true, .residual = true},
                        Case{.m = 140, .n = 136, .k = 104, .trans_b = false, .batch = 100}})
    for (const Types& type : types) ran += check(session.context(), device, t, type, only);
  CHECK_MESSAGE(ran > 0, only, " was never run");
}

#define LENSLET_TILING(NAME, CONFIG) \
  TEST_CASE("cuda/gemm_cute/tiling/" NAME) { check_tiling(CONFIG); }
LENSLET_TILING("mma_64x64", "core=mma tile=64x64 split_k=1")
LENSLET_TILING("mma_128x128", "core=mma tile=128x128 split_k=1")
LENSLET_TILING("wgmma_128x64", "core=wgmma tile=128x64 cluster=1 split_k=1")
LENSLET_TILING("wgmma_128x128", "core=wgmma tile=128x128 cluster=1 split_k=1")
LENSLET_TILING("wgmma_128x256", "core=wgmma tile=128x256 cluster=1 split_k=1")
LENSLET_TILING("wgmma_256x128", "core=wgmma tile=256x128 cluster=1 split_k=1")
LENSLET_TILING("wgmma_64x128", "core=wgmma tile=64x128 cluster=1 split_k=1")
LENSLET_TILING("wgmma_64x64", "core=wgmma tile=64x64 cluster=1 split_k=1")
LENSLET_TILING("wgmma_64x256", "core=wgmma tile=64x256 cluster=1 split_k=1")
LENSLET_TILING("wgmma_64x64_join2", "core=wgmma tile=64x64 cluster=2 split_k=2")
LENSLET_TILING("wgmma_64x64_join4", "core=wgmma tile=64x64 cluster=4 split_k=4")
LENSLET_TILING("wgmma_64x64_join8", "core=wgmma tile=64x64 cluster=8 split_k=8")
LENSLET_TILING("wgmma_64x256_join2", "core=wgmma tile=64x256 cluster=2 split_k=2")
LENSLET_TILING("wgmma_64x256_join8", "core=wgmma tile=64x256 cluster=8 split_k=8")
LENSLET_TILING("wgmma_128x64_split_k", "core=wgmma tile=128x64 cluster=1 split_k=3")
LENSLET_TILING("wgmma_128x256_split_k", "core=wgmma tile=128x256 cluster=1 split_k=2")
LENSLET_TILING("wgmma_128x64_cluster", "core=wgmma tile=128x64 cluster=2 split_k=1")
LENSLET_TILING("wgmma_128x128_cluster", "core=wgmma tile=128x128 cluster=2 split_k=1")
LENSLET_TILING("wgmma_128x256_cluster", "core=wgmma tile=128x256 cluster=2 split_k=1")
LENSLET_TILING("wgmma_256x128_cluster", "core=wgmma tile=256x128 cluster=2 split_k=1")
LENSLET_TILING("wgmma_128x64_join2", "core=wgmma tile=128x64 cluster=2 split_k=2")
LENSLET_TILING("wgmma_128x64_join4", "core=wgmma tile=128x64 cluster=4 split_k=4")
LENSLET_TILING("wgmma_128x64_join8", "core=wgmma tile=128x64 cluster=8 split_k=8")
LENSLET_TILING("wgmma_64x128_join2", "core=wgmma tile=64x128 cluster=2 split_k=2")
LENSLET_TILING("wgmma_64x128_join8", "core=wgmma tile=64x128 cluster=8 split_k=8")
LENSLET_TILING("wgmma_128x128_join2", "core=wgmma tile=128x128 cluster=2 split_k=2")
LENSLET_TILING("wgmma_128x128_join4", "core=wgmma tile=128x128 cluster=4 split_k=4")
LENSLET_TILING("wgmma_128x128_join8", "core=wgmma tile=128x128 cluster=8 split_k=8")
#undef LENSLET_TILING

TEST_CASE("cuda/gemm_cute/sizes") {
  std::vector<Case> cases;
  // Sizes next to tiles of 64, 128 and 256 and k-blocks of 32 and 64; k without vectors.
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
             {.m = 33, .n = 31, .k = 29, .trans_b = false, .batch = 4},
             {.m = 200, .n = 136, .k = 328, .trans_b = false, .batch = 3}});
}

TEST_CASE("cuda/gemm_cute/operands") {
  check_all({{.m = 100, .n = 264, .k = 136, .trans_b = false},
             {.m = 100, .n = 200, .k = 77, .trans_b = false},
             {.m = 100, .n = 100, .k = 136, .between = 8},
             {.m = 100, .n = 104, .k = 136, .trans_b = false, .between = 16},
             {.m = 100, .n = 100, .k = 136, .between = 3}});
}

// Persistent blocks compute several tiles across groups of tile rows; rings wrap often.
TEST_CASE("cuda/gemm_cute/many_tiles") {
  check_all({{.m = 1300, .n = 2570, .k = 24}, {.m = 2500, .n = 136, .k = 72}, {.m = 64, .n = 200, .k = 4104}});
}

// As in a network: A in 16 bits, weights and bias constant in float32, rounded once when packed, or not at all where
// few rows produce a float32 y.
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
        const test::ConvData judged = test::judged_by_oracle("Gemm", op->attributes(), inputs);
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
        CHECK((calls > 0) == (cuda::cute_built() || m <= cuda::most_few_rows_mma));
      }
}

}  // namespace
}  // namespace lenslet
