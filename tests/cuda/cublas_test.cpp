#include "base/cuda/cublas.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/cuda/cublas_library.h"
#include "base/cuda/nvjpeg_library.h"
#include "base/cuda/session.h"
#include "base/cuda/upload.h"
#include "lenslet/error.h"
#include "tests/cuda/device_case.h"
#include "tests/cuda/drawn_product.h"
#include "tests/cuda/random_values.h"
#include "tests/expect_error.h"

namespace lenslet {
namespace {

std::vector<float> download(const cuda::DeviceBuffer<float>& buffer) {
  std::vector<float> values(buffer.size());
  CUDA_CHECK(cudaMemcpy(values.data(), buffer.data(), buffer.bytes(), cudaMemcpyDeviceToHost));
  return values;
}

/// C = A * B + `beta` * C with gaps between rows. Returns the largest error relative to the root of k.
double error_of(const cuda::Session& session, const test::ProductCase& t, Numerics::Multiply multiply) {
  test::DrawnProduct product(session.context(), t, DType::f32, DType::f32, 1);
  // fp32's error is near 1e-7. TF32's would be near 3e-4, which reveals its accidental use.
  const double acc = multiply == Numerics::Multiply::fp32 ? 2.8e-6 : 5.6e-3;
  return product.check("cublas", acc, 0, [&] {
    session.context().cublas->gemm(
        t.m, t.n, t.k, {product.a().floats(), product.a().ld, t.trans_a, product.a().elems / t.batch},
        {product.b().floats(), product.b().ld, t.trans_b, product.b_step()}, reinterpret_cast<float*>(product.y()),
        product.y_ld(), t.in_place ? t.residual_by : 0, t.batch, t.m * product.y_ld(), multiply);
  }) / std::sqrt(static_cast<double>(t.k));
}

const test::ProductCase cases[] = {
    {.m = 64, .n = 96, .k = 128, .trans_b = false},
    {.m = 33, .n = 7, .k = 65, .between = 3, .between_y = 3, .in_place = true},
    {.m = 5,
     .n = 130,
     .k = 31,
     .trans_a = true,
     .trans_b = false,
     .between = 1,
     .between_y = 1,
     .in_place = true,
     .residual_by = 0.5F},
    {.m = 17, .n = 19, .k = 23, .trans_a = true, .between = 5, .between_y = 5},
    {.m = 1, .n = 100, .k = 50, .trans_b = false, .batch = 3},
    {.m = 40, .n = 12, .k = 9, .batch = 5, .one_b = true, .between = 2, .between_y = 2},
    {.m = 12, .n = 49, .k = 36, .trans_b = false, .batch = 7, .in_place = true},
    {.m = 1, .n = 1, .k = 1, .trans_b = false},
};

DEVICE_CASE("cuda/cublas/products_fp32") {
  REQUIRE_MESSAGE(cuda::cublas_unavailable_reason(0).empty(), cuda::cublas_unavailable_reason(0));
  const cuda::Session session(0, true);
  for (const test::ProductCase& t : cases) CHECK(error_of(session, t, Numerics::Multiply::fp32) < 1e-6);
}

DEVICE_CASE("cuda/cublas/products_tf32") {
  REQUIRE_MESSAGE(cuda::cublas_unavailable_reason(0).empty(), cuda::cublas_unavailable_reason(0));
  constexpr auto tf32 = Numerics::Multiply::tf32;
  const cuda::Session session(0, true);
  for (const test::ProductCase& t : cases) CHECK(error_of(session, t, tf32) < 2e-3);
  // Sizes for tensor cores: the TF32 setting reaches cuBLAS.
  CHECK(error_of(session, {.m = 256, .n = 256, .k = 256, .trans_b = false}, tf32) > 1e-5);
}

/// Captures the work that `work` queues as a separate graph.
cuda::GraphExec captured(const cuda::Session& session, const std::function<void()>& work) {
  cuda::GraphRecorder recorder;
  recorder.capture(session.stream(), work);
  return cuda::GraphExec(recorder);
}

DEVICE_CASE("cuda/cublas/repeats_to_the_bit_in_a_graph") {
  REQUIRE_MESSAGE(cuda::cublas_unavailable_reason(0).empty(), cuda::cublas_unavailable_reason(0));
  const cuda::Session session(0, true);
  constexpr int m = 64, n = 49, k = 4608;  // few tiles and a large k, for which cuBLAS uses split-K
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

TEST_CASE("cuda/nvjpeg/missing_library_says_what_to_do") {
  CHECK(cuda::load_nvjpeg("/nowhere/libnvjpeg.so.13").reason.find("nvJPEG could not be loaded from LENSLET_NVJPEG=") ==
        0);
  const cuda::NvjpegLibrary library = cuda::load_nvjpeg("libm.so.6");
  CHECK((library.decode == nullptr));
  CHECK(library.reason.find("libm.so.6 lacks nvjpegGetProperty, ") == 0);
}

}  // namespace
}  // namespace lenslet
