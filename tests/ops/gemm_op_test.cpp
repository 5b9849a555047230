// Gemm and MatMul: results compared with the oracle, and the candidates of their kernels.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "ops/core/choose.h"
#include "ops/core/kernel.h"
#include "ops/core/sum_tolerance.h"
#include "ops/gemm/packed_weights.h"
#include "ops/gemm/problem.h"
#include "oracle/oracle.h"
#include "tests/expect_error.h"
#include "tests/ops/op_harness.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

/// A product with inputs of these shapes; B and C are constant if `constants` has their values, one for each input.
std::unique_ptr<const Problem> pose(const std::string& op, const AttributeList& attributes, std::vector<Shape> shapes,
                                    const std::vector<Tensor>& constants = {}) {
  std::vector<InputInfo> infos;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    infos.push_back({true, {DType::f32, shapes[i]}, i > 0 && i < constants.size() ? &constants[i] : nullptr});
  return std::make_unique<const Problem>(make_normalised_op(op, attributes, shapes.size()), infos);
}

/// The fallback: "packed" on the CPU.
const Kernel& kernel(const Problem& problem, DeviceKind device) {
  return *kernels_of(problem.op().type(), device).back();
}

/// An H200 with cuBLAS.
DeviceProfile gpu_with_cublas() {
  DeviceProfile gpu = reference_gpu();
  gpu.cublas_reason.clear();
  return gpu;
}

std::vector<std::byte> weights(const Problem& problem, DeviceKind device, std::string* key = nullptr) {
  const auto spec = kernel(problem, device).blob(problem, {});
  if (!spec) return {};
  std::vector<std::byte> bytes(spec->bytes);
  kernel(problem, device).prepare(problem, {}, bytes);
  if (key != nullptr) *key = spec->key;
  return bytes;
}

}  // namespace

TEST_CASE("gemm/products_that_lie_evenly_apart_are_one_run") {
  const auto runs = [](const Shape& a, const Shape& b) {
    std::string text;
    for (const ProductRun& run : product_runs(matmul_problem(a, b)))
      text += fmt::format("{} for {} from {},{} by {},{}; ", run.count, run.y, run.a, run.b, run.a_step, run.b_step);
    return text;
  };
  CHECK(runs({5, 2, 3}, {5, 3, 4}) == "5 for 0 from 0,0 by 1,1; ");
  CHECK(runs({5, 2, 3}, {3, 4}) == "1 for 0 from 0,0 by 0,0; ");  // of ten rows
  CHECK(runs({2, 1, 2, 3}, {3, 3, 4}) == "3 for 0 from 0,0 by 0,1; 3 for 3 from 1,0 by 0,1; ");
  CHECK(runs({2, 3, 2, 3}, {2, 1, 3, 4}) == "3 for 0 from 0,0 by 1,0; 3 for 3 from 3,1 by 1,0; ");
  CHECK(runs({2, 3}, {3, 4}) == "1 for 0 from 0,0 by 0,0; ");
  CHECK(runs({0, 2, 3}, {0, 3, 4}).empty());
}

TEST_CASE("gemm/transposes_and_c") {
  unsigned seed = 1;
  for (const std::int64_t trans_a : {0, 1})
    for (const std::int64_t trans_b : {0, 1})
      for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{3, 5, 7}, {1, 17, 64}, {13, 1, 33}, {33, 70, 129}}) {
        const Tensor a = random_f32(trans_a ? Shape{k, m} : Shape{m, k}, seed++);
        const Tensor b = random_f32(trans_b ? Shape{n, k} : Shape{k, n}, seed++);
        for (const Shape& c : {Shape{}, Shape{1}, Shape{n}, Shape{1, n}, Shape{m, 1}, Shape{m, n}})
          check_op({.op = "Gemm",
                    .attributes = {{"transA", trans_a}, {"transB", trans_b}, {"alpha", 0.5}, {"beta", 2.0}},
                    .inputs = {a, b, random_f32(c, seed++)},
                    .maybe_constant = {1, 2},
                    .tolerance = 5e-6});
        check_op({.op = "Gemm",
                  .opset = 11,
                  .attributes = {{"transA", trans_a}, {"transB", trans_b}},
                  .inputs = {a, b},
                  .maybe_constant = {1},
                  .tolerance = 5e-6});
      }
}

