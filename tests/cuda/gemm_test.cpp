// The products of gemm.cu against sums in double, each way that takes a case, at sizes that leave tails.
// What Gemm and MatMul make of them is in tests/ops/gemm_op_test.cpp, which runs on the device, too.

#include "ops/gemm/gemm_cuda.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/cuda/session.h"
#include "base/cuda/upload.h"
#include "ops/core/sum_tolerance.h"
#include "ops/gemm/packed_weights.h"
#include "tests/cuda/random_values.h"
#include "tests/larger_error.h"
#include "tests/ops/exact_activation.h"

namespace lenslet {
namespace {

struct Case {
  std::int64_t m, n, k;
  bool trans_a = false, trans_b = true;
  std::int64_t batch = 1;
  bool row_of_c = false, full_c = false;
  float alpha = 1, beta = 1;
  Activation activation = {};
  std::int64_t shift = 0;  ///< floats that the operands lie behind a 16-byte boundary
};

/// One way to compute a call.
struct Way {
  std::string name;
  std::function<void(const cuda::Context&, const cuda::GemmCall&)> multiply;
  bool tf32 = false;
};

std::vector<Way> ways(const Case& t, std::span<const float> b, bool with_cublas) {
  std::vector<Way> list{{"tiled", cuda::gemm_tiled}};
  if (t.batch == 1 && t.m <= cuda::most_few_rows && t.trans_b && !t.trans_a && t.k % cuda::packed_lane_weights == 0 &&
      t.shift % 4 == 0) {
    const std::int64_t row_bytes = cuda::packed_row_bytes(t.k);
    std::vector<std::byte> host(static_cast<std::size_t>(t.n * row_bytes));
    for (std::int64_t j = 0; j < t.n; ++j)
      for (std::int64_t l = 0; l < t.k; ++l)
        cuda::pack_weight(host.data() + j * row_bytes, l, b[static_cast<std::size_t>(j * t.k + l)]);
    const auto lies = std::make_shared<cuda::DeviceBuffer<std::byte>>(cuda::upload(host));
    for (const int slices : {1, 2, 4, 8})
      list.push_back({fmt::format("few_rows in {}, packed", slices),
                      [=](const cuda::Context& context, const cuda::GemmCall& call) {
                        cuda::gemm_few_rows_packed(context, call, lies->data(), slices);
                      },
                      true});
  }
  for (const int slices : {1, 2, 4, 8})
    for (const bool vectors : {false, true})
      if (t.batch == 1 && t.m <= cuda::most_few_rows && t.trans_b && !t.trans_a &&
          (!vectors || (t.k % 4 == 0 && t.shift % 4 == 0)))
        list.push_back({fmt::format("few_rows in {}, vectors: {}", slices, vectors),
                        [=](const cuda::Context& context, const cuda::GemmCall& call) {
                          cuda::gemm_few_rows(context, call, slices, vectors);
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
  const std::vector<float> a = test::random_values(t.batch * t.m * t.k, 1),
                           b = test::random_values(t.batch * t.k * t.n, 2);
  const std::vector<float> c = test::random_values(t.m * t.n, 3);
  constexpr std::int64_t guard = 64;
  const std::int64_t y_elems = t.batch * t.m * t.n;
  cuda::DeviceBuffer<float> device_a(a.size() + 4), device_b(b.size() + 4), device_c(c.size());
  cuda::DeviceBuffer<float> device_y(static_cast<std::size_t>(y_elems + guard));
  const auto upload = [](float* to, const std::vector<float>& from) {
    cuda::copy_to_device(to, from.data(), from.size() * sizeof(float));
  };
  upload(device_a.data() + t.shift, a);
  upload(device_b.data() + t.shift, b);
  upload(device_c.data(), c);

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
                            .a = {device_a.data() + t.shift, t.trans_a ? t.m : t.k, t.trans_a, t.m * t.k},
                            .b = {device_b.data() + t.shift, t.trans_b ? t.k : t.n, t.trans_b, t.k * t.n},
                            .c = t.row_of_c || t.full_c ? device_c.data() : nullptr,
                            .y = device_y.data()};

  const auto exact_of = test::exact_activation(t.activation);
  std::vector<double> exact(static_cast<std::size_t>(y_elems));
  for (std::int64_t at = 0; at < y_elems; ++at) {
    const std::int64_t product = at / (t.m * t.n), i = at / t.n % t.m, j = at % t.n;
    double sum = 0;
    for (std::int64_t l = 0; l < t.k; ++l) {
      const std::int64_t ia = product * t.m * t.k + (t.trans_a ? l * t.m + i : i * t.k + l);
      const std::int64_t ib = product * t.k * t.n + (t.trans_b ? j * t.k + l : l * t.n + j);
      sum += double{a[static_cast<std::size_t>(ia)]} * double{b[static_cast<std::size_t>(ib)]};
    }
    sum *= double{t.alpha};
    if (call.c != nullptr) sum += double{t.beta} * double{c[static_cast<std::size_t>(i * problem.c_row + j)]};
    exact[static_cast<std::size_t>(at)] = exact_of(sum);
  }
  // Factors in (-1, 1) have the variance 1/3.
  const double products = double{t.alpha} * double{t.alpha} * static_cast<double>(t.k) / 9;
  const double added = call.c != nullptr ? double{t.beta} * double{t.beta} / 3 : 0;

  for (const Way& way : ways(t, b, context.cublas != nullptr)) {
    CUDA_CHECK(cudaMemset(device_y.data(), 0x7f, device_y.bytes()));
    CUDA_CHECK(cudaDeviceSynchronize());  // the session's stream does not wait for the one that fills
    way.multiply(context, call);
    CUDA_CHECK(cudaStreamSynchronize(context.stream));
    std::vector<float> y(device_y.size());
    CUDA_CHECK(cudaMemcpy(y.data(), device_y.data(), device_y.bytes(), cudaMemcpyDeviceToHost));
    double worst = 0;
    for (std::size_t at = 0; at < exact.size(); ++at)
      worst = test::larger_error(worst, std::abs(double{y[at]} - exact[at]));
    const double allowed = (way.tf32 ? tf32_sum_tolerance(t.k) : sum_tolerance(t.k)) * std::sqrt(products + added);
    CHECK_MESSAGE(worst <= allowed, fmt::format("{} {}x{}x{} batch {}: off by {}, allowed {}", way.name, t.m, t.n, t.k,
                                                t.batch, worst, allowed));
    for (std::size_t at = exact.size(); at < y.size(); ++at) CHECK_MESSAGE(y[at] == y.back(), "wrote behind y");
  }
}

std::vector<Case> cases() {
  const Activation relu{Activation::Kind::relu, 0, 0}, silu{Activation::Kind::silu, 0, 0};
  std::vector<Case> list;
  for (std::int64_t m = 1; m <= 9; ++m) {
    list.push_back({.m = m, .n = 1000, .k = 2048, .row_of_c = true, .activation = relu});
    list.push_back({.m = m, .n = 37, .k = 133, .full_c = true, .alpha = 0.5F, .beta = -2, .activation = silu});
    list.push_back({.m = m, .n = 3, .k = 64, .shift = 1});
    list.push_back({.m = m, .n = 5, .k = 1});
    list.push_back({.m = m, .n = 6, .k = 0, .row_of_c = true});
  }
  list.push_back({.m = 1, .n = 4096, .k = 1028, .row_of_c = true});  // warps share the sum less than 8 ways
  list.push_back({.m = 2, .n = 9000, .k = 100});
  list.push_back({.m = 1, .n = 70, .k = 2504, .row_of_c = true});  // of packed weights a last chunk with room
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
  // compute-sanitizer slows kernels a hundredfold: every third case then, and no grid of 70,000.
  const std::size_t step = std::getenv("LENSLET_TEST_REDUCED") == nullptr ? 1 : 3;
  const std::vector<Case> all = cases();
  for (std::size_t at = 0; at < all.size(); at += step)
    if (step == 1 || all[at].batch < 1000) check(session.context(), all[at]);
}

// The plan of a network keeps B as [N,K] with its scales multiplied in.
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
    // 0.75 * A * B = {6.75, 9, 11.25; 14.25, 19.5, 24.75}; times {2, -1, 0.5}; negative ones times 0.1.
    const float exact[] = {13.5F, -0.9F, 5.625F, 28.5F, -1.95F, 12.375F};
    for (int i = 0; i < 6; ++i) CHECK(double{y[i]} == doctest::Approx(double{exact[i]}).epsilon(1e-6));
  }
}

}  // namespace
}  // namespace lenslet
