// Fork and join: a loop with one short piece a thread, as in a network's many small layers. Names:
// pool/LIBRARY/work_us:W/threads:T; the time above W is the library's overhead.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdint>

#include "base/thread_pool.h"
#ifdef LENSLET_BENCH_OPENMP
#include <omp.h>
#endif
#ifdef LENSLET_BENCH_TBB
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#endif
#ifdef LENSLET_BENCH_PTHREADPOOL
#include <pthreadpool.h>
#endif

namespace lenslet::bench {
namespace {

void busy(std::int64_t us) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(us);
  while (std::chrono::steady_clock::now() < until) {
  }
}

void run_ours(benchmark::State& state, std::int64_t us, int threads) {
  ThreadPool pool(threads);
  for (auto _ : state) pool.parallel_for(threads, 1, [&](std::int64_t, std::int64_t, int) { busy(us); });
}

#ifdef LENSLET_BENCH_OPENMP
void run_openmp(benchmark::State& state, std::int64_t us, int threads) {
  for (auto _ : state) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int i = 0; i < threads; ++i) busy(us);
  }
}
#endif

#ifdef LENSLET_BENCH_TBB
void run_tbb(benchmark::State& state, std::int64_t us, int threads) {
  const oneapi::tbb::global_control limit(oneapi::tbb::global_control::max_allowed_parallelism,
                                          static_cast<std::size_t>(threads));
  for (auto _ : state)
    oneapi::tbb::parallel_for(
        0, threads, [&](int) { busy(us); }, oneapi::tbb::simple_partitioner());
}
#endif

#ifdef LENSLET_BENCH_PTHREADPOOL
void run_pthreadpool(benchmark::State& state, std::int64_t us, int threads) {
  pthreadpool_t pool = pthreadpool_create(static_cast<std::size_t>(threads));
  for (auto _ : state)
    pthreadpool_parallelize_1d(
        pool, [](void* work, std::size_t) { busy(*static_cast<const std::int64_t*>(work)); }, &us,
        static_cast<std::size_t>(threads), 0);
  pthreadpool_destroy(pool);
}
#endif

}  // namespace

void register_pools() {
  const auto add = [](const char* library, std::int64_t us, int threads, auto run) {
    benchmark::RegisterBenchmark(fmt::format("pool/{}/work_us:{}/threads:{}", library, us, threads).c_str(),
                                 [=](benchmark::State& state) { run(state, us, threads); })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
  };
  for (const std::int64_t us : {0, 10, 100}) {
    add("ours", us, 2, run_ours);
#ifdef LENSLET_BENCH_OPENMP
    add("openmp", us, 2, run_openmp);
#endif
#ifdef LENSLET_BENCH_TBB
    add("onetbb", us, 2, run_tbb);
#endif
#ifdef LENSLET_BENCH_PTHREADPOOL
    add("pthreadpool", us, 2, run_pthreadpool);
#endif
  }
}

}  // namespace lenslet::bench