TEST_CASE("gemm/fused_activation_and_weight_scale") {
  const Tensor a = random_f32({4, 31}, 1), b = random_f32({19, 31}, 2), c = random_f32({19}, 3);
  const Tensor scale = random_f32({19}, 4);
  Epilogue epilogue{.activation = {Activation::Kind::leaky_relu, 0.1f, 0}};
  epilogue.scale.assign(scale.values<float>().begin(), scale.values<float>().end());
  const auto plain = make_normalised_op("Gemm", {{"transB", std::int64_t{1}}, {"alpha", 0.75}}, 3);
  const auto op = plain->with_epilogue(epilogue);
  CHECK(plain->epilogue()->open());
  CHECK_FALSE(op->epilogue()->open());
  const std::vector<Tensor> inputs{a, b, c};
  std::vector<oracle::Array> arrays;
  for (const Tensor& input : inputs) arrays.push_back(oracle::from_tensor(input));
  const auto exact = (*oracle::run("Gemm", op->attributes(), arrays))[0];
  std::string ran;
  for (const bool constant : {true, false}) {
    const auto problem =
        pose("Gemm", op->attributes(), {a.shape(), b.shape(), c.shape()}, constant ? inputs : std::vector<Tensor>());
    const DeviceProfile cpu = cpu_profile(1);
    for (const Kernel* const kernel : kernels_of("Gemm", DeviceKind::cpu)) {
      const Offer offer = kernel->offer(*problem, {cpu});
      if (!offer.refusal.empty()) continue;
      CAPTURE(kernel->name());
      ran += fmt::format("{} ", kernel->name());
      const Candidate& candidate = offer.candidates.at(0);
      CHECK((candidate.reads & input_bit(1)) == (constant ? no_inputs : input_bit(1)));
      const Tensor blob = prepared_blob(*kernel, *problem, candidate);
      CHECK(blob.empty() != constant);
      Tensor workspace(DType::u8, Shape{static_cast<std::int64_t>(candidate.workspace_bytes) + 1});
      std::vector<Tensor> outputs{Tensor(DType::f32, problem->output_shape())};
      std::vector<Tensor> read{a, constant ? Tensor() : b, c};
      ThreadPool pool(1);
      const auto bound = kernel->bind({*problem, candidate, cpu});
      bound->run({.inputs = read,
                  .outputs = outputs,
                  .workspace = {static_cast<std::byte*>(workspace.data()), candidate.workspace_bytes},
                  .blob = static_cast<const std::byte*>(blob.data()),
                  .pool = &pool});
      for (std::size_t i = 0; i < exact.values.size(); ++i)
        CHECK(static_cast<double>(outputs[0].values<float>()[i]) == doctest::Approx(exact.values[i]).epsilon(1e-4));
    }
  }
  CHECK(ran == "packed few_rows packed ");
}

TEST_CASE("gemm/few_rows") {
  unsigned seed = 1;
  for (const std::int64_t m : {1, 2, 3, 4})
    for (const auto& [n, k] : {std::array<std::int64_t, 2>{37, 5}, {37, 2 * 256 * 16 + 21}, {37, 64}}) {
      const Tensor a = random_f32({m, k}, seed++), b = random_f32({n, k}, seed++);
      for (const Shape& c : {Shape{n}, Shape{m, 1}, Shape{m, n}})
        check_op({.op = "Gemm",
                  .attributes = {{"transB", std::int64_t{1}}, {"alpha", 0.5}, {"beta", 2.0}},
                  .inputs = {a, b, random_f32(c, seed++)},
                  .tolerance = sum_tolerance(k)});
    }
}

// A computed B [k,n] is read in place, a single column as a row; for small A, panels of it are packed and multiplied
// group by group.
TEST_CASE("gemm/computed_b") {
  unsigned seed = 50;
  for (const auto& [m, n, k] : std::vector<std::array<std::int64_t, 3>>{{1, 333, 600},
                                                                        {2, 70, 257},
                                                                        {3, 129, 40},
                                                                        {4, 67, 513},
                                                                        {4, 3, 1},
                                                                        {1, 1500, 4},
                                                                        {5, 70, 257},
                                                                        {6, 1100, 4},
                                                                        {7, 33, 3},
                                                                        {8, 2100, 18},
                                                                        {60, 1, 300},
                                                                        {20, 700, 90},
                                                                        {33, 515, 37}})
    for (const double alpha : {1.0, 0.5}) {
      const Tensor a = random_f32({m, k}, seed++), b = random_f32({k, n}, seed++);
      for (const Shape& c : {Shape{n}, Shape{m, 1}, Shape{m, n}})
        check_op({.op = "Gemm",
                  .attributes = {{"alpha", alpha}, {"beta", 1 / alpha}},
                  .inputs = {a, b, random_f32(c, seed++)},
                  .maybe_constant = {1},
                  .tolerance = sum_tolerance(k)});
      check_op({.op = "MatMul", .inputs = {a, b}, .maybe_constant = {1}, .tolerance = sum_tolerance(k)});
    }
  check_op({.op = "MatMul",
            .inputs = {random_f32({60, 300}, 1), random_f32({300}, 2)},
            .maybe_constant = {1},
            .tolerance = sum_tolerance(300)});
}

// A B of one panel already has the packed layout, for any vector width.
TEST_CASE("gemm/computed_b_of_one_panel") {
  unsigned seed = 90;
  for (const std::int64_t n : {4, 8, 16, 32, 64})
    for (const std::int64_t batch : {1, 5}) {
      const Tensor a = random_f32({batch, 11, 37}, seed++), b = random_f32({batch, 37, n}, seed++);
      check_op({.op = "MatMul", .inputs = {a, b}, .maybe_constant = {1}, .tolerance = sum_tolerance(37)});
    }
}

