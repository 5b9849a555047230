// Our matrix product beside the system's BLAS libraries, on products of networks. Each library is opened at run time by
// itself, because they define the same symbols; missing ones are skipped. Names: gemm/LIBRARY/MxNxK/threads:T. The
// filters are constant: ours are packed in advance, as in a model.
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "oracle/draw.h"
#include "tools/measuring/kernel_timer.h"

namespace lenslet::bench {
namespace {

struct Size {
  std::int64_t m, n, k;
};
// 1x1 convolutions of ResNet-50, SqueezeNet 1.1 and MobileNetV2, 3x3 ones by im2col, a classifier.
constexpr Size sizes[] = {{12544, 64, 147}, {3136, 64, 64},   {3136, 256, 64}, {784, 512, 128}, {196, 256, 1024},
                          {196, 256, 2304}, {49, 2048, 512},  {49, 512, 2048}, {49, 512, 4608}, {3025, 64, 16},
                          {729, 128, 32},   {169, 1000, 512}, {12544, 96, 16}, {3136, 24, 144}, {784, 192, 32},
                          {196, 64, 384},   {49, 160, 960},   {49, 1280, 320}, {1, 1000, 2048}};

/// A product as in a network: A [m,k] computed, B [k,n] constant.
struct Operands {
  explicit Operands(const Size& s) : b(DType::f32, {s.k, s.n}), c(DType::f32, {s.m, s.n}) {
    oracle::FastEngine engine(1);
    oracle::draw(b, engine);
    const InputInfo infos[] = {{.present = true, .type = {DType::f32, {s.m, s.k}}},
                               {.present = true, .type = {DType::f32, b.shape()}, .constant = &b}};
    problem = std::make_unique<const Problem>(make_op("Gemm", "", {}, 2), infos);
    inputs = tool::drawn_inputs(*problem);
  }
  const float* a_data() const { return static_cast<const float*>(inputs[0].data()); }
  const float* b_data() const { return static_cast<const float*>(b.data()); }
  float* c_data() { return static_cast<float*>(c.data()); }

  Tensor b, c;
  std::unique_ptr<const Problem> problem;
  std::vector<Tensor> inputs;
};

void report(benchmark::State& state, const Size& s) {
  state.counters["GFLOP/s"] = benchmark::Counter(2e-9 * static_cast<double>(s.m) * static_cast<double>(s.n * s.k),
                                                 benchmark::Counter::kIsIterationInvariantRate);
}

void run_ours(benchmark::State& state, const Size& s, int threads) {
  const Operands data(s);
  ThreadPool pool(threads);
  const DeviceProfile device = cpu_profile(threads);
  const Choice choice = choose_kernel(*data.problem, {device}, "the product");
  tool::BoundCall call(*choice.kernel, *data.problem, choice.candidate, device, data.inputs);
  for (auto _ : state) call.run(pool);
  report(state, s);
}

template <typename F>
F* symbol(void* library, const char* name) {
  return library == nullptr ? nullptr : reinterpret_cast<F*>(dlsym(library, name));
}

// cblas.h: row-major 101, no transpose 111.
using CblasSgemm = void(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);
using SetThreads = void(int);
// dnnl.h: row-major.
using DnnlSgemm = int(char, char, std::int64_t, std::int64_t, std::int64_t, float, const float*, std::int64_t,
                      const float*, std::int64_t, float, float*, std::int64_t);

void run_cblas(benchmark::State& state, const Size& s, CblasSgemm* sgemm, SetThreads* set_threads, int threads) {
  Operands data(s);
  const int m = static_cast<int>(s.m), n = static_cast<int>(s.n), k = static_cast<int>(s.k);
  set_threads(threads);
  for (auto _ : state) sgemm(101, 111, 111, m, n, k, 1, data.a_data(), k, data.b_data(), n, 0, data.c_data(), n);
  report(state, s);
}

void run_dnnl(benchmark::State& state, const Size& s, DnnlSgemm* sgemm, SetThreads* set_threads, int threads) {
  Operands data(s);
  set_threads(threads);
  for (auto _ : state) sgemm('N', 'N', s.m, s.n, s.k, 1, data.a_data(), s.k, data.b_data(), s.n, 0, data.c_data(), s.n);
  report(state, s);
}

}  // namespace

void register_gemm() {
  void* const openblas = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  void* const blis = dlopen("libblis.so.4", RTLD_NOW | RTLD_LOCAL);
  void* const dnnl = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
  void* const openmp = dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL);
  auto* const openblas_sgemm = symbol<CblasSgemm>(openblas, "cblas_sgemm");
  auto* const openblas_threads = symbol<SetThreads>(openblas, "openblas_set_num_threads");
  auto* const blis_sgemm = symbol<CblasSgemm>(blis, "cblas_sgemm");
  auto* const blis_threads = symbol<SetThreads>(blis, "bli_thread_set_num_threads");
  auto* const dnnl_sgemm = symbol<DnnlSgemm>(dnnl, "dnnl_sgemm");
  auto* const omp_threads = symbol<SetThreads>(openmp, "omp_set_num_threads");

  const auto add = [](const char* library, const Size& s, int threads, auto run) {
    benchmark::RegisterBenchmark(fmt::format("gemm/{}/{}x{}x{}/threads:{}", library, s.m, s.n, s.k, threads).c_str(),
                                 run)
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
  };
  for (const int threads : {1, 2}) {
    for (const Size& s : sizes) {
      add("ours", s, threads, [=](benchmark::State& state) { run_ours(state, s, threads); });
      if (openblas_sgemm != nullptr && openblas_threads != nullptr)
        add("openblas", s, threads,
            [=](benchmark::State& state) { run_cblas(state, s, openblas_sgemm, openblas_threads, threads); });
      if (blis_sgemm != nullptr && blis_threads != nullptr)
        add("blis", s, threads,
            [=](benchmark::State& state) { run_cblas(state, s, blis_sgemm, blis_threads, threads); });
      if (dnnl_sgemm != nullptr && omp_threads != nullptr)
        add("onednn", s, threads,
            [=](benchmark::State& state) { run_dnnl(state, s, dnnl_sgemm, omp_threads, threads); });
    }
  }
}

}  // namespace lenslet::bench
