// LiDAR-like scans: properties of any street.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <tuple>

#include "lenslet/error.h"
#include "tests/expect_error.h"
#include "tools/scans/lidar_scan.h"

using namespace lenslet;
using namespace lenslet::tool;

TEST_CASE("scan/points_of_a_street") {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    const Tensor scan = lidar_scan({.rings = 32, .steps = 500, .seed = seed});
    const auto values = scan.values<float>();
    const std::int64_t points = scan.shape()[0];
    REQUIRE(scan.shape() == Shape{points, 4});
    CHECK(points > 32 * 500 / 2);
    CHECK(points < 32 * 500);
    std::int64_t on_ground = 0, above = 0;
    for (std::int64_t i = 0; i < points; ++i) {
      const float* const p = values.data() + 4 * i;
      // Nothing below the ground, except for noise along the ray; nothing beyond the range; reflectance in 0 to 1.
      CHECK_MESSAGE(p[2] > -1.73F - 0.1F, "point ", i, " of seed ", seed);
      CHECK_MESSAGE(std::hypot(p[0], p[1], p[2]) < 100.2F, "point ", i, " of seed ", seed);
      CHECK_MESSAGE((p[3] >= 0 && p[3] <= 1), "point ", i, " of seed ", seed);
      on_ground += p[2] < -1.6F ? 1 : 0;
      above += p[2] > -1.2F ? 1 : 0;
    }
    CHECK(on_ground > points / 5);
    CHECK(above > points / 10);
  }
}

TEST_CASE("scan/few_cells_have_points") {
  const Tensor scan = lidar_scan({});
  const auto values = scan.values<float>();
  std::set<std::tuple<int, int, int>> cells;  // of 5 x 5 x 10 cm, as in SECOND
  for (std::int64_t i = 0; i < scan.shape()[0]; ++i) {
    const float* const p = values.data() + 4 * i;
    const auto cell = [](float at, float size) { return static_cast<int>(std::floor(at / size)); };
    cells.emplace(cell(p[0], 0.05F), cell(p[1], 0.05F), cell(p[2], 0.1F));
  }
  CHECK(cells.size() > 20'000);
  CHECK(cells.size() < 120'000);
}

TEST_CASE("scan/seeds_and_sweeps") {
  const ScanOptions options{.rings = 4, .steps = 200};
  const Tensor once = lidar_scan(options), again = lidar_scan(options);
  REQUIRE(once.shape() == again.shape());
  CHECK(std::memcmp(once.data(), again.data(), once.bytes()) == 0);
  ScanOptions other = options;
  other.seed = 2;
  const Tensor street = lidar_scan(other);
  CHECK((street.shape() != once.shape() || std::memcmp(once.data(), street.data(), once.bytes()) != 0));
  other.sweeps = 3;
  other.columns = 5;
  const Tensor sweeps = lidar_scan(other);
  REQUIRE(sweeps.shape()[1] == 5);
  CHECK(sweeps.shape()[0] > 2 * street.shape()[0]);
  std::set<float> seconds;
  for (std::int64_t i = 0; i < sweeps.shape()[0]; ++i)
    seconds.insert(sweeps.values<float>()[static_cast<std::size_t>(5 * i + 4)]);
  CHECK(seconds == std::set<float>{0.0F, 0.1F, 0.2F});
}

TEST_CASE("scan/refusals") {
  CHECK_ERROR(lidar_scan({.rings = 0}), invalid_argument, "a scan has at least one ring, one step and one sweep");
  CHECK_ERROR(lidar_scan({.sweeps = -1}), invalid_argument, "a scan has at least one ring, one step and one sweep");
  CHECK_ERROR(lidar_scan({.columns = 6}), invalid_argument, "points have 4 or 5 columns, not 6");
  CHECK_ERROR(lidar_scan({.rings = 1 << 20, .steps = 1 << 20, .sweeps = 1 << 20}), invalid_argument,
              "are more than 2^26 shots");
}
