// The candidates and the rule. Figures behind the rule: docs/conv-choice.md.
#include "ops/conv/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "lenslet/error.h"
#include "ops/conv/cpu/algorithms.h"
#include "ops/conv/cuda/algorithms.h"
#include "ops/gemm/gemm.h"

namespace lenslet {

std::span<const ConvAlgorithm* const> conv_algorithms(DeviceKind device) {
  // The only list. Specialised first; `direct` takes everything and stays last. At equal cost the earlier one is
  // chosen.
  static const ConvAlgorithm* const cpu[] = {
      &conv_depthwise(),      //
      &conv_winograd_f4(),    //
      &conv_winograd_f6(),    //
      &conv_winograd_f2(),    //
      &conv_im2col(),         //
      &conv_direct_packed(),  //
      &conv_direct(),         //
  };
  if (device == DeviceKind::cpu) return cpu;
  if constexpr (cuda_built) {
    // In this order: depthwise, winograd_f4, winograd_f2, implicit_gemm, implicit_gemm_nchw, im2col_gemm, direct_tile,
    // direct_tile_padded, direct_pixel, direct_block, direct.
    static const std::vector<const ConvAlgorithm*> cuda = {
        &cuda::conv_depthwise(),           //
        &cuda::conv_winograd_f4(),         //
        &cuda::conv_winograd_f2(),         //
        &cuda::conv_implicit_gemm(),       //
        &cuda::conv_implicit_gemm_nchw(),  //
        &cuda::conv_im2col_gemm(),         //
        &cuda::conv_direct_tile(),         //
        &cuda::conv_direct_tile_padded(),  //
        &cuda::conv_direct_pixel(),        //
        &cuda::conv_direct_block(),        //
        &cuda::conv_direct(),              //
    };
    return cuda;
  }
  return {};
}

const ConvAlgorithm* find_conv_algorithm(DeviceKind device, std::string_view name) {
  for (const ConvAlgorithm* algorithm : conv_algorithms(device))
    if (algorithm->name() == name) return algorithm;
  return nullptr;
}

ConvChoice choose_conv(const ConvProblem& problem, DeviceKind device, const MachineRates& rates,
                       std::string_view forced, bool forced_where_accepted) {
  if (!forced.empty() && find_conv_algorithm(device, forced) == nullptr) {
    std::string known;
    for (const ConvAlgorithm* algorithm : conv_algorithms(device))
      known += fmt::format("{}{}", known.empty() ? "" : ", ", algorithm->name());
    throw Error(ErrorKind::invalid_argument,
                fmt::format("no convolution algorithm is called \"{}\"; there are: {}", forced, known));
  }

  ConvChoice choice;
  const ConvCandidateRow* best = nullptr;
  const ConvCandidateRow* named = nullptr;
  choice.candidates.reserve(conv_algorithms(device).size());
  for (const ConvAlgorithm* algorithm : conv_algorithms(device)) {
    ConvCandidateRow row;
    row.algorithm = algorithm;
    row.refusal = algorithm->refuse(problem).value_or("");
    if (row.refusal.empty()) row.estimated_us = algorithm->estimate_us(problem, rates);
    choice.candidates.push_back(std::move(row));
    const ConvCandidateRow& added = choice.candidates.back();
    if (added.refusal.empty() && (best == nullptr || added.estimated_us < best->estimated_us)) best = &added;
    if (algorithm->name() == forced) named = &added;
  }
  if (named != nullptr && named->refusal.empty()) {
    choice.algorithm = named->algorithm;
    choice.reason = "forced";
    return choice;
  }
  if (named != nullptr && !forced_where_accepted)
    throw Error(ErrorKind::unsupported, fmt::format("{} refuses {}: {}", forced, problem.str(), named->refusal));
  if (best == nullptr)
    throw Error(ErrorKind::unsupported, fmt::format("no convolution algorithm takes {}", problem.str()));
  choice.algorithm = best->algorithm;

  double next = std::numeric_limits<double>::infinity();
  std::string_view next_name;
  for (const ConvCandidateRow& row : choice.candidates) {
    if (&row == best || !row.refusal.empty() || row.estimated_us >= next) continue;
    next = row.estimated_us;
    next_name = row.algorithm->name();
  }
  choice.reason = fmt::format("least estimate: {:.0f} us", best->estimated_us);
  if (!next_name.empty()) choice.reason += fmt::format(", then {} {:.0f} us", next_name, next);
  if (named != nullptr) choice.reason += fmt::format(" ({} refuses: {})", forced, named->refusal);
  return choice;
}

MachineRates cpu_rates(int threads) {
  // Of a core with two multiply-add units at 3.2 GHz, which AVX2 on Zen 3 reaches (104 GFLOP/s measured) and the others
  // need not: only the ratio to bytes_per_us enters the choice, and the vector width is what moves it.
  const double lanes = static_cast<double>(gemm_tile_cols()) / 2;
  MachineRates rates;
  rates.threads = std::max(threads, 1);
  rates.flops_per_us = 12.8e3 * lanes * rates.threads;
  // One core of the measured machine streams 15 GB/s out of L3 and memory; from four on they share what there is.
  rates.bytes_per_us = 15e3 * std::min(rates.threads, 4);
  rates.l2_bytes = 512 << 10;
  return rates;
}

MachineRates cuda_rates(int multiprocessors) {
  // Per multiprocessor, from an H200 with 132 of them: fp32 51 TFLOP/s in a large GEMM, 4.3 TB/s in a large copy.
  MachineRates rates;
  rates.threads = std::max(multiprocessors, 1);
  rates.flops_per_us = 51e6 / 132 * rates.threads;
  rates.bytes_per_us = 4.3e6 / 132 * rates.threads;
  rates.l2_bytes = 50 << 20;
  rates.launch_us = 1.0;
  return rates;
}

}  // namespace lenslet