TEST_CASE("gemm/few_rows_where_packing_gains_nothing") {
  const DeviceProfile cpu = cpu_profile(1);
  const AttributeList b_in_rows{{"transB", std::int64_t{1}}};
  const auto chosen = [&](const Problem& problem) { return choose_kernel(problem, {cpu}, "a product").kernel->name(); };
  // No values are read: one tensor is used for all.
  const Tensor large(DType::f32, {1024, 4096}), small(DType::f32, {1023, 4096});
  CHECK(chosen(*pose("Gemm", b_in_rows, {{4, 4096}, {1024, 4096}}, {Tensor(), large})) == "few_rows");
  CHECK(chosen(*pose("Gemm", b_in_rows, {{5, 4096}, {1024, 4096}}, {Tensor(), large})) == "packed");
  CHECK(chosen(*pose("Gemm", b_in_rows, {{1, 4096}, {1023, 4096}}, {Tensor(), small})) == "packed");
  CHECK(chosen(*pose("Gemm", b_in_rows, {{1, 4096}, {1023, 4096}})) == "few_rows");
  CHECK(chosen(*pose("Gemm", {}, {{1, 1024}, {1024, 4096}}, {Tensor(), large})) == "packed");
  CHECK(chosen(*pose("MatMul", {}, {{2, 1, 64}, {2, 64, 9}})) == "packed");
  CHECK(chosen(*pose("MatMul", {}, {{8, 8}, {8, 4096}})) == "few_rows");
  CHECK(chosen(*pose("MatMul", {}, {{9, 8}, {8, 4096}})) == "packed");
  const auto problem = pose("Gemm", b_in_rows, {{1, 4096}, {1024, 4096}}, {Tensor(), large});
  const Kernel& few_rows = *find_kernel("Gemm", DeviceKind::cpu, "few_rows");
  const Candidate candidate = few_rows.offer(*problem, {cpu}).candidates.at(0);
  CHECK((candidate.reads & input_bit(1)) != 0);
  CHECK_FALSE(few_rows.blob(*problem, candidate).has_value());
}

TEST_CASE("gemm/attributes_are_taken_back") {
  const auto op =
      make_op({.op = "Gemm", .attributes = {{"alpha", 0.1}, {"transA", std::int64_t{1}}}, .inputs = {{}, {}}});
  Epilogue epilogue = *op->epilogue();
  epilogue.bias_factor = 0.5;
  epilogue.scale = {2, 0.1f};
  for (const Activation& activation : {Activation{}, {Activation::Kind::relu, 0, 0}, {Activation::Kind::clip, -1, 6}}) {
    epilogue.activation = activation;
    const auto changed = op->with_epilogue(epilogue);
    const auto again = make_normalised_op("Gemm", changed->attributes(), 3);
    CHECK(to_string(again->attributes()) == to_string(changed->attributes()));
    CHECK(again->epilogue()->activation == activation);
    CHECK(again->epilogue()->scale == epilogue.scale);
    CHECK(again->epilogue()->bias_factor == 0.5);
  }
}

TEST_CASE("gemm/both_operators_keep_weights_in_one_form") {
  const std::vector<Tensor> b{Tensor(), random_f32({31, 19}, 1)};
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda}) {
    std::string keys[3];
    const auto gemm = pose("Gemm", {}, {{9, 31}, {31, 19}}, b), matmul = pose("MatMul", {}, {{2, 4, 31}, {31, 19}}, b);
    const std::vector<std::byte> bytes = weights(*gemm, device, &keys[0]);
    CHECK(bytes.size() >= std::size_t{31 * 19} * sizeof(float));
    CHECK(weights(*matmul, device, &keys[1]) == bytes);
    CHECK(keys[0] == keys[1]);
    weights(*pose("Gemm", {{"alpha", 0.5}}, {{9, 31}, {31, 19}}, b), device, &keys[2]);
    CHECK(keys[2] != keys[0]);
  }
}

// "a_channels": column p * channels + c of A goes with row c * pixels + p of B, in packed weights and in the oracle.
TEST_CASE("gemm/rows_by_pixels_are_rows_by_channels_with_moved_weights") {
  constexpr std::int64_t channels = 5, pixels = 6, k = channels * pixels, n = 19, m = 3;
  const auto moved = [&](std::int64_t column) { return column % channels * pixels + column / channels; };
  for (const std::int64_t b_in_rows : {0, 1}) {
    CAPTURE(b_in_rows);
    const Tensor a = random_f32({m, k}, 1), b = random_f32(b_in_rows ? Shape{n, k} : Shape{k, n}, 2);
    Tensor b_moved = b.clone();
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t l = 0; l < k; ++l) {
        const auto at = [&](std::int64_t row) {
          return static_cast<std::size_t>(b_in_rows ? j * k + row : row * n + j);
        };
        b_moved.values<float>()[at(l)] = b.values<float>()[at(moved(l))];
      }
    const AttributeList plain{{"transB", b_in_rows}, {"alpha", 0.75}};
    AttributeList by_pixels = plain;
    by_pixels.emplace_back("a_channels", channels);
    const std::vector<Tensor> known{Tensor(), b}, known_moved{Tensor(), b_moved};
    for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda}) {
      std::string key, other_key;
      const auto bytes = weights(*pose("Gemm", by_pixels, {a.shape(), b.shape()}, known), device, &key);
      CHECK(bytes == weights(*pose("Gemm", plain, {a.shape(), b.shape()}, known_moved), device, &other_key));
      CHECK(key != other_key);
    }
    const std::vector<oracle::Array> arrays{oracle::from_tensor(a), oracle::from_tensor(b)},
        arrays_moved{oracle::from_tensor(a), oracle::from_tensor(b_moved)};
    CHECK((*oracle::run("Gemm", by_pixels, arrays))[0].values == (*oracle::run("Gemm", plain, arrays_moved))[0].values);
  }
}

