#include "ops/gemm/gemm_op.h"

#include <doctest/doctest.h>

#include <array>

#include "ops/core/sum_tolerance.h"
#include "oracle/oracle.h"
#include "tests/ops/op_harness.h"

using namespace lenslet;
using namespace lenslet::test;

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
  GemmOp op;
  op.trans_b = true;
  op.alpha = 0.75f;
  op.activation = {Activation::Kind::leaky_relu, 0.1f, 0};
  const Tensor a = random_f32({5, 31}, 1), b = random_f32({19, 31}, 2), c = random_f32({19}, 3);
  const Tensor scale = random_f32({19}, 4);
  op.weight_scale.assign(scale.values<float>().begin(), scale.values<float>().end());
  const std::vector<Tensor> inputs{a, b, c};
  std::vector<oracle::Array> arrays;
  for (const Tensor& input : inputs) arrays.push_back(oracle::from_tensor(input));
  const auto exact = (*oracle::run("Gemm", op.attributes(), arrays))[0];
  for (const bool constant : {true, false}) {
    std::vector<InputInfo> infos;
    for (const Tensor& input : inputs)
      infos.push_back({true, {DType::f32, input.shape()}, constant ? &input : nullptr});
    infos[0].constant = nullptr;
    const std::vector<Format> layouts(3, formats::nchw);
    const std::vector<TensorType> types = op.infer(infos);
    const PlanContext plan{infos, layouts, types, formats::nchw, 1};
    std::size_t bytes = 0;
    const auto prepared = constant ? op.prepare(plan, bytes) : nullptr;
    Tensor workspace(DType::u8, Shape{static_cast<std::int64_t>(op.workspace_bytes(plan)) + 1});
    std::vector<Tensor> outputs{Tensor(DType::f32, types[0].shape)};
    ThreadPool pool(1);
    op.run_cpu({inputs, outputs, {static_cast<std::byte*>(workspace.data()), workspace.bytes()}, prepared.get(), pool});
    for (std::size_t i = 0; i < exact.values.size(); ++i)
      CHECK(static_cast<double>(outputs[0].values<float>()[i]) == doctest::Approx(exact.values[i]).epsilon(1e-4));
  }
}

TEST_CASE("gemm/refusals") {
  const auto f32 = [](Shape shape) { return Tensor(DType::f32, shape); };
  CHECK_THROWS_WITH_AS(infer_op({.op = "Gemm", .inputs = {f32({2, 3}), f32({4, 5})}}), doctest::Contains("[4,5]"),
                       Error);
  CHECK_THROWS_AS(infer_op({.op = "Gemm", .inputs = {f32({2, 3}), f32({3, 5}), f32({2, 2})}}), Error);
  CHECK_THROWS_AS(infer_op({.op = "Gemm", .inputs = {f32({1, 2, 3}), f32({3, 5})}}), Error);
  CHECK_THROWS_AS(infer_op({.op = "MatMul", .inputs = {f32({2, 3}), f32({4, 5})}}), Error);
  CHECK_THROWS_AS(infer_op({.op = "MatMul", .inputs = {f32({}), f32({4, 5})}}), Error);
  CHECK_THROWS_AS(infer_op({.op = "MatMul", .inputs = {f32({2, 1, 3}), f32({3, 3, 5})}}), Error);
}

TEST_CASE("gemm/cuda_refusals") {
  GemmOp op;
  const Tensor b(DType::f32, {4, 3});
  const auto refusal = [&](Shape a, Shape of_b, const Tensor* constant) {
    const InputInfo infos[] = {{true, {DType::f32, a}, nullptr}, {true, {DType::f32, of_b}, constant}};
    return op.refuse_cuda(infos);
  };
  CHECK_FALSE(refusal({2, 4}, {4, 3}, nullptr));
  const auto large = refusal({std::int64_t{1} << 31, 1}, {1, 1}, nullptr);
  REQUIRE(large);
  CHECK(large->find("[2147483648,1]") != std::string::npos);
  CHECK(refusal({1 << 30, 4}, {4, 1 << 20}, nullptr));  // every size fits, the number of tiles does not
  op.weight_scale = {1, 2, 3};
  CHECK_FALSE(refusal({2, 4}, {4, 3}, &b));
  CHECK(refusal({2, 4}, {4, 3}, nullptr));
}

TEST_CASE("matmul/numpy_semantics") {
  unsigned seed = 1;
  struct Shapes {
    Shape a, b;
  };
  for (const Shapes& s : {Shapes{{3, 5}, {5, 7}}, Shapes{{5}, {5, 7}}, Shapes{{3, 5}, {5}}, Shapes{{5}, {5}},
                          Shapes{{2, 3, 5}, {5, 7}}, Shapes{{2, 3, 5}, {2, 5, 7}}, Shapes{{3, 5}, {4, 5, 7}},
                          Shapes{{2, 1, 3, 5}, {4, 5, 7}}, Shapes{{2, 4, 3, 5}, {2, 1, 5, 7}}, Shapes{{5}, {4, 5, 7}},
                          Shapes{{4, 3, 5}, {5}}, Shapes{{65, 130}, {130, 70}}, Shapes{{0, 5}, {5, 7}}})
    check_op({.op = "MatMul",
              .inputs = {random_f32(s.a, seed++), random_f32(s.b, seed++)},
              .maybe_constant = {1},
              .tolerance = 5e-6});
}

TEST_CASE("gemm/long_sums_stay_within_what_is_stated") {
  double shorter = 0;
  for (const std::int64_t k : {300, 2048, 9216}) {
    const Tensor a = random_f32({9, k}, 1), b = random_f32({k, 70}, 2);
    const std::vector<InputInfo> infos{{true, {DType::f32, a.shape()}, nullptr},
                                       {true, {DType::f32, b.shape()}, nullptr}};
    for (const char* op : {"Gemm", "MatMul"}) {
      OpCase c{.op = op, .inputs = {a, b}, .maybe_constant = {1}};
      c.tolerance = make_op(c)->tolerance(infos);
      CHECK(c.tolerance > shorter);
      CHECK(c.tolerance < 6e-5);
      check_op(c);
    }
    shorter = sum_tolerance(k);
  }
}
