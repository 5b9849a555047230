// lenslet-bench-gemm-cute: times gemm_cute beside the best algorithm of cuBLASLt and prints CSV. A row with * is the
// plan that the cost model chooses. --all adds every other plan, to which the constants of ops/gemm/cute/plan.cpp are
// fitted; stderr then shows the model's loss. --plan=TEXT selects plans by their text. cuBLASLt's best is the fastest
// of those that its heuristic lists first. Both add a bias by column and apply ReLU; cuBLASLt's bias has y's type, ours
// is float32. B counts as weights, which gemm_cute may read before the previous kernel ends, as in a network.
//
// Each is a CUDA graph of many products over enough copies of the operands to exceed L2. Times are medians of replays,
// in which a plan and cuBLASLt's best take turns. The floor is the product's bound at an H200's measured rates
// (base/device_profile.cpp).

#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/cuda/graph.h"
#include "base/cuda/session.h"
#include "ops/core/config_text.h"
#include "ops/gemm/cute/gemm_cute.h"
#include "ops/gemm/gemm_cuda.h"
#include "tools/measuring/cuda/command_line.h"
#include "tools/measuring/cuda/config_timer.h"
#include "tools/measuring/samples.h"

namespace lenslet {
namespace {

using namespace cuda;
using Multiply = Numerics::Multiply;

struct Size {
  std::int64_t m, n, k;
};
constexpr Size squares[] = {{256, 256, 256},    {512, 512, 512},    {1024, 1024, 1024}, {2048, 2048, 2048},
                            {4096, 4096, 4096}, {6144, 6144, 6144}, {8192, 8192, 8192}};
constexpr Size layers[] = {{1, 1000, 2048},  {8, 1000, 2048},   {16, 1000, 2048},  {64, 1000, 2048},  {1, 4096, 4096},
                           {8, 4096, 4096},  {16, 4096, 4096},  {32, 4096, 4096},  {64, 4096, 4096},  {1, 4096, 25088},
                           {8, 4096, 25088}, {16, 4096, 25088}, {32, 4096, 25088}, {64, 4096, 25088}, {1, 1000, 1280},
                           {8, 1000, 1280},  {64, 1000, 1280},  {1, 1000, 4096},   {64, 1000, 4096}};
// 1x1 convolutions of ResNet-50 at batch 1, 4 and 64.
constexpr Size convolutions[] = {{3136, 64, 64},    {3136, 256, 64},    {3136, 64, 256},  {784, 512, 128},
                                 {784, 128, 512},   {196, 1024, 256},   {196, 256, 1024}, {49, 2048, 512},
                                 {49, 512, 2048},   {12544, 64, 64},    {12544, 256, 64}, {12544, 64, 256},
                                 {3136, 512, 128},  {784, 1024, 256},   {196, 2048, 512}, {200704, 256, 64},
                                 {50176, 512, 128}, {12544, 1024, 256}, {3136, 2048, 512}};
constexpr Size skinny[] = {{8192, 64, 8192}, {64, 8192, 8192}, {128, 128, 65536}, {65536, 128, 128}, {100, 1000, 1000}};

struct Types {
  std::string_view name;
  Multiply multiply;
  DType x, y;
  cudaDataType_t lt;
  cublasComputeType_t compute;
};
constexpr Types types[] = {
    {"bf16", Multiply::bf16, DType::bf16, DType::bf16, CUDA_R_16BF, CUBLAS_COMPUTE_32F},
    {"fp16", Multiply::fp16, DType::f16, DType::f16, CUDA_R_16F, CUBLAS_COMPUTE_32F},
    {"tf32", Multiply::tf32, DType::f32, DType::f32, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32},
    {"fp32", Multiply::fp32, DType::f32, DType::f32, CUDA_R_32F, CUBLAS_COMPUTE_32F},
};

/// The functions of libcublasLt used here, loaded at run time: the bench does not link it either.
struct Lt {
  decltype(&::cublasLtCreate) create;
  decltype(&::cublasLtMatmul) matmul;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&::cublasLtMatmulDescCreate) desc_create;
  decltype(&::cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&::cublasLtMatrixLayoutCreate) layout_create;
  decltype(&::cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) preference_set;
  cublasLtHandle_t handle = nullptr;