// Weights that need no packing for a kernel are packed nevertheless, or the kernel refuses.
TEST_CASE("gemm/rows_by_pixels_need_known_weights") {
  constexpr std::int64_t channels = 5, k = 30, n = 19, m = 3;
  const AttributeList attributes{{"transB", std::int64_t{1}}, {"a_channels", channels}};
  const std::vector<Tensor> b{Tensor(), random_f32({n, k}, 1)};
  const auto known = pose("Gemm", attributes, {{m, k}, {n, k}}, b),
             computed = pose("Gemm", attributes, {{m, k}, {n, k}});
  CHECK_FALSE(weights(*known, DeviceKind::cuda).empty());
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda})
    for (const Kernel* const each : kernels_of("Gemm", device)) {
      CAPTURE(each->name());
      const DeviceProfile profile = device == DeviceKind::cpu ? cpu_profile(1) : reference_gpu();
      CHECK(each->offer(*known, {profile}).refusal.empty() == (each->name() != "few_rows"));
      CHECK_FALSE(each->offer(*computed, {profile}).refusal.empty());
    }
  CHECK_ERROR(pose("Gemm", {{"a_channels", std::int64_t{4}}}, {{m, k}, {k, n}}), internal,
              "a_channels = 4 of 30 columns");
}

TEST_CASE("gemm/shapes_that_do_not_multiply_are_refused") {
  const auto f32 = [](Shape shape) { return Tensor(DType::f32, shape); };
  CHECK_THROWS_WITH_AS(infer_op({.op = "Gemm", .inputs = {f32({2, 3}), f32({4, 5})}}), doctest::Contains("[4,5]"),
                       Error);
  CHECK_ERROR(infer_op({.op = "Gemm", .inputs = {f32({2, 3}), f32({3, 5}), f32({2, 2})}}), invalid_model,
              "shapes [2,2] and [2,5] do not broadcast");
  CHECK_ERROR(infer_op({.op = "Gemm", .inputs = {f32({1, 2, 3}), f32({3, 5})}}), invalid_model,
              "A [1,2,3] and B [3,5] must be matrices");
  CHECK_ERROR(infer_op({.op = "MatMul", .inputs = {f32({2, 3}), f32({4, 5})}}), invalid_model,
              "A [2,3] and B [4,5] do not multiply");
  CHECK_ERROR(infer_op({.op = "MatMul", .inputs = {f32({}), f32({4, 5})}}), invalid_model,
              "A [] and B [4,5]: scalars do not multiply");
  CHECK_ERROR(infer_op({.op = "MatMul", .inputs = {f32({2, 1, 3}), f32({3, 3, 5})}}), invalid_model,
              "shapes [2] and [3] do not broadcast");
}

TEST_CASE("gemm/cuda/sizes_beyond_32_bits_and_scaled_computed_weights_are_refused") {
  const std::vector<Tensor> b{Tensor(), Tensor(DType::f32, {4, 3})};
  const auto refusal = [&](const AttributeList& attributes, Shape of_a, Shape of_b, bool known) {
    const auto problem = pose("Gemm", attributes, {of_a, of_b}, known ? b : std::vector<Tensor>());
    return kernel(*problem, DeviceKind::cuda).offer(*problem, {reference_gpu()}).refusal;
  };
  CHECK(refusal({}, {2, 4}, {4, 3}, false) == "");
  CHECK(refusal({}, {std::int64_t{1} << 31, 1}, {1, 1}, false).find("[2147483648,1]") != std::string::npos);
  CHECK(refusal({}, {1 << 30, 4}, {4, 1 << 20}, false) != "");  // every size fits, the number of tiles does not
  const AttributeList scaled{{"weight_scale", std::vector<double>{1, 2, 3}}};
  CHECK(refusal(scaled, {2, 4}, {4, 3}, true) == "");
  CHECK(refusal(scaled, {2, 4}, {4, 3}, false) != "");
}

namespace {

const AttributeList b_in_rows{{"transB", std::int64_t{1}}};
constexpr Numerics tf32{.multiply = Numerics::Multiply::tf32};

/// A candidate of CUDA's kernel, which can be bound.
Candidate offered(const Problem& problem, const DeviceProfile& gpu, Numerics numerics = {}) {
  const Candidate candidate = kernel(problem, DeviceKind::cuda).offer(problem, {gpu, numerics}).candidates.at(0);
  CHECK(candidate.needs_cublas == candidate.config.starts_with("kernel=cublas"));
  CHECK_NOTHROW(kernel(problem, DeviceKind::cuda).bind({problem, candidate, gpu}));
  return candidate;
}
std::string way(const Problem& problem) { return offered(problem, gpu_with_cublas()).config; }

}  // namespace

