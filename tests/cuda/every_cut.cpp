#include "tests/cuda/every_cut.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <utility>

#include "base/aligned_format.h"
#include "tests/cuda/tf32_rounding.h"
#include "tests/ops/conv_data.h"
#include "tests/ops/op_runner.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

const Kernel& kernel_named(std::string_view algorithm) {
  const Kernel* kernel = find_kernel("Conv", DeviceKind::cuda, algorithm);
  REQUIRE_MESSAGE(kernel != nullptr, std::string(algorithm));
  return *kernel;
}

}  // namespace

bool asked_for(const std::string& config) {
  const char* const only = std::getenv("LENSLET_TEST_CUT");
  return only == nullptr || config.find(only) != std::string::npos;
}

int check_cuts(std::string_view algorithm, ConvProblem p, std::string_view precision, unsigned seed,
               const std::function<std::vector<Cut>(const Planned&)>& cuts_of, int among_others_every) {
  const Kernel& kernel = kernel_named(algorithm);
  const Numerics numerics = parse_numerics(precision);
  p.storage = p.x_storage = numerics.storage;  // before anything is drawn
  std::mt19937 random(seed);
  const ConvData data = make_conv_data(p, random);
  const Tensor inputs[] = {data.x, data.w, data.bias, data.residual};
  const auto problem = pose(p, data.w, data.scale);
  const DeviceProfile device = op_runner().profiles(1).at(0);
  DeviceProfile without_clusters = device;
  without_clusters.clusters = false;
  const Offer offer = kernel.offer(*problem, {.device = device, .numerics = numerics});
  REQUIRE_MESSAGE(offer.refusal.empty(), std::string(algorithm), " on ", p.str(), ": ", offer.refusal);

  std::map<std::string, std::pair<std::string, Tensor>, std::less<>> first_of;  // by what bits depend on
  int checked = 0;
  for (const Cut& cut : cuts_of({p, offer.candidates.at(0), device})) {
    if (!asked_for(cut.config)) continue;
    Candidate candidate = offer.candidates[0];
    candidate.config = cut.config;
    if (cut.workspace_bytes) candidate.workspace_bytes = *cut.workspace_bytes;
    const auto run = [&](const char* how) {
      const Call call{.problem = *problem,
                      .kernel = kernel,
                      .candidate = candidate,
                      .device = cut.clusters ? device : without_clusters};
      const std::string where = fmt::format("{} on {} in {} (seed {}){}", call.str(), p.str(), precision, seed, how);
      const Tensor y = run_between_guards(op_runner(), call, inputs, where).at(0);
      const auto [at, is_first] = first_of.try_emplace(cut.bits, where, y);
      const auto& [other, first] = at->second;
      const bool same = std::memcmp(first.data(), y.data(), y.bytes()) == 0;
      CHECK_MESSAGE(same, where, ": other bits than ", other);
      if (is_first || !same) compare(y, data, candidate.tolerance, where, call.str());
    };
    run("");
    if (++checked % std::max(among_others_every, 1) != 0 || among_others_every == 0 || !candidate.pitched_output)
      continue;
    candidate.outputs[0].pixel_pitch =
        aligned_channels(p.k, p.storage) + 48 / static_cast<std::int64_t>(dtype_bytes(p.storage));
    run(" among other channels");
  }
  CHECK_MESSAGE((checked > 0 || !asked_for("")), std::string(algorithm), " on ", p.str(), " in ",
                std::string(precision), ": no cut was checked");
  return checked;
}

Tensor convolved(std::string_view algorithm, ConvProblem p, std::string_view precision, const Tensor& x,
                 const Tensor& w, const std::string& config) {
  const Kernel& kernel = kernel_named(algorithm);
  const Numerics numerics = parse_numerics(precision);
  p.storage = p.x_storage = numerics.storage;
  const auto problem = pose(p, w);
  const DeviceProfile device = op_runner().profiles(1).at(0);
  const Offer offer = kernel.offer(*problem, {.device = device, .numerics = numerics});
  REQUIRE_MESSAGE(offer.refusal.empty(), std::string(algorithm), " on ", p.str(), ": ", offer.refusal);
  Candidate candidate = offer.candidates.at(0);
  if (!config.empty()) candidate.config = config;
  const Call call{.problem = *problem, .kernel = kernel, .candidate = candidate, .device = device};
  const Tensor inputs[] = {x.to_dtype(p.x_storage), w, Tensor(), Tensor()};
  return run_between_guards(op_runner(), call, inputs, fmt::format("{} on {}", call.str(), p.str())).at(0);
}

void check_rounds_to_tf32(std::string_view algorithm, const ConvProblem& p, const std::string& config) {
  const unsigned seed = random_seed();
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Tensor x(DType::f32, {p.n, p.c, p.h, p.w}), w(DType::f32, {p.k, p.group_c(), p.r, p.s});
  for (float& value : x.values<float>()) value = normal(random);
  std::ranges::fill(w.values<float>(), 0.0F);
  REQUIRE((p.k == p.c && p.p == p.h && p.q == p.w));
  const std::int64_t middle = p.pad_top * p.s + p.pad_left;
  for (std::int64_t k = 0; k < p.k; ++k)
    w.values<float>()[static_cast<std::size_t>((k * p.group_c() + k % p.group_c()) * p.r * p.s + middle)] = 1;
  const Tensor y = convolved(algorithm, p, "tf32", x, w, config);
  const std::size_t wrong = not_rounded_to_tf32(x.values<float>(), y.values<float>());
  CHECK_MESSAGE(wrong == 0, std::string(algorithm), " ", config, " on ", p.str(), ", seed ", seed, ": ", wrong, " of ",
                x.values<float>().size());
}

}  // namespace lenslet::test
