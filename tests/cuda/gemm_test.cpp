// The products of gemm.cu compared with sums in double, by every method that takes a case, at sizes with tails. Gemm
// and MatMul are tested in tests/ops/gemm_op_test.cpp, which also runs on the device.

#include "ops/gemm/gemm_cuda.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/cuda/session.h"
#include "base/cuda/upload.h"
#include "ops/core/sum_tolerance.h"
#include "ops/gemm/packed_weights.h"
#include "tests/cuda/drawn_product.h"
#include "tests/ops/exact_activation.h"

namespace lenslet {
namespace {

using Case = test::ProductCase;

/// One method to compute a call.
struct Way {
  std::string name;
  std::function<void(const cuda::Context&, const cuda::GemmCall&)> multiply;
  bool tf32 = false;
};

std::vector<Way> ways(const Case& t, std::span<const double> b, bool with_cublas) {
  std::vector<Way> list{{"tiled", cuda::gemm_tiled}};
  if (t.batch == 1 && t.m <= cuda::most_few_rows && t.trans_b && !t.trans_a && t.k % cuda::packed_lane_weights == 0 &&
      t.operands_shift % 4 == 0) {
    const std::int64_t row_bytes = cuda::packed_row_bytes(t.k);
    std::vector<std::byte> host(static_cast<std::size_t>(t.n * row_bytes));
    for (std::int64_t j = 0; j < t.n; ++j)
      for (std::int64_t l = 0; l < t.k; ++l)
        cuda::pack_weight(host.data() + j * row_bytes, l, static_cast<float>(b[static_cast<std::size_t>(j * t.k + l)]));
    const auto lies = std::make_shared<cuda::DeviceBuffer<std::byte>>(cuda::upload(host));
    for (const int split_k : {1, 2, 4, 8})
      list.push_back({fmt::format("few_rows in {}, packed", split_k),
                      [=](const cuda::Context& context, const cuda::GemmCall& call) {
                        cuda::gemm_few_rows_packed(context, call, lies->data(), split_k);
                      },
                      true});
  }
  for (const int split_k : {1, 2, 4, 8})
    for (const bool vectors : {false, true})
      if (t.batch == 1 && t.m <= cuda::most_few_rows && t.trans_b && !t.trans_a &&
          (!vectors || (t.k % 4 == 0 && t.operands_shift % 4 == 0)))
        list.push_back({fmt::format("few_rows in {}, vectors: {}", split_k, vectors),
                        [=](const cuda::Context& context, const cuda::GemmCall& call) {
                          cuda::gemm_few_rows(context, call, split_k, vectors);
                        }});
  for (const auto multiply : {Numerics::Multiply::fp32, Numerics::Multiply::tf32})
    if (with_cublas && t.k > 0)
      list.push_back({"cublas",
                      [=](const cuda::Context& context, const cuda::GemmCall& call) {
                        cuda::gemm_cublas(context, call, multiply);
                      },
                      multiply == Numerics::Multiply::tf32});
  return list;
}

void check(const cuda::Context& context, const Case& t) {
  test::DrawnProduct product(context, t, DType::f32, DType::f32, 1, test::exact_activation(t.activation));
  const MatrixProblem problem{.gemm_m = t.m,
                              .gemm_n = t.n,
                              .gemm_k = t.k,
                              .alpha = t.alpha,
                              .beta = t.beta,
                              .c_row = t.full_c ? t.n : 0,
                              .c_col = 1,
                              .activation = t.activation};
  const cuda::GemmCall call{.problem = problem,
                            .batch = t.batch,
                            .a = {product.a().floats(), product.a().ld, t.trans_a, t.m * t.k},
                            .b = {product.b().floats(), product.b().ld, t.trans_b, product.b_step()},
                            .c = product.c(),
                            .y = reinterpret_cast<float*>(product.y())};
  for (const Way& way : ways(t, product.b().values, context.cublas != nullptr))
    product.check(way.name, way.tf32 ? tf32_sum_tolerance(t.k) : sum_tolerance(t.k), 0,
                  [&] { way.multiply(context, call); });
}

std::vector<Case> cases() {
  const Activation relu{Activation::Kind::relu, 0, 0}, silu{Activation::Kind::silu, 0, 0};
  std::vector<Case> list;
  for (std::int64_t m = 1; m <= 9; ++m) {
    list.push_back({.m = m, .n = 1000, .k = 2048, .row_of_c = true, .activation = relu});
    list.push_back({.m = m, .n = 37, .k = 133, .full_c = true, .alpha = 0.5F, .beta = -2, .activation = silu});
    list.push_back({.m = m, .n = 3, .k = 64, .operands_shift = 1});
    list.push_back({.m = m, .n = 5, .k = 1});
    list.push_back({.m = m, .n = 6, .k = 0, .row_of_c = true});
  }
  list.push_back({.m = 1, .n = 4096, .k = 1028, .row_of_c = true});  // fewer than 8 warps share the sum
  list.push_back({.m = 2, .n = 9000, .k = 100});
  list.push_back({.m = 1, .n = 70, .k = 2504, .row_of_c = true});  // packed weights with a partial last chunk
  list.push_back({.m = 7, .n = 33, .k = 8});
  list.push_back({.m = 65, .n = 67, .k = 130, .trans_b = false, .row_of_c = true, .activation = relu});
  list.push_back({.m = 64, .n = 64, .k = 16, .trans_a = true, .trans_b = false});
  list.push_back({.m = 130, .n = 5, .k = 17, .trans_a = true, .full_c = true, .beta = 0.25F});
  list.push_back({.m = 3, .n = 7, .k = 11, .trans_b = false, .batch = 70'000});
  list.push_back({.m = 20, .n = 30, .k = 40, .batch = 3, .row_of_c = true, .alpha = 2});
  list.push_back({.m = 300, .n = 500, .k = 700, .row_of_c = true});
  return list;
}

TEST_CASE("cuda/gemm/every_way") {
  const cuda::Session session(0, true);
  // compute-sanitizer is slow: every third case then, and no grid of 70,000.
  const std::size_t step = std::getenv("LENSLET_TEST_REDUCED") == nullptr ? 1 : 3;
  const std::vector<Case> all = cases();
  for (std::size_t at = 0; at < all.size(); at += step)
    if (step == 1 || all[at].batch < 1000) check(session.context(), all[at]);
}

// A network's plan stores B as [N,K], multiplied by its scales.
TEST_CASE("cuda/gemm/weight_scale_is_prepared") {
  const cuda::Session session(0);
  for (const bool trans_b : {false, true}) {
    const auto op = make_normalised_op("Gemm",
                                       {{"transB", std::int64_t{trans_b}},
                                        {"alpha", 0.75},
                                        {"activation", std::string("leaky_relu")},
                                        {"activation_alpha", 0.1},
                                        {"weight_scale", std::vector<double>{2, -1, 0.5}}},
                                       2);
    const Tensor a = Tensor::of<float>({2, 2}, {1, 2, 3, 4});
    const Tensor b =
        trans_b ? Tensor::of<float>({3, 2}, {1, 4, 2, 5, 3, 6}) : Tensor::of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
    const InputInfo infos[] = {{true, {DType::f32, a.shape()}, nullptr}, {true, {DType::f32, b.shape()}, &b}};
    const Problem problem(op, infos);
    const Kernel& kernel = *kernels_of("Gemm", DeviceKind::cuda).front();
    const Candidate candidate = kernel.offer(problem, {reference_gpu()}).candidates.at(0);
    CHECK((candidate.reads & input_bit(1)) == no_inputs);
    CHECK(candidate.workspace_bytes == 0);
    std::vector<std::byte> host(kernel.blob(problem, candidate).value().bytes);
    CHECK(host.size() == 6 * sizeof(float));
    kernel.prepare(problem, candidate, host);
    cuda::DeviceBuffer<std::byte> blob = cuda::upload(host);
    cuda::DeviceBuffer<float> device_a = cuda::upload(a.values<float>()), device_y(6);
    const Tensor inputs[] = {Tensor::view(DType::f32, a.shape(), device_a.data()), Tensor()};
    Tensor outputs[] = {Tensor::view(DType::f32, {2, 3}, device_y.data())};
    kernel.bind({problem, candidate, reference_gpu()})
        ->run({.inputs = inputs, .outputs = outputs, .workspace = {}, .blob = blob.data(), .cuda = &session.context()});
    session.stream().synchronize();
    float y[6];
    CUDA_CHECK(cudaMemcpy(y, device_y.data(), sizeof y, cudaMemcpyDeviceToHost));
    // 0.75 * A * B = {6.75, 9, 11.25; 14.25, 19.5, 24.75}; times {2, -1, 0.5}; negative results times 0.1.
    const float exact[] = {13.5F, -0.9F, 5.625F, 28.5F, -1.95F, 12.375F};
    for (int i = 0; i < 6; ++i) CHECK(double{y[i]} == doctest::Approx(double{exact[i]}).epsilon(1e-6));
  }
}

}  // namespace
}  // namespace lenslet
