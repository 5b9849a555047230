#include "base/thread_pool.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/cgroup_quota.h"

namespace lenslet {
namespace {

TEST_CASE("thread_pool/every_index_once") {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    CHECK(pool.threads() == threads);
    for (const std::int64_t count : {0, 1, 2, 7, 64, 1000, 12345}) {
      for (const std::int64_t grain : {0, 1, 3, 64, 1000, 100000}) {
        if (count / std::max<std::int64_t>(grain, 1) > 2000) continue;
        // Plain ints: the pool promises that no two threads write one element, and TSan checks it.
        std::vector<int> hits(static_cast<std::size_t>(count), 0);
        std::atomic<bool> bad_piece{false};
        pool.parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
          if (begin >= end || end - begin > std::max<std::int64_t>(grain, 1) || worker < 0 || worker >= threads)
            bad_piece = true;
          for (std::int64_t i = begin; i < end; ++i) ++hits[static_cast<std::size_t>(i)];
        });
        CAPTURE(threads);
        CAPTURE(count);
        CAPTURE(grain);
        CHECK_FALSE(bad_piece);
        CHECK(std::accumulate(hits.begin(), hits.end(), std::int64_t{0}) == count);
        CHECK(std::all_of(hits.begin(), hits.end(), [](int h) { return h == 1; }));
      }
    }
  }
}

TEST_CASE("thread_pool/loops_see_what_earlier_loops_wrote") {
  // Each loop reads what another worker may have written in the previous loop. A missing edge is a race for TSan, and a
  // late worker that runs a piece of an old loop would count twice.
  ThreadPool pool(4);
  constexpr std::int64_t n = 64;
  std::vector<std::int64_t> a(n, 0), b(n, 0);
  constexpr int loops = 3000;
  for (int loop = 0; loop < loops; ++loop) {
    pool.parallel_for(n, 4, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i)
        b[static_cast<std::size_t>(i)] = a[static_cast<std::size_t>((i + 17) % n)] + 1;
    });
    std::swap(a, b);
  }
  for (const std::int64_t value : a) CHECK(value == loops);
}

TEST_CASE("thread_pool/workers_that_sleep_are_woken") {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // much longer than the spinning time
    std::atomic<int> sum{0};
    pool.parallel_for(6, 1, [&](std::int64_t begin, std::int64_t, int) {
      std::this_thread::sleep_for(std::chrono::microseconds(300));  // so that the caller sleeps at the end, too
      sum += static_cast<int>(begin);
    });
    CHECK(sum == 15);
  }
}

TEST_CASE("thread_pool/other_threads_take_part") {
  ThreadPool pool(2);
  std::atomic<int> inside{0};
  std::atomic<bool> met{false};
  // Each piece waits for the other, so two threads must run them at once.
  pool.parallel_for(2, 1, [&](std::int64_t, std::int64_t, int) {
    ++inside;
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (inside < 2 && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
    if (inside == 2) met = true;
  });
  CHECK(met);
}

TEST_CASE("thread_pool/worker_scratch_is_not_shared") {
  ThreadPool pool(4);
  std::vector<std::vector<int>> scratch(4, std::vector<int>(16));
  std::atomic<int> wrong{0};
  pool.parallel_for(400, 1, [&](std::int64_t begin, std::int64_t, int worker) {
    auto& mine = scratch[static_cast<std::size_t>(worker)];
    for (int& v : mine) v = static_cast<int>(begin);
    for (const int v : mine)
      if (v != begin) ++wrong;
  });
  CHECK(wrong == 0);
}

TEST_CASE("thread_pool/exceptions_reach_the_caller") {
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 50; ++round) {
      std::atomic<int> running{0};
      try {
        pool.parallel_for(100, 1, [&](std::int64_t begin, std::int64_t, int) {
          ++running;
          if (begin % 10 == 3) {
            --running;
            throw std::runtime_error("piece " + std::to_string(begin));
          }
          --running;
        });
        FAIL("nothing was thrown");
      } catch (const std::runtime_error& e) {
        CHECK(std::string(e.what()).substr(0, 6) == "piece ");
        CHECK(running == 0);  // all parts ended
      }
      // The pool still works.
      std::atomic<int> sum{0};
      pool.parallel_for(10, 1, [&](std::int64_t begin, std::int64_t, int) { sum += static_cast<int>(begin); });
      CHECK(sum == 45);
    }
  }
}

TEST_CASE("thread_pool/pools_are_independent") {
  std::vector<std::jthread> users;
  std::atomic<int> wrong{0};
  for (int u = 0; u < 3; ++u) {
    users.emplace_back([&wrong] {
      for (int round = 0; round < 20; ++round) {
        ThreadPool pool(2);
        std::atomic<std::int64_t> sum{0};
        for (int loop = 0; loop < 20; ++loop)
          pool.parallel_for(50, 5, [&](std::int64_t begin, std::int64_t end, int) { sum += end - begin; });
        if (sum != 20 * 50) ++wrong;
      }
    });
  }
  users.clear();
  CHECK(wrong == 0);
}

TEST_CASE("thread_pool/unused_pools_end") {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);
  const ThreadPool none(0);
  CHECK(none.threads() == 1);
}

/// A folder that is removed with its owner.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lenslet-test-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((path / file).parent_path());
    std::ofstream(path / file) << text;
  }
  std::filesystem::path path;
};

double quota(const TemporaryFolder& root, const std::string& own) {
  std::istringstream text(own);
  return cgroup_cpu_quota(root.path.string(), text);
}

TEST_CASE("available_cores/cgroup_v2") {
  const TemporaryFolder root;
  CHECK(quota(root, "0::/\n") == 0);
  root.write("a/b/cpu.max", "max 100000\n");
  CHECK(quota(root, "0::/a/b\n") == 0);
  root.write("a/cpu.max", "250000 100000\n");  // a parent's limit applies as well
  CHECK(quota(root, "0::/a/b\n") == 2.5);
  root.write("a/b/cpu.max", "50000 100000\n");
  CHECK(quota(root, "0::/a/b\n") == 0.5);
  CHECK(quota(root, "0::/a\n") == 2.5);
  root.write("cpu.max", "100000 100000\n");  // inside a container the named path is often missing
  CHECK(quota(root, "0::/elsewhere/entirely\n") == 1);
  CHECK(quota(root, "0::/../../outside\n") == 1);
  root.write("cpu.max", "nonsense");
  CHECK(quota(root, "0::/\n") == 0);
}

TEST_CASE("available_cores/cgroup_v1") {
  const TemporaryFolder root;
  root.write("cpu,cpuacct/job/cpu.cfs_quota_us", "150000\n");
  root.write("cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  CHECK(quota(root, "12:memory:/job\n4:cpu,cpuacct:/job\n") == 1.5);
  CHECK(quota(root, "12:memory:/job\n") == 0);
  CHECK(quota(root, "7:cpuset:/job\n") == 0);
  root.write("cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  CHECK(quota(root, "4:cpu,cpuacct:/job\n") == 0);
  CHECK(quota(root, "garbage\n::\n1\n") == 0);
}

TEST_CASE("available_cores/at_least_one") {
  CHECK(available_cores() >= 1);
  CHECK(available_cores() <= static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
}

}  // namespace
}  // namespace lenslet
