// lenslet-microbench: products, thread pools and convolution algorithms by themselves. Pick with
//   lenslet-microbench --benchmark_filter=gemm/.*/threads:1
#include <benchmark/benchmark.h>

namespace lenslet::bench {
void register_gemm();
void register_pools();
void register_convolutions();
}  // namespace lenslet::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  lenslet::bench::register_gemm();
  lenslet::bench::register_pools();
  lenslet::bench::register_convolutions();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
