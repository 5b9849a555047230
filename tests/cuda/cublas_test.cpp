#include "base/cuda/cublas.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/cuda/cublas_library.h"
#include "base/cuda/session.h"
#include "base/cuda/upload.h"
#include "lenslet/error.h"
#include "tests/cuda/device_case.h"
#include "tests/cuda/random_values.h"
#include "tests/expect_error.h"
#include "tests/larger_error.h"

namespace lenslet {
namespace {

std::vector<float> download(const cuda::DeviceBuffer<float>& buffer) {
  std::vector<float> values(buffer.size());
  CUDA_CHECK(cudaMemcpy(values.data(), buffer.data(), buffer.bytes(), cudaMemcpyDeviceToHost));
  return values;
}

struct Case {
  int m, n, k;
  bool trans_a, trans_b;
  int batch;
  bool one_b;  // the same B for the whole batch
  float beta;
  int padding;  // floats between the end of a row and the next, in all three
};

// Runs the product and returns max |c - exact| / sqrt(k); bytes between rows must stay as they were.
double error_of(const cuda::Session& session, const Case& t, Numerics::Multiply multiply) {
  const int a_rows = t.trans_a ? t.k : t.m, a_cols = t.trans_a ? t.m : t.k;
  const int b_rows = t.trans_b ? t.n : t.k, b_cols = t.trans_b ? t.k : t.n;
  const int lda = a_cols + t.padding, ldb = b_cols + t.padding, ldc = t.n + t.padding;
  const std::int64_t a_stride = std::int64_t{a_rows} * lda, b_stride = t.one_b ? 0 : std::int64_t{b_rows} * ldb,
                     c_stride = std::int64_t{t.m} * ldc;
  const auto a = test::random_values(a_stride * t.batch, 1);
  const auto b = test::random_values(std::int64_t{b_rows} * ldb * (t.one_b ? 1 : t.batch), 2);
  const auto c = test::random_values(c_stride * t.batch, 3);
  const auto device_a = cuda::upload(a), device_b = cuda::upload(b);
  auto device_c = cuda::upload(c);
  session.context().cublas->gemm(t.m, t.n, t.k, {device_a.data(), lda, t.trans_a, a_stride},
                                 {device_b.data(), ldb, t.trans_b, b_stride}, device_c.data(), ldc, t.beta, t.batch,
                                 c_stride, multiply);
  session.stream().synchronize();
  const auto result = download(device_c);
  double worst = 0;
  for (std::int64_t batch = 0; batch < t.batch; ++batch)
    for (int i = 0; i < t.m; ++i)
      for (int j = 0; j < ldc; ++j) {
        const auto at = static_cast<std::size_t>(batch * c_stride + std::int64_t{i} * ldc + j);
        if (j >= t.n) {
          CHECK(result[at] == c[at]);
          continue;
        }
        double exact = static_cast<double>(t.beta) * static_cast<double>(c[at]);
        for (int l = 0; l < t.k; ++l) {
          const std::int64_t ia =
              batch * a_stride + (t.trans_a ? std::int64_t{l} * lda + i : std::int64_t{i} * lda + l);
          const std::int64_t ib =
              batch * b_stride + (t.trans_b ? std::int64_t{j} * ldb + l : std::int64_t{l} * ldb + j);
          exact += static_cast<double>(a[static_cast<std::size_t>(ia)]) *
                   static_cast<double>(b[static_cast<std::size_t>(ib)]);
        }
        worst = test::larger_error(worst, std::abs(static_cast<double>(result[at]) - exact));
      }
  return worst / std::sqrt(t.k);
}

constexpr Case cases[] = {
    {64, 96, 128, false, false, 1, false, 0, 0},  {33, 7, 65, false, true, 1, false, 1, 3},
    {5, 130, 31, true, false, 1, false, 0.5f, 1}, {17, 19, 23, true, true, 1, false, 0, 5},
    {1, 100, 50, false, false, 3, false, 0, 0},   {40, 12, 9, false, true, 5, true, 0, 2},
    {12, 49, 36, false, false, 7, false, 1, 0},   {1, 1, 1, false, false, 1, false, 0, 0},
};

DEVICE_CASE("cuda/cublas/products_fp32") {
  REQUIRE_MESSAGE(cuda::cublas_unavailable_reason(0).empty(), cuda::cublas_unavailable_reason(0));
  const cuda::Session session(0, true);
  for (const Case& t : cases) {
    CAPTURE(t.m);
    CAPTURE(t.n);
    CAPTURE(t.k);
    // Rounding of fp32 is near 1e-7; TF32 would be near 3e-4, so that its use by mistake shows.
    CHECK(error_of(session, t, Numerics::Multiply::fp32) < 1e-6);
  }
}

DEVICE_CASE("cuda/cublas/products_tf32") {
  REQUIRE_MESSAGE(cuda::cublas_unavailable_reason(0).empty(), cuda::cublas_unavailable_reason(0));
  constexpr auto tf32 = Numerics::Multiply::tf32;
  const cuda::Session session(0, true);
  for (const Case& t : cases) CHECK(error_of(session, t, tf32) < 2e-3);
  // Sizes at which the tensor cores are used: the wish for TF32 reaches cuBLAS.
  CHECK(error_of(session, {256, 256, 256, false, false, 1, false, 0, 0}, tf32) > 1e-5);
}

/// What `work` queues, as a graph of its own.
cuda::GraphExec captured(const cuda::Session& session, const std::function<void()>& work) {
  cuda::GraphRecorder recorder;
  recorder.capture(session.stream(), work);
  return cuda::GraphExec(recorder);
}

DEVICE_CASE("cuda/cublas/repeats_to_the_bit_in_a_graph") {
  REQUIRE_MESSAGE(cuda::cublas_unavailable_reason(0).empty(), cuda::cublas_unavailable_reason(0));
  const cuda::Session session(0, true);
  constexpr int m = 64, n = 49, k = 4608;  // few tiles and a long sum: where cuBLAS splits it
  const auto a = cuda::upload(test::random_values(m * k, 1)), b = cuda::upload(test::random_values(k * n, 2));
  cuda::DeviceBuffer<float> c(m * n);
  const auto multiply = [&] { session.context().cublas->gemm(m, n, k, {a.data(), k}, {b.data(), n}, c.data(), n); };
  multiply();
  session.stream().synchronize();
  const auto first = download(c);
  const cuda::GraphExec graph = captured(session, multiply);
  for (int i = 0; i < 10; ++i) {
    CUDA_CHECK(cudaMemsetAsync(c.data(), 0xff, c.bytes(), session.stream().get()));
    graph.launch(session.stream());
    session.stream().synchronize();
    const auto again = download(c);
    CHECK(std::memcmp(first.data(), again.data(), c.bytes()) == 0);
  }
}

DEVICE_CASE("cuda/cublas/too_large_is_an_error") {
  REQUIRE_MESSAGE(cuda::cublas_unavailable_reason(0).empty(), cuda::cublas_unavailable_reason(0));
  const cuda::Session session(0, true);
  const cuda::Cublas& cublas = *session.context().cublas;
  CHECK_ERROR(cublas.gemm(std::int64_t{1} << 31, 1, 1, {nullptr, 1}, {nullptr, 1}, nullptr, 1), limit,
              "a matrix product of size 2147483648: cuBLAS takes up to 2^31 - 1");
}

// The next two need no device.
TEST_CASE("cuda/cublas/missing_library_says_what_to_do") {
  const cuda::CublasLibrary file = cuda::load_cublas("/nowhere/libcublas.so.13");
  CHECK((file.gemm == nullptr));
  CHECK(file.reason.find("LENSLET_CUBLAS=/nowhere/libcublas.so.13") != std::string::npos);
  CHECK(file.reason.find("cannot open shared object file") != std::string::npos);
  const cuda::CublasLibrary folder = cuda::load_cublas("/");
  CHECK((folder.gemm == nullptr));
  CHECK(folder.reason.find("/libcublas.so.13") != std::string::npos);
}

TEST_CASE("cuda/cublas/another_library_is_refused_by_its_missing_entries") {
  const cuda::CublasLibrary library = cuda::load_cublas("libm.so.6");
  CHECK((library.gemm == nullptr));
  CHECK((library.create == nullptr));
  CHECK(library.reason.find("libm.so.6 lacks cublasCreate_v2, ") == 0);
}

}  // namespace
}  // namespace lenslet