// At most eight rows, one product, and a B of rows [n,k], given or packed.
TEST_CASE("gemm/cuda/few_rows_are_eight_of_one_product_by_a_b_in_rows") {
  const AttributeList trans_a{{"transA", std::int64_t{1}}};
  CHECK(way(*pose("Gemm", b_in_rows, {{8, 64}, {4096, 64}})) == "kernel=few_rows split_k=4");
  CHECK(way(*pose("Gemm", b_in_rows, {{9, 64}, {4096, 64}})) == "kernel=cublas tf32=no");
  CHECK(way(*pose("Gemm", {}, {{8, 64}, {64, 100}})) == "kernel=cublas tf32=no");
  CHECK(way(*pose("Gemm", {}, {{8, 64}, {64, 100}}, {Tensor(), random_f32({64, 100}, 1)})) ==
        "kernel=few_rows split_k=8");
  CHECK(way(*pose("Gemm", trans_a, {{64, 8}, {64, 1}}, {Tensor(), random_f32({64, 1}, 1)})) == "kernel=cublas tf32=no");
  CHECK(way(*pose("MatMul", {}, {{2, 4, 64}, {64}})) == "kernel=few_rows split_k=8");
  CHECK(way(*pose("MatMul", {}, {{3, 4, 64}, {64}})) == "kernel=cublas tf32=no");
  CHECK(way(*pose("MatMul", {}, {{2, 4, 64}, {2, 64, 1}})) == "kernel=cublas tf32=no");
  CHECK(way(*pose("Gemm", {}, {{20, 0}, {0, 7}})) == "kernel=tiled");
  CHECK(way(*pose("Gemm", {}, {{4, 0}, {0, 7}}, {Tensor(), Tensor(DType::f32, {0, 7})})) == "kernel=tiled");
}

// No split from 8417 columns on.
TEST_CASE("gemm/cuda/where_a_sum_is_cut_follows_from_the_problem_not_the_device") {
  DeviceProfile small = reference_gpu();
  small.units = 16;
  for (const DeviceProfile& gpu : {gpu_with_cublas(), reference_gpu(), small}) {
    CHECK(offered(*pose("Gemm", b_in_rows, {{1, 64}, {8417, 64}}), gpu).config == "kernel=few_rows split_k=1");
    CHECK(offered(*pose("Gemm", b_in_rows, {{1, 64}, {8416, 64}}), gpu).config == "kernel=few_rows split_k=2");
  }
}

// From the size at which it is faster; rows of B are then 16-byte aligned.
TEST_CASE("gemm/cuda/few_rows_of_16_bits_go_to_tensor_cores") {
  const auto half_way = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    const InputInfo infos[] = {{true, {DType::f16, {m, k}}, nullptr}, {true, {DType::f16, {n, k}}, nullptr}};
    const Problem problem(make_normalised_op("Gemm", b_in_rows, 2), infos);
    return way(problem);
  };
  CHECK(half_way(2, 4096, 64) == "kernel=few_rows split_k=4");
  CHECK(half_way(3, 4096, 64) == "kernel=few_rows_mma eights=2");
  CHECK(half_way(4, 1000, 64) == "kernel=few_rows split_k=8");
  CHECK(half_way(16, 1000, 64) == "kernel=few_rows_mma eights=1");
  CHECK(half_way(8, 1000, 65) == "kernel=few_rows split_k=8");
  // Without columns there is nothing to multiply.
  const InputInfo empty[] = {{true, {DType::f16, {2, 0}}, nullptr}, {true, {DType::f16, {9, 0}}, nullptr}};
  const Problem problem(make_normalised_op("Gemm", b_in_rows, 2), empty);
  CHECK(kernel(problem, DeviceKind::cuda).offer(problem, {.device = reference_gpu()}).candidates.empty());
}

// The weights stay in float32, which is at least as exact.
TEST_CASE("gemm/cuda/few_rows_of_16_bits_into_float32_meet_float32_weights") {
  const auto into_float32 = [&](std::int64_t m, std::int64_t k, const AttributeList& attributes) {
    const Tensor weights = random_f32({100, k}, 1);
    const InputInfo infos[] = {{true, {DType::f16, {m, k}}, nullptr}, {true, {DType::f32, {100, k}}, &weights}};
    const Problem problem(make_normalised_op("Gemm", attributes, 2), infos, {{DType::f32, {m, 100}}});
    const Candidate candidate = offered(problem, gpu_with_cublas());
    const bool exact = candidate.tolerance == sum_tolerance(k);
    CHECK(exact == (candidate.config == "kernel=few_rows split_k=8" && m <= 8 && k % 4 == 0));
    const auto blob = kernel(problem, DeviceKind::cuda).blob(problem, candidate);
    CHECK(((candidate.reads & input_bit(1)) == no_inputs) == blob.has_value());
    if (blob) CHECK(blob->bytes == static_cast<std::size_t>(100 * k * (exact ? 4 : 2)));
    CHECK(blob.has_value() == (!exact || attributes.size() > 1));  // else they are read in place
    Candidate other = candidate;
    other.config = "kernel=few_rows_mma eights=1";  // for weights in 16 bits
    if (exact)
      CHECK_ERROR(kernel(problem, DeviceKind::cuda).bind({problem, other, gpu_with_cublas()}), invalid_argument,
                  "there is no such way to compute this product");
    return exact;
  };
  CHECK(into_float32(1, 64, b_in_rows));
  CHECK(into_float32(8, 60, {{"transB", std::int64_t{1}}, {"alpha", 0.5}}));
  CHECK(into_float32(8, 60, {{"transB", std::int64_t{1}}, {"a_channels", std::int64_t{10}}}));
  CHECK_FALSE(into_float32(9, 64, b_in_rows));
  CHECK_FALSE(into_float32(1, 65, b_in_rows));
}

