#include "lenslet/device.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "base/cuda/check.h"
#include "base/device_profile.h"
#include "lenslet/error.h"
#include "tests/cuda/device_case.h"

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
  try {
    CUDA_CHECK(cudaSetDevice(-1));  // refused with and without a driver
    FAIL("device -1 was accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::device);
    const std::string text = error.what();
    CHECK(text.find("device_test.cpp:") != std::string::npos);
    CHECK(text.find("cudaSetDevice(-1): cudaError") != std::string::npos);
    CHECK(text.find('\n') == std::string::npos);
  }
}

DEVICE_CASE("cuda/check/failure_is_reported_once") {
  CHECK_THROWS_AS(CUDA_CHECK(cudaSetDevice(-1)), Error);
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