  Lt() {
    void* library = nullptr;
    const char* const named = std::getenv("LENSLET_CUBLASLT");
    for (const char* name : {named, "libcublasLt.so.13", "libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so"})
      if (library == nullptr && name != nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error("no libcublasLt: set LENSLET_CUBLASLT to its file");
    const auto find = [&](const char* name, auto& entry) {
      entry = reinterpret_cast<std::remove_reference_t<decltype(entry)>>(dlsym(library, name));
      if (entry == nullptr) throw std::runtime_error(fmt::format("libcublasLt has no {}", name));
    };
    find("cublasLtCreate", create);
    find("cublasLtMatmul", matmul);
    find("cublasLtMatmulAlgoGetHeuristic", heuristic);
    find("cublasLtMatmulDescCreate", desc_create);
    find("cublasLtMatmulDescSetAttribute", desc_set);
    find("cublasLtMatrixLayoutCreate", layout_create);
    find("cublasLtMatmulPreferenceCreate", preference_create);
    find("cublasLtMatmulPreferenceSetAttribute", preference_set);
    good(create(&handle));
  }
  static void good(cublasStatus_t status) {
    if (status != CUBLAS_STATUS_SUCCESS) throw std::runtime_error(fmt::format("cuBLASLt: status {}", int{status}));
  }
};

constexpr int replays = 5;

/// A graph that repeats a product: queue(context, turn), turn counting up from 0.
class Repeated {
 public:
  using Queue = std::function<void(const Context&, int)>;

  /// `capture`: queue() launches kernels itself, so its stream is captured.
  Repeated(Session& session, double expected_us, const Queue& queue, bool capture)
      : session_(session), runs_(std::clamp(static_cast<int>(2000 / expected_us), 4, 200)) {
    GraphRecorder recorder;
    if (capture)
      recorder.capture(session.stream(), [&] {
        for (int i = 0; i < runs_; ++i) queue(session.context(), i);
      });
    else
      session.record(recorder, [&](const Context& context) {
        for (int i = 0; i < runs_; ++i) queue(context, i);
      });
    graph_.emplace(recorder);
  }

  /// Time of one product in us.
  double replay() const {
    Event start, stop;
    start.record(session_.stream());
    graph_->launch(session_.stream());
    stop.record(session_.stream());
    stop.synchronize();
    return 1e3 * static_cast<double>(stop.ms_since(start)) / runs_;
  }

 private:
  Session& session_;
  int runs_;
  std::optional<GraphExec> graph_;
};

class Bench {
 public:
  /// Measures the chosen plan; with `all` also the others, or those whose text contains `wanted`.
  Bench(bool all, std::string_view wanted)
      : all_(all), wanted_(wanted), session_(0), device_(device_profile(0)), workspace_(std::size_t{256} << 20) {}