// Without cuBLAS gemm_cute, if the build has it.
TEST_CASE("gemm/cuda/tolerances_are_tf32s_where_it_multiplies") {
  const DeviceProfile with = gpu_with_cublas(), &without = reference_gpu();
  const auto large = pose("Gemm", b_in_rows, {{100, 64}, {50, 64}});
  CHECK(offered(*large, without).config == "kernel=tiled");
  CHECK(offered(*large, with, tf32).config == "kernel=cublas tf32=yes");
  CHECK(offered(*large, with, tf32).tolerance == tf32_sum_tolerance(64));
  const Candidate other = offered(*large, without, tf32);
  CHECK(other.tolerance ==
        (other.config.starts_with("kernel=cute tf32=yes") ? tf32_sum_tolerance(64) : sum_tolerance(64)));
  CHECK(offered(*pose("Gemm", b_in_rows, {{1, 64}, {50, 64}}), with, tf32).tolerance == sum_tolerance(64));
}

TEST_CASE("gemm/cuda/many_known_weights_of_few_rows_come_packed_in_tf32") {
  const auto packs = [&](std::int64_t m, std::int64_t n, std::int64_t k, bool known, const Numerics& numerics) {
    std::vector<Tensor> constants;
    if (known) constants = {Tensor(), Tensor(DType::f32, {n, k})};
    const auto problem = pose("Gemm", b_in_rows, {{m, k}, {n, k}}, constants);
    const Candidate candidate = offered(*problem, gpu_with_cublas(), numerics);
    const bool does = candidate.config.ends_with("packed=yes");
    if (does) {
      CHECK(candidate.tolerance == tf32_sum_tolerance(k));
      CHECK(kernel(*problem, DeviceKind::cuda).blob(*problem, candidate)->bytes ==
            static_cast<std::size_t>(n * ((k + 255) / 256 * 640)));
      CHECK((candidate.reads & input_bit(1)) == no_inputs);
    }
    return does;
  };
  CHECK(packs(1, 1000, 2048, true, tf32));
  CHECK(packs(8, 1000, 2056, true, tf32));
  CHECK_FALSE(packs(9, 1000, 2048, true, tf32));
  CHECK_FALSE(packs(1, 1000, 2044, true, tf32));
  CHECK_FALSE(packs(1, 1000, 1024, true, tf32));
  CHECK_FALSE(packs(1, 1000, 2048, false, tf32));
  CHECK_FALSE(packs(1, 1000, 2048, true, {}));
}

TEST_CASE("gemm/cuda/configurations_of_no_way_are_refused") {
  const DeviceProfile with = gpu_with_cublas();
  const auto large = pose("Gemm", b_in_rows, {{100, 64}, {50, 64}});
  for (const char* config :
       {"", "kernel=fast", "kernel=tiled split_k=2", "kernel=few_rows split_k=1", "kernel=cublas"}) {
    Candidate candidate = offered(*large, with);
    candidate.config = config;
    CHECK_ERROR(kernel(*large, DeviceKind::cuda).bind({*large, candidate, with}), invalid_argument, "configuration '");
  }
}

TEST_CASE("gemm/packed_weights_are_rounded_to_20_bits") {
  const std::int64_t k = 2504;  // ten chunks, the last one partial
  const std::int64_t bytes = cuda::packed_row_bytes(k);
  CHECK(bytes == 10 * 640);
  const Tensor weights = random_f32({k}, 5);
  std::vector<std::byte> row(static_cast<std::size_t>(bytes));
  for (std::int64_t l = 0; l < k; ++l)
    cuda::pack_weight(row.data(), l, weights.values<float>()[static_cast<std::size_t>(l)]);
  const auto byte = [&](std::int64_t at) { return std::to_integer<std::uint32_t>(row[static_cast<std::size_t>(at)]); };
  for (std::int64_t l = 0; l < k; ++l) {
    // As the kernel indexes it: the upper half, then four bits of the lane's word.
    const std::int64_t chunk = l / 256 * 640, at = l % 256;
    const std::uint32_t lower = byte(chunk + 512 + at / 8 * 4 + at % 8 / 2) >> (at % 2 * 4) & 0xF;
    const std::uint32_t bits = byte(chunk + at * 2 + 1) << 24 | byte(chunk + at * 2) << 16 | lower << 12;
    const float exact = weights.values<float>()[static_cast<std::size_t>(l)];
    CHECK(std::abs(double{std::bit_cast<float>(bits)} - double{exact}) <= std::abs(double{exact}) * 0x1p-12);
  }
  // Ties to even; NaN and infinities, and values that would become one.
  constexpr float inf = std::numeric_limits<float>::infinity();
  CHECK(cuda::packed_bits(std::bit_cast<float>(0x3F800800U)) == 0x3F800U);
  CHECK(cuda::packed_bits(std::bit_cast<float>(0x3F801800U)) == 0x3F802U);
  CHECK(cuda::packed_bits(-inf) == 0xFF800U);
  CHECK(cuda::packed_bits(std::bit_cast<float>(0x7F800001U)) == 0x7FC00U);
}

