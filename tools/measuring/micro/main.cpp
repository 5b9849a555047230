// lenslet-microbench: products and thread pools beside those of other libraries. Select with
//   lenslet-microbench --benchmark_filter=gemm/.*/threads:1
// Convolution algorithms: `lenslet bench conv --device cpu --all-algorithms`.
#include <benchmark/benchmark.h>

namespace lenslet::bench {
void register_gemm();
void register_pools();
}  // namespace lenslet::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  lenslet::bench::register_gemm();
  lenslet::bench::register_pools();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