  void measure(std::string_view set, const Size& s, const Types& type) {
    const auto vector = static_cast<std::int64_t>(16 / dtype_bytes(type.x));
    CuteProblem p{.multiply = type.multiply, .y_type = type.y, .m = s.m, .n = s.n, .k = s.k};
    p.aligned = s.k % vector == 0;
    const double flops_rate = type.multiply == Multiply::fp32   ? device_.fp32_flops_per_us
                              : type.multiply == Multiply::tf32 ? device_.tf32_flops_per_us
                                                                : 2 * device_.tf32_flops_per_us;
    const double floor_us = std::max(p.flops() / flops_rate, p.bytes() / device_.bytes_per_us);
    // Twice the L2, at most 4 GiB.
    const double l2 = static_cast<double>(device_.l2_bytes);
    copies_ = std::clamp(static_cast<int>(2 * l2 / p.bytes()) + 1, 1, 512);
    const auto many = [&](DType of, std::int64_t rows, std::int64_t columns) {
      return bench::drawn_on_device(of, copies_ * padded(rows * columns));
    };
    const auto a = many(type.x, s.m, s.k), b = many(type.x, s.n, s.k), bias = bench::drawn_on_device(DType::f32, s.n);
    auto y = many(type.y, s.m, s.n);
    const Operands operands{a.data(), b.data(), y.data(), bias.data()};

    const std::unique_ptr<Repeated> lt = best_lt(s, type, operands, 4 * floor_us + 5);
    const CutePlan taken = plan_cute(p, device_);
    double best_us = INFINITY, best_lt_us = NAN, taken_us = NAN;
    std::string best;
    for (const CutePlan& plan : cute_plans(p, device_)) {
      const bool is_taken = plan == taken;
      ConfigWriter config;
      plan.write(config);
      const bool is_wanted = !wanted_.empty() && config.str().find(wanted_) != std::string::npos;
      if (wanted_.empty() ? !is_taken && !all_ : !is_wanted) continue;
      if (cute_workspace_bytes(p, plan) > workspace_.bytes()) continue;
      const double estimated_us = cute_plan_us(p, plan, device_);
      if (!is_taken && !is_wanted && estimated_us > 4 * cute_plan_us(p, taken, device_)) continue;
      const auto [us, lt_us] = measure_beside(lt.get(), estimated_us, [&](const Context& context, int turn) {
        gemm_cute(context, cute_call(operands, this->at(turn, s, type), s, p), plan);
      });
      // Few rows are handled below.
      const bool is_ours = is_taken && !has_few_rows(s, type);
      if (is_ours) taken_us = us;
      if (us < best_us) {
        best_us = us;
        best_lt_us = lt_us;
        best = config.str();
      }
      fmt::print("{}{},{},{}x{}x{},{},{:.2f},{:.2f},{:.2f},{:.1f},{:.2f},{:.2f}\n", is_ours ? "*" : "", set, type.name,
                 s.m, s.n, s.k, config.str(), us, estimated_us, floor_us, 100 * floor_us / us, lt_us, us / lt_us);
      std::fflush(stdout);
    }
    const int eights = is_half(type) ? few_rows_mma_eights(s.m, s.n) : 0;
    const auto few = [&](const std::string& config, bool is_taken,
                         const std::function<void(const Context&, int)>& queue) {
      if (!all_ && !is_taken && wanted_.empty()) return;
      const auto [us, lt_us] = measure_beside(lt.get(), floor_us + 2, queue);
      if (is_taken) taken_us = us;
      if (us < best_us) {
        best_us = us;
        best_lt_us = lt_us;
        best = config;
      }
      fmt::print("{}{},{},{}x{}x{},{},{:.2f},,{:.2f},{:.1f},{:.2f},{:.2f}\n", is_taken ? "*" : "", set, type.name, s.m,
                 s.n, s.k, config, us, floor_us, 100 * floor_us / us, lt_us, us / lt_us);
      std::fflush(stdout);
    };
    if (s.m <= most_few_rows)
      for (const int split_k : {1, 2, 4, 8})
        few(fmt::format("few_rows split_k={}", split_k),
            eights == 0 && split_k == few_rows_split_k(s.n, reference_gpu().units),
            [&](const Context& context, int turn) {
              const Turn at = this->at(turn, s, type);
              if (is_half(type)) return gemm_few_rows_half(context, cute_call(operands, at, s, p), split_k);
              MatrixProblem problem;
              problem.gemm_m = s.m;
              problem.gemm_n = s.n;
              problem.gemm_k = s.k;
              problem.c_col = 1;
              problem.activation = {Activation::Kind::relu, 0, 0};
              const auto floats = [](const std::byte* from) { return reinterpret_cast<const float*>(from); };
              gemm_few_rows(context,
                            {.problem = problem,
                             .a = {floats(operands.a + at.a), s.k},
                             .b = {floats(operands.b + at.b), s.k, true},
                             .b_known = true,
                             .c = floats(operands.bias),
                             .y = reinterpret_cast<float*>(operands.y + at.y)},
                            split_k, true);
            });
    if (is_half(type) && s.m <= most_few_rows_mma)
      for (const int with : {1, 2})
        few(fmt::format("few_rows_mma eights={}", with), with == eights, [&](const Context& context, int turn) {
          gemm_few_rows_mma(context, cute_call(operands, this->at(turn, s, type), s, p), with);
        });
    if (all_)
      fmt::print(stderr, "{} {}x{}x{}: taken {:.2f} of the best, which is {:.2f} of cuBLASLt: {}\n", type.name, s.m,
                 s.n, s.k, taken_us / best_us, best_us / best_lt_us, best);
  }