TEST_CASE("gemm/cuda/reads_weights_that_lie_as_needed") {
  const auto has_blob = [](const Problem& problem) {
    const Candidate candidate = kernel(problem, DeviceKind::cuda).offer(problem, {reference_gpu()}).candidates.at(0);
    const bool read = (candidate.reads & input_bit(1)) != 0;
    CHECK(read != kernel(problem, DeviceKind::cuda).blob(problem, candidate).has_value());
    return !read;
  };
  const std::vector<Tensor> square{Tensor(), random_f32({6, 6}, 1)}, column{Tensor(), random_f32({6, 1}, 1)},
      stack{Tensor(), random_f32({2, 6, 6}, 1)};
  CHECK(has_blob(*pose("Gemm", {}, {{4, 6}, {6, 6}}, square)));
  CHECK_FALSE(has_blob(*pose("Gemm", b_in_rows, {{4, 6}, {6, 6}}, square)));
  CHECK_FALSE(has_blob(*pose("Gemm", {}, {{4, 6}, {6, 6}})));
  CHECK(has_blob(*pose("MatMul", {}, {{4, 6}, {6, 6}}, square)));
  CHECK_FALSE(has_blob(*pose("MatMul", {}, {{4, 6}, {6, 1}}, column)));
  CHECK_FALSE(has_blob(*pose("MatMul", {}, {{2, 4, 6}, {2, 6, 6}}, stack)));
}

TEST_CASE("gemm/axes_that_follow") {
  const auto followed = [](const std::string& op, const AttributeList& attributes, std::vector<Shape> shapes,
                           std::size_t input, int output_axis, const std::vector<Tensor>& constants = {}) {
    const auto problem = pose(op, attributes, shapes, constants);
    const AxisMap map = problem->op().axis_map(problem->inputs(), problem->output_shape()).value();
    return static_cast<int>(map.inputs[input].axis[static_cast<std::size_t>(output_axis)]);
  };
  CHECK(followed("Gemm", {}, {{4, 6}, {6, 5}}, 0, 0) == 0);
  CHECK(followed("Gemm", {}, {{4, 6}, {6, 5}}, 0, 1) == AxisMap::none);
  CHECK(followed("Gemm", {{"transA", std::int64_t{1}}}, {{6, 4}, {6, 5}}, 0, 0) == 1);
  CHECK(followed("Gemm", {}, {{4, 6}, {6, 5}, {4, 5}}, 2, 0) == 0);
  CHECK(followed("Gemm", {}, {{4, 6}, {6, 5}, {5}}, 2, 1) == 0);
  CHECK(followed("Gemm", {}, {{1, 6}, {6, 5}, {1, 5}}, 2, 0) == 0);
  // A C with one row is added to each, whatever the number of rows.
  const auto one_row = pose("Gemm", {}, {{1, 6}, {6, 5}, {1, 5}});
  CHECK(one_row->op().axis_map(one_row->inputs(), one_row->output_shape())->inputs[2].stretched[0]);
  CHECK(followed("MatMul", {}, {{4, 6}, {6, 5}}, 0, 0) == 0);
  CHECK(followed("FusedMatMul", {{"transA", std::int64_t{1}}}, {{3, 6, 4}, {6, 5}}, 0, 1) == 2);
  CHECK(followed("FusedMatMul", {{"transB", std::int64_t{1}}}, {{3, 4, 6}, {5, 6}}, 1, 2) == 0);
  CHECK(followed("MatMul", {}, {{4, 6}, {6, 5}}, 1, 0) == AxisMap::none);
  CHECK(followed("MatMul", {}, {{4, 6}, {3, 6, 5}}, 0, 0) == AxisMap::none);
  CHECK(followed("MatMul", {}, {{4, 6}, {3, 6, 5}}, 0, 1) == 0);
  CHECK(followed("MatMul", {}, {{4, 6}, {3, 6, 5}}, 1, 0) == 0);
  CHECK(followed("MatMul", {}, {{1, 4, 6}, {3, 6, 5}}, 0, 0) == AxisMap::none);
  CHECK(followed("MatMul", {}, {{6}, {3, 6, 5}}, 1, 1) == 2);
}

