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
#include "tests/larger_error.h"
#include "tests/ops/exact_activation.h"
#include "tests/random_seed.h"

namespace lenslet {
namespace {

using Multiply = Numerics::Multiply;

/// What a matrix holds as bytes on the device, and the values that these are.
struct Drawn {
  std::vector<std::byte> bytes;
  std::vector<double> values;
};

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

/// `rows` of `columns` values, `ld` apart, NaN between them.
Drawn draw(std::mt19937& random, DType type, std::int64_t rows, std::int64_t columns, std::int64_t ld) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  const auto size = static_cast<std::int64_t>(dtype_bytes(type));
  Drawn drawn{std::vector<std::byte>(static_cast<std::size_t>((rows * ld + 2 * guard) * size), std::byte{0xff}), {}};
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      std::byte* const at = drawn.bytes.data() + (guard + i * ld + j) * size;
      put(type, uniform(random), at);
      drawn.values.push_back(get(type, at));
    }
  return drawn;
}

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

/// LENSLET_TEST_CUTE="core=wgmma tile=128x256 cluster=2": only these, to find out which one hangs.
std::string_view wanted() {
  const char* const only = std::getenv("LENSLET_TEST_CUTE");
  return only == nullptr ? "" : only;
}

std::string text(const cuda::CutePlan& plan) {
  ConfigWriter config;
  plan.write(config);
  return config.str();
}