 private:
  struct Operands {
    const std::byte *a, *b;
    std::byte* y;
    const std::byte* bias;
  };
  struct Turn {
    std::size_t a, b, y;
  };

  static bool is_half(const Types& type) { return dtype_bytes(type.x) == 2; }
  /// Whether the library uses few_rows or few_rows_mma.
  static bool has_few_rows(const Size& s, const Types& type) {
    return s.m <= most_few_rows || (is_half(type) && few_rows_mma_eights(s.m, s.n) > 0);
  }
  CuteCall cute_call(const Operands& operands, const Turn& at, const Size& s, const CuteProblem& problem) {
    return {.problem = problem,
            .a = {operands.a + at.a, s.k, 0},
            .b = {operands.b + at.b, s.k, 0},
            .b_known = true,
            .c = reinterpret_cast<const float*>(operands.bias),
            .c_col = 1,
            .activation = {Activation::Kind::relu, 0, 0},
            .y = operands.y + at.y,
            .workspace = reinterpret_cast<float*>(workspace_.data())};
  }

  /// Elements of a copy, rounded up to 256 bytes.
  static std::int64_t padded(std::int64_t elems) { return (elems + 127) / 128 * 128; }
  Turn at(int turn, const Size& s, const Types& type) const {
    const auto bytes = [&](std::int64_t elems, DType of) {
      return static_cast<std::size_t>(turn % copies_ * padded(elems)) * dtype_bytes(of);
    };
    return {bytes(s.m * s.k, type.x), bytes(s.n * s.k, type.x), bytes(s.m * s.n, type.y)};
  }

  struct Pair {
    double us, lt_us;
  };
  /// Alternates replays of both: after 100 ms of large products the power limit lowers the clock, and whatever ran
  /// first would look 10 % faster.
  Pair measure_beside(const Repeated* lt, double expected_us, const Repeated::Queue& queue) {
    const Repeated ours(session_, expected_us, queue, false);
    std::vector<double> us, lt_us;
    for (int i = 0; i < replays + 1; ++i) {
      const double one = ours.replay(), other = lt == nullptr ? NAN : lt->replay();
      if (i == 0) continue;
      us.push_back(one);
      lt_us.push_back(other);
    }
    return {tool::quantiles(us).median, tool::quantiles(lt_us).median};
  }

