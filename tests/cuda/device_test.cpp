#include "lenslet/device.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "base/cuda/check.h"
#include "base/device_profile.h"
#include "lenslet/error.h"
#include "tests/cuda/device_case.h"
#include "tests/expect_error.h"

namespace lenslet {
namespace {

TEST_CASE("cuda/query/agrees_with_itself") {
  const DeviceReport report = query_devices();
  REQUIRE(!report.devices.empty());
  CHECK(report.devices.front().id == "cpu");
  CHECK(report.devices.front().usable);
  CHECK(report.cuda.built);
  CHECK(!report.cuda.runtime.empty());
  const bool any_usable = std::any_of(report.devices.begin(), report.devices.end(), [](const DeviceInfo& device) {
    return device.id.starts_with("cuda:") && device.usable;
  });
  CHECK(any_usable == report.cuda.reason.empty());
  for (const DeviceInfo& device : report.devices) CHECK(device.usable == device.reason.empty());
}

TEST_CASE("cuda/check/failure_names_file_and_call") {
  const auto refused = [] { CUDA_CHECK(cudaSetDevice(-1)); };  // works with and without a driver
  for (const char* const part : {"device_test.cpp:", "cudaSetDevice(-1): cudaError"})
    test::check_error(ErrorKind::device, part, refused);
}

DEVICE_CASE("cuda/check/failure_is_reported_once") {
  test::check_error(ErrorKind::device, "cudaSetDevice(-1): cudaErrorInvalidDevice",
                    [] { CUDA_CHECK(cudaSetDevice(-1)); });
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

DEVICE_CASE("cuda/profile/clusters_fill_whole_multiples") {
  const DeviceProfile profile = cuda::device_profile(0);
  for (std::size_t blocks = 2; blocks < profile.cluster_units.size(); ++blocks) {
    const int units = profile.cluster_units[blocks];
    MESSAGE("clusters of " << blocks << " fill " << units << " of " << profile.units << " multiprocessors");
    CHECK((units > 0) == profile.clusters);
    CHECK(units % static_cast<int>(blocks) == 0);
    CHECK(units <= profile.units);
  }
}

// The choice of kernels relies on these: if one were wrong, wgmma's cases would be skipped and the others pass.
DEVICE_CASE("cuda/profile/what_a_hopper_has") {
  const DeviceProfile profile = cuda::device_profile(0);
  const bool has_code = query_devices().cuda.compiled.find("90a") != std::string::npos;
  if (!test::can_run("cuda/profile/what_a_hopper_has", profile.capability != 90 ? "it is no Hopper"
                                                       : has_code               ? ""
                                                                                : "this build has no code for sm_90a"))
    return;
  CHECK(profile.clusters);
  CHECK(test::no_wgmma() == "");
  for (std::size_t blocks = 2; blocks < profile.cluster_units.size(); ++blocks)
    CHECK(profile.cluster_units[blocks] >= profile.units / 2);
  CHECK(profile.shared_bytes_per_block == 227 << 10);
  CHECK(profile.shared_bytes_per_unit == 228 << 10);
  CHECK(profile.tf32_flops_per_us > 5 * profile.fp32_flops_per_us);
  CHECK(profile.half_flops_per_us > 1.9 * profile.tf32_flops_per_us);
  CHECK(profile.bytes_per_us > 1.5e6);
  CHECK(profile.cublas_reason == "");
}

DEVICE_CASE("cuda/query/first_device") {
  const DeviceReport report = query_devices();
  REQUIRE(report.devices.size() > 1);
  const DeviceInfo& device = report.devices[1];
  MESSAGE(device.id << ": " << device.name << ", " << device.architecture << ", " << device.cores
                    << " multiprocessors, " << (device.memory_bytes >> 20) << " MiB, driver " << report.cuda.driver
                    << ", runtime " << report.cuda.runtime << ", built for " << report.cuda.compiled);
  CHECK(device.architecture.starts_with("sm_"));
  CHECK(device.cores > 0);
  CHECK(device.memory_bytes > 0);
  CHECK(!device.name.empty());
}

}  // namespace
}  // namespace lenslet