/// Runs what says `only` somewhere; gives how many did.
int check(const cuda::Context& context, const DeviceProfile& device, const Case& t, const Types& type,
          std::string_view only) {
  const std::int64_t a_ld = t.k + t.between, b_rows = t.b_transposed ? t.n : t.k,
                     b_columns = t.b_transposed ? t.k : t.n, b_ld = b_columns + t.between;
  const std::int64_t b_count = t.one_b ? 1 : t.batch, y_elems = t.batch * t.m * t.n;
  const std::size_t x_bytes = dtype_bytes(type.x), y_bytes = dtype_bytes(type.y);
  const auto vector = static_cast<std::int64_t>(16 / x_bytes);
  const cuda::CuteProblem problem{.multiply = type.multiply,
                                  .y_type = type.y,
                                  .m = t.m,
                                  .n = t.n,
                                  .k = t.k,
                                  .batch = t.batch,
                                  .b_transposed = t.b_transposed,
                                  .aligned = t.k % vector == 0 && b_columns % vector == 0 && t.between % vector == 0};
  std::vector<cuda::CutePlan> plans;
  for (const cuda::CutePlan& plan : cuda::cute_plans(problem, device))
    if (text(plan).find(only) != std::string::npos) plans.push_back(plan);
  if (plans.empty()) return 0;

  std::mt19937 random(test::random_seed());
  const Drawn a = draw(random, type.x, t.batch * t.m, t.k, a_ld),
              b = draw(random, type.x, b_count * b_rows, b_columns, b_ld);
  const Drawn c = draw(random, DType::f32, t.m, t.n, t.n), residual = draw(random, type.y, t.batch * t.m, t.n, t.n);
  const auto device_a = cuda::upload(a.bytes), device_b = cuda::upload(b.bytes), device_c = cuda::upload(c.bytes),
             device_residual = cuda::upload(residual.bytes);
  const std::int64_t before = guard + t.shift;
  cuda::DeviceBuffer<std::byte> device_y(static_cast<std::size_t>(before + y_elems + guard) * y_bytes);
  std::byte* const y_begin = device_y.data() + before * static_cast<std::int64_t>(y_bytes);

  cuda::CuteCall call{
      .problem = problem,
      .a = {device_a.data() + guard * static_cast<std::int64_t>(x_bytes), a_ld, t.m * a_ld},
      .b = {device_b.data() + guard * static_cast<std::int64_t>(x_bytes), b_ld, t.one_b ? 0 : b_rows * b_ld},
      .alpha = t.alpha,
      .beta = t.beta,
      .c = t.row_of_c || t.full_c ? reinterpret_cast<const float*>(device_c.data()) + guard : nullptr,
      .c_row = t.full_c ? t.n : 0,
      .c_col = 1,
      .residual = t.in_place   ? y_begin
                  : t.residual ? device_residual.data() + guard * static_cast<std::int64_t>(y_bytes)
                               : nullptr,
      .activation = t.activation,
      .y = y_begin};

  const auto exact_of = test::exact_activation(t.activation);
  std::vector<double> exact(static_cast<std::size_t>(y_elems));
  for (std::int64_t at = 0; at < y_elems; ++at) {
    const std::int64_t product = at / (t.m * t.n), i = at / t.n % t.m, j = at % t.n;
    const double* const row = a.values.data() + (product * t.m + i) * t.k;
    const double* const column = b.values.data() + (t.one_b ? 0 : product * t.k * t.n) + (t.b_transposed ? j * t.k : j);
    const std::int64_t step = t.b_transposed ? 1 : t.n;
    double sum = 0;
    for (std::int64_t l = 0; l < t.k; ++l) sum += row[l] * column[l * step];
    sum *= double{t.alpha};
    if (call.c != nullptr) sum += double{t.beta} * c.values[static_cast<std::size_t>(i * call.c_row + j)];
    if (call.residual != nullptr) sum += residual.values[static_cast<std::size_t>(at)];
    exact[static_cast<std::size_t>(at)] = exact_of(sum);
  }
  // Factors in (-1, 1) have the variance 1/3. The operands are what they are: rounding them is not to be allowed for,
  // but in tf32. The last rounding errs by half a unit in the last place.
  const double rms = std::sqrt(double{t.alpha} * double{t.alpha} * static_cast<double>(t.k) / 9 +
                               (call.c != nullptr ? double{t.beta} * double{t.beta} / 3 : 0) +
                               (call.residual != nullptr ? 1.0 / 3 : 0));
  const double sums = (type.multiply == Multiply::tf32 ? tf32_sum_tolerance(t.k) : sum_tolerance(t.k)) * rms;
  double last = type.y == DType::f16 ? std::ldexp(1, -11) : type.y == DType::bf16 ? std::ldexp(1, -8) : 0;
  // What is rounded to 16 bits may be within 2^-17 before (ops/core/approximate_math.cuh).
  if (type.y != DType::f32) last += std::ldexp(1, -17);

  const auto once = [&](const std::function<void()>& queue) {
    CUDA_CHECK(cudaMemset(device_y.data(), 0xff, device_y.bytes()));
    if (t.in_place)
      CUDA_CHECK(cudaMemcpy(y_begin, device_residual.data() + guard * static_cast<std::int64_t>(y_bytes),
                            static_cast<std::size_t>(y_elems) * y_bytes, cudaMemcpyDeviceToDevice));
    CUDA_CHECK(cudaDeviceSynchronize());  // the session's stream does not wait for the one that fills
    queue();
    CUDA_CHECK(cudaStreamSynchronize(context.stream));
    std::vector<std::byte> y(device_y.size());
    CUDA_CHECK(cudaMemcpy(y.data(), device_y.data(), device_y.bytes(), cudaMemcpyDeviceToHost));
    return y;
  };
  const auto try_way = [&](const std::string& way, const std::function<void()>& queue) {
    const std::string name = fmt::format("{} {} {}x{}x{} B {} batch {}{}{}{}", type.name, way, t.m, t.n, t.k,
                                         t.b_transposed ? "[n,k]" : "[k,n]", t.batch, t.residual ? " residual" : "",
                                         t.in_place ? " in place" : "", t.shift > 0 ? " shifted" : "");
    const std::vector<std::byte> y = once(queue);
    double worst = 0;  // of what is allowed
    std::size_t where = 0;
    for (std::size_t at = 0; at < exact.size(); ++at) {
      const double error = std::abs(
          get(type.y, y.data() + (before + static_cast<std::int64_t>(at)) * static_cast<std::int64_t>(y_bytes)) -
          exact[at]);
      const double part = error / (sums + last * std::abs(exact[at]));
      if (part > worst || std::isnan(part)) {
        worst = std::isnan(part) ? HUGE_VAL : part;
        where = at;
      }
    }
    CHECK_MESSAGE(worst <= 1, fmt::format("{}: y[{}] is {}, exact {}, off by {} of what is allowed", name, where,
                                          get(type.y, y.data() + (before + static_cast<std::int64_t>(where)) *
                                                                     static_cast<std::int64_t>(y_bytes)),
                                          exact[where], worst));
    const auto untouched = [](std::byte byte) { return byte == std::byte{0xff}; };
    const auto bytes_of = [&](std::int64_t elems) { return elems * static_cast<std::int64_t>(y_bytes); };
    CHECK_MESSAGE(std::all_of(y.begin(), y.begin() + bytes_of(before), untouched), name, ": wrote before y");
    CHECK_MESSAGE(std::all_of(y.end() - bytes_of(guard), y.end(), untouched), name, ": wrote behind y");
    CHECK_MESSAGE(once(queue) == y, name, ": other bits in the second run");
  };

  for (const cuda::CutePlan& plan : plans) {
    cuda::DeviceBuffer<float> workspace(cuda::cute_workspace_bytes(problem, plan) / sizeof(float));
    if (workspace.size() > 0) CUDA_CHECK(cudaMemset(workspace.data(), 0xff, workspace.bytes()));
    call.workspace = workspace.data();
    // In the second run B may be read early, which is to change nothing.
    call.b_known = false;
    try_way(text(plan), [&] {
      cuda::gemm_cute(context, call, plan);
      call.b_known = true;
    });
  }
  if (type.x != DType::f32 && t.m <= cuda::most_few_rows && t.batch == 1 && t.b_transposed &&
      call.residual == nullptr && only.empty())
    for (const int slices : {1, 2, 4, 8})
      try_way(fmt::format("few_rows in {}", slices), [&] { cuda::gemm_few_rows_half(context, call, slices); });
  if (type.x != DType::f32 && t.m <= cuda::most_few_rows_mma && t.batch == 1 && t.b_transposed && problem.aligned &&
      call.residual == nullptr && only.empty())
    for (const int eights : {1, 2}) {
      call.b_known = false;
      try_way(fmt::format("few_rows_mma of {}", eights), [&] {
        cuda::gemm_few_rows_mma(context, call, eights);
        call.b_known = true;
      });
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
  if (device.capability != 90 && only.starts_with("core=wgmma")) {
    MESSAGE("skipped: wgmma is of compute capability 9.0 alone");
    return;
  }
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
  if (cuda::cute_built()) CHECK_MESSAGE(ran > 0, only, " was never run");
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
  const cuda::Session session(0);
  const DeviceProfile device = cuda::device_profile(0);
  constexpr std::int64_t n = 40, k = 72;
  for (const std::int64_t m : {1, 2, 3, 8, 12, 50})
    for (const DType type : {DType::f16, DType::bf16})
      for (const DType y_type : {type, DType::f32}) {
        const std::vector<double> scale(n, 1.25);
        const auto op = make_normalised_op("Gemm", {{"alpha", 0.75}, {"weight_scale", scale}}, 3);
        std::mt19937 random(test::random_seed());
        const Drawn a = draw(random, type, m, k, k), b = draw(random, DType::f32, k, n, n),
                    c = draw(random, DType::f32, 1, n, n);
        Tensor weights(DType::f32, {k, n}), bias(DType::f32, {n});
        std::copy(b.values.begin(), b.values.end(), weights.values<float>().begin());
        std::copy(c.values.begin(), c.values.end(), bias.values<float>().begin());
        const InputInfo infos[] = {
            {true, {type, {m, k}}, nullptr}, {true, {DType::f32, {k, n}}, &weights}, {true, {DType::f32, {n}}, &bias}};
        const Problem problem(op, infos, {{y_type, {m, n}}});
        const Kernel& kernel = *kernels_of("Gemm", DeviceKind::cuda).front();
        const Offer offer = kernel.offer(problem, {device});
        if (offer.candidates.empty()) {
          CHECK(!cuda::cute_built());
          continue;
        }
        const Candidate& candidate = offer.candidates.front();
        std::vector<std::byte> host(kernel.blob(problem, candidate).value().bytes);
        const bool exact_weights = m <= cuda::most_few_rows && y_type == DType::f32;
        CHECK(host.size() == n * k * (exact_weights ? 4 : 2));
        CHECK((candidate.tolerance == sum_tolerance(k)) == exact_weights);
        kernel.prepare(problem, candidate, host);
        const auto blob = cuda::upload(host), x = cuda::upload(a.bytes);
        const auto added = cuda::upload(bias.values<float>());
        const auto bound = kernel.bind({problem, candidate, device});
        cuda::DeviceBuffer<std::byte> y(static_cast<std::size_t>(m * n) * dtype_bytes(y_type)),
            workspace(bound->workspace_bytes());
        const Tensor inputs[] = {Tensor::view(type, {m, k}, const_cast<std::byte*>(x.data()) + guard * 2), Tensor(),
                                 Tensor::view(DType::f32, {n}, const_cast<float*>(added.data()))};
        Tensor outputs[] = {Tensor::view(y_type, {m, n}, y.data())};
        bound->run({.inputs = inputs,
                    .outputs = outputs,
                    .workspace = {workspace.data(), workspace.bytes()},
                    .blob = blob.data(),
                    .cuda = &session.context()});
        session.stream().synchronize();
        std::vector<std::byte> got(y.bytes());
        CUDA_CHECK(cudaMemcpy(got.data(), y.data(), y.bytes(), cudaMemcpyDeviceToHost));
        const double last = y_type == DType::f16 ? std::ldexp(1, -11) : y_type == DType::bf16 ? std::ldexp(1, -8) : 0;
        const double rms = 0.75 * 1.25 * std::sqrt(static_cast<double>(k) / 9);
        double worst = 0;
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t j = 0; j < n; ++j) {
            double exact = 0;
            for (std::int64_t l = 0; l < k; ++l)
              exact += a.values[static_cast<std::size_t>(i * k + l)] * b.values[static_cast<std::size_t>(l * n + j)];
            exact = 0.75 * 1.25 * exact + c.values[static_cast<std::size_t>(j)];
            const double error =
                std::abs(get(y_type, got.data() + static_cast<std::size_t>(i * n + j) * dtype_bytes(y_type)) - exact);
            worst = test::larger_error(worst, error / (candidate.tolerance * rms + last * std::abs(exact)));
          }
        CHECK_MESSAGE(worst <= 1, fmt::format("{} {} to {}: {} of what is allowed", candidate.config, to_string(type),
                                              to_string(y_type), worst));
      }
}

}  // namespace
}  // namespace lenslet