  /// The fastest of the algorithms that the heuristic lists first, or null if it lists none.
  ///
  /// Column-major: y^T [n,m] = (B as [k,n])^T * (A as [k,m]).
  std::unique_ptr<Repeated> best_lt(const Size& s, const Types& type, const Operands& operands, double expected_us) {
    cublasLtMatmulDesc_t desc = nullptr;
    Lt::good(lt_.desc_create(&desc, type.compute, CUDA_R_32F));
    const auto set = [&](cublasLtMatmulDescAttributes_t which, const auto& value) {
      Lt::good(lt_.desc_set(desc, which, &value, sizeof value));
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU_BIAS);
    const void* bias = operands.bias;  // float bits: any values will do
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    const auto layout = [&](std::int64_t rows, std::int64_t columns) {
      cublasLtMatrixLayout_t made = nullptr;
      Lt::good(lt_.layout_create(&made, type.lt, static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns),
                                 rows));
      return made;
    };
    const cublasLtMatrixLayout_t b = layout(s.k, s.n), a = layout(s.k, s.m), y = layout(s.n, s.m);
    cublasLtMatmulPreference_t preference = nullptr;
    Lt::good(lt_.preference_create(&preference));
    const std::size_t most = std::size_t{64} << 20;
    Lt::good(lt_.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most));
    cublasLtMatmulHeuristicResult_t found[8];
    int count = 0;
    if (lt_.heuristic(lt_.handle, desc, b, a, y, y, preference, 8, found, &count) != CUBLAS_STATUS_SUCCESS)
      return nullptr;
    std::vector<std::unique_ptr<Repeated>> all;
    for (int i = 0; i < count; ++i) {
      if (found[i].state != CUBLAS_STATUS_SUCCESS) continue;
      const auto queue = [&](const Context& context, int turn) {
        const float one = 1, zero = 0;
        const Turn at = this->at(turn, s, type);
        Lt::good(lt_.matmul(lt_.handle, desc, &one, operands.b + at.b, b, operands.a + at.a, a, &zero,
                            operands.y + at.y, y, operands.y + at.y, y, &found[i].algo, workspace_.data(), most,
                            context.stream));
      };
      queue(session_.context(), 0);  // loads the kernel, which is not allowed in a capture
      session_.stream().synchronize();
      all.push_back(std::make_unique<Repeated>(session_, expected_us, queue, true));
    }
    std::vector<double> least(all.size(), INFINITY);
    for (int round = 0; round < replays; ++round)
      for (std::size_t i = 0; i < all.size(); ++i) least[i] = std::min(least[i], all[i]->replay());
    if (all.empty()) return nullptr;
    return std::move(all[static_cast<std::size_t>(std::min_element(least.begin(), least.end()) - least.begin())]);
  }

  bool all_;
  std::string_view wanted_;
  Session session_;
  DeviceProfile device_;
  DeviceBuffer<std::byte> workspace_;
  Lt lt_;
  int copies_ = 1;
};

void run_all(std::span<const std::string_view> arguments) {
  bool all = false;
  std::string_view only, set, plan;
  for (const std::string_view argument : arguments) {
    if (argument == "--all")
      all = true;
    else if (argument.starts_with("--type="))
      only = argument.substr(7);
    else if (argument.starts_with("--set="))
      set = argument.substr(6);
    else if (argument.starts_with("--plan="))
      plan = argument.substr(7);
    else
      throw std::runtime_error(
          "usage: lenslet-bench-gemm-cute [--all] [--type=bf16|fp16|tf32|fp32] "
          "[--set=squares|layers|convolutions|skinny] [--plan='core=wgmma tile=128x256 cluster=2']");
  }
  Bench bench(all, plan);
  fmt::print("set,type,mxnxk,plan,us,estimated_us,floor_us,percent_of_floor,cublaslt_us,ratio\n");
  for (const Types& type : types) {
    if (!only.empty() && only != type.name) continue;
    const auto measure = [&](std::string_view name, const auto& sizes) {
      if (!set.empty() && set != name) return;
      for (const Size& size : sizes) bench.measure(name, size, type);
    };
    measure("squares", squares);
    measure("layers", layers);
    measure("convolutions", convolutions);
    measure("skinny", skinny);
  }
}

}  // namespace
}  // namespace lenslet

int main(int argc, char** argv) { return lenslet::bench::run("lenslet-bench-gemm-cute", argc, argv, lenslet::run_all); }
