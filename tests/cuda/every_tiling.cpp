#include "tests/cuda/every_tiling.h"

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
#include "tests/ops/op_runner.h"
#include "tests/random_seed.h"

namespace lenslet::test {

OnDevice::OnDevice(const Kernel& kernel, const Problem& problem, const Numerics& numerics,
                   std::span<const Tensor> inputs, std::string what)
    : kernel_(kernel),
      problem_(problem),
      device_(op_runner().profiles(1).at(0)),
      without_clusters_(device_),
      inputs_(inputs),
      what_(std::move(what)) {
  without_clusters_.clusters = false;
  const Offer offer = kernel.offer(problem, {.device = device_, .numerics = numerics});
  REQUIRE_MESSAGE(offer.refusal.empty(), std::string(kernel.name()), " on ", what_, ": ", offer.refusal);
  planned_ = offer.candidates.at(0);
}

OnDevice::Ran OnDevice::run(const Candidate& candidate, int in_place, bool clusters) const {
  const Call call{.problem = problem_,
                  .kernel = kernel_,
                  .candidate = candidate,
                  .device = clusters ? device_ : without_clusters_,
                  .in_place = in_place};
  const std::string where = fmt::format("{} on {}", call.str(), what_);
  return {run_between_guards(op_runner(), call, inputs_, where).at(0), call.str(), where};
}

OnDevice::Ran OnDevice::run(const std::string& config) const {
  Candidate candidate = planned_;
  if (!config.empty()) candidate.config = config;
  return run(candidate);
}

bool asked_for(const std::string& config) {
  const char* const only = std::getenv("LENSLET_TEST_TILING");
  return only == nullptr || config.find(only) != std::string::npos;
}

int check_tilings(const OnDevice& kernel, const ConvData& judged, std::span<const Tiling> tilings,
                  int among_others_every) {
  std::map<std::string, std::pair<std::string, Tensor>, std::less<>> first_of;  // by the properties that bits depend on
  int checked = 0;
  for (const Tiling& tiling : tilings) {
    if (!asked_for(tiling.config)) continue;
    Candidate candidate = kernel.planned();
    candidate.config = tiling.config;
    if (tiling.workspace_bytes) candidate.workspace_bytes = *tiling.workspace_bytes;
    const auto run = [&](const char* how) {
      const OnDevice::Ran ran = kernel.run(candidate, tiling.in_place, tiling.clusters);
      const std::string where = ran.where + how;
      const auto first = first_of.try_emplace(tiling.bits, where, ran.y);
      const auto& [other, bits] = first.first->second;
      const bool same = std::memcmp(bits.data(), ran.y.data(), ran.y.bytes()) == 0;
      if (!same) FAIL_CHECK(fmt::format("{}: other bits than {}", where, other));
      if (first.second || !same) compare(ran.y, judged, candidate.tolerance, where, ran.call);
    };
    run("");
    if (++checked % std::max(among_others_every, 1) != 0 || among_others_every == 0 || !candidate.pitched_output)
      continue;
    const TensorType& y = kernel.problem().outputs()[0];
    candidate.outputs[0].pixel_pitch =
        aligned_channels(y.shape[1], y.dtype) + 48 / static_cast<std::int64_t>(dtype_bytes(y.dtype));
    run(" among other channels");
  }
  CHECK_MESSAGE((checked > 0 || !asked_for("")), "no configuration was checked");
  return checked;
}

int check_tilings(std::string_view algorithm, ConvProblem p, std::string_view precision, unsigned seed,
                  const std::function<std::vector<Tiling>(const Planned&)>& tilings_of, int among_others_every) {
  const Numerics numerics = parse_numerics(precision);
  p.storage = p.x_storage = numerics.storage;  // before random data is made
  std::mt19937 random(seed);
  const ConvData data = make_conv_data(p, random);
  const Tensor inputs[] = {data.x, data.w, data.bias, data.residual};
  const auto problem = pose(p, data.w, data.scale);
  const std::string what = fmt::format("{} in {} (seed {})", p.str(), precision, seed);
  const OnDevice kernel(kernel_named("Conv", algorithm), *problem, numerics, inputs, what);
  INFO(std::string(algorithm), " on ", what);
  return check_tilings(kernel, data, tilings_of({p, kernel.planned(), kernel.device()}), among_others_every);
}

std::vector<Tiling> as_planned(const Planned& planned) { return {{planned.candidate.config}}; }

Numerics numerics_of(DType storage) {
  return parse_numerics(storage == DType::f32 ? "tf32" : storage == DType::f16 ? "fp16" : "bf16");
}

const Kernel& kernel_named(std::string_view op, std::string_view name) {
  const Kernel* kernel = find_kernel(op, DeviceKind::cuda, name);
  REQUIRE_MESSAGE(kernel != nullptr, std::string(name));
  return *kernel;
}

Tensor convolved(std::string_view algorithm, ConvProblem p, std::string_view precision, const Tensor& x,
                 const Tensor& w, const std::string& config) {
  const Numerics numerics = parse_numerics(precision);
  p.storage = p.x_storage = numerics.storage;
  const auto problem = pose(p, w);
  const Tensor inputs[] = {x.to_dtype(p.x_storage), w, Tensor(), Tensor()};
  return OnDevice(kernel_named("Conv", algorithm), *problem, numerics, inputs, p.str()).run(config).y;
}

void check_rounds_to_tf32(std::string_view algorithm, const ConvProblem& p, const std::string& config) {
  const unsigned seed = random_seed();
  std::mt19937 random(seed);
  const Tensor x = normal({p.n, p.c, p.h, p.w}, 1, random);
  Tensor w(DType::f32, {p.k, p.group_c(), p.r, p.s});
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