TEST_CASE("matmul/numpy_semantics") {
  unsigned seed = 1;
  struct Shapes {
    Shape a, b;
  };
  for (const Shapes& s :
       {Shapes{{3, 5}, {5, 7}}, Shapes{{5}, {5, 7}}, Shapes{{3, 5}, {5}}, Shapes{{5}, {5}}, Shapes{{2, 3, 5}, {5, 7}},
        Shapes{{2, 3, 5}, {2, 5, 7}}, Shapes{{3, 5}, {4, 5, 7}}, Shapes{{2, 1, 3, 5}, {4, 5, 7}},
        Shapes{{2, 4, 3, 5}, {2, 1, 5, 7}}, Shapes{{5}, {4, 5, 7}}, Shapes{{4, 3, 5}, {5}},
        Shapes{{65, 130}, {130, 70}}, Shapes{{0, 5}, {5, 7}}, Shapes{{5, 4, 9, 33}, {5, 1, 33, 70}},
        Shapes{{1, 12, 17, 40}, {3, 12, 40, 21}}, Shapes{{3, 8, 20, 16}, {8, 16, 37}}})
    check_op({.op = "MatMul",
              .inputs = {random_f32(s.a, seed++), random_f32(s.b, seed++)},
              .maybe_constant = {1},
              .tolerance = 5e-6});
}

TEST_CASE("matmul/integers_and_doubles") {
  unsigned seed = 1;
  for (const DType dtype : {DType::i32, DType::u32, DType::i64, DType::u64, DType::f64})
    for (const auto& [a, b] : std::vector<std::pair<Shape, Shape>>{{{3, 5}, {5, 7}},
                                                                   {{5}, {4, 5, 7}},
                                                                   {{4, 3, 5}, {5}},
                                                                   {{2, 1, 3, 5}, {4, 5, 7}},
                                                                   {{2, 4, 3, 5}, {2, 1, 5, 7}},
                                                                   {{3, 0}, {0, 2}}}) {
      const double low = is_unsigned(dtype) ? 0 : -90;
      OpCase c{.op = "MatMul", .inputs = {random_of(dtype, a, seed, low, 90), random_of(dtype, b, seed + 1, low, 90)}};
      if (dtype == DType::f64) c.tolerance = 1e-6;
      check_op(c);
      seed += 2;
    }
  // Beyond 2^53, and wrapping.
  const std::int64_t large = std::int64_t{1} << 62;
  const Tensor product = run_op(
      {.op = "MatMul",
       .inputs = {Tensor::of<std::int64_t>({1, 2}, {large + 1, 3}), Tensor::of<std::int64_t>({2, 1}, {5, 7})}})[0];
  CHECK(product.values<std::int64_t>()[0] == large + 26);
}

TEST_CASE("matmul/fused") {
  unsigned seed = 1;
  for (const std::int64_t trans_a : {0, 1})
    for (const std::int64_t trans_b : {0, 1})
      for (const double alpha : {1.0, -0.375})
        for (const auto& [a, b] : std::vector<std::pair<Shape, Shape>>{{{3, 5}, {5, 7}},
                                                                       {{2, 3, 5}, {5, 7}},
                                                                       {{2, 3, 5}, {2, 5, 7}},
                                                                       {{2, 1, 9, 33}, {4, 33, 20}},
                                                                       {{3, 5}, {4, 5, 1}},
                                                                       {{65, 130}, {130, 70}},
                                                                       {{5}, {5}}}) {
          const auto swapped = [](const Shape& shape, std::int64_t swap) {
            const int last = shape.rank() - 1;
            return swap == 0 || last < 1 ? shape : shape.with(last, shape[last - 1]).with(last - 1, shape[last]);
          };
          for (const DType dtype : {DType::f32, DType::i32}) {
            if (dtype == DType::i32 && alpha != 1) continue;
            const auto operand = [&](const Shape& shape) {
              return dtype == DType::f32 ? random_f32(shape, seed++) : random_of(dtype, shape, seed++, -9, 9);
            };
            check_op({.op = "FusedMatMul",
                      .domain = "com.microsoft",
                      .opset = 1,
                      .attributes = {{"transA", trans_a}, {"transB", trans_b}, {"alpha", alpha}},
                      .inputs = {operand(swapped(a, trans_a)), operand(swapped(b, trans_b))},
                      .maybe_constant = {1},
                      .tolerance = 5e-6});
          }
        }
  CHECK_THROWS_WITH_AS(make_op(OpCase{.op = "FusedMatMul",
                                      .domain = "com.microsoft",
                                      .opset = 1,
                                      .attributes = {{"transBatchA", std::int64_t{1}}},
                                      .inputs = {random_f32({2, 2}, 1), random_f32({2, 2}, 1)}}),
                       "attribute 'transBatchA' is not supported", Error);
}

TEST_CASE("gemm/long_sums_stay_within_what_is_stated") {
  double shorter = 0;
  for (const std::int64_t k : {300, 2048, 9216}) {
    const Tensor a = random_f32({9, k}, 1), b = random_f32({k, 70}, 2);
    const std::vector<InputInfo> infos{{true, {DType::f32, a.shape()}, nullptr},
                                       {true, {DType::f32, b.shape()}, nullptr}};
    for (const char* op : {"Gemm", "MatMul"}) {
      OpCase c{.op = op, .inputs = {a, b}, .maybe_constant = {1}};
      const Problem problem(make_op(c), infos);
      const DeviceProfile cpu = cpu_profile(1);
      c.tolerance = kernel(problem, DeviceKind::cpu).offer(problem, {cpu}).candidates.at(0).tolerance;
      CHECK(c.tolerance > shorter);
      CHECK(c.tolerance < 6e-5);
      check_op(c);
    }
    shorter = sum_tolerance(k);
  }
}
