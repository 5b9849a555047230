#include "tools/verbs/layer_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "oracle/oracle.h"

namespace lenslet::tool {

namespace {

// Where the reference is NaN, or an infinity, the layer has to have the same: anything else is an infinite error, and
// so is what is not finite where the reference is. But Winograd and fft add and subtract the pixels of a tile before
// they multiply: of an infinity or a NaN among a layer's inputs they make NaN in all outputs of the tile, which is told
// and no error. Errors are measured by each element's own terms (oracle::Array::scale), beyond the rounding to the type
// that the output is stored in.
class Judge {
 public:
  Judge(bool tiles, const std::vector<oracle::Array>& inputs)
      : spreads_(tiles && !std::ranges::all_of(inputs, [](const oracle::Array& input) {
                   return std::ranges::all_of(input.values, [](double value) { return std::isfinite(value); });
                 })) {}

  void look_at(const oracle::Array& got, const oracle::Array& exact, LayerCheck& check) const {
    if (got.values.size() != exact.values.size()) {
      check.error = INFINITY;
      return;
    }
    for (std::size_t i = 0; i < got.values.size(); ++i) {
      const double a = got.values[i], e = exact.values[i];
      if (!std::isfinite(e)) ++check.not_finite;
      if (std::isinf(a) && std::isfinite(e) && got.dtype != DType::f32) {
        ++check.beyond_range;
        check.largest = std::max(check.largest, std::abs(e));
      }
      if (spreads_ && std::isnan(a) && !std::isnan(e))
        ++check.made_nan;
      else
        check.error = std::max(check.error, oracle::error_at(a, exact, i, got.dtype));
    }
  }

 private:
  bool spreads_;
};

}  // namespace

LayerCheck check_layer(const LayerEvent& event) {
  LayerCheck check;
  check.name = event.info->name;
  check.op = event.info->op;
  check.algorithm = event.info->algorithm;
  check.tolerance = event.info->tolerance;
  std::vector<oracle::Array> inputs;
  for (const Tensor& tensor : event.inputs) inputs.push_back(oracle::from_tensor(tensor));
  const std::int64_t reach = oracle::tile_reach(event.info->algorithm + " " + event.info->config);
  const auto exact = oracle::run(event.info->op, event.info->attributes, inputs, reach);
  if (!exact) {
    check.skipped = "no reference for this op";
    return check;
  }
  const Judge judge(reach > 0, inputs);
  const auto rounded = [](const oracle::Array& array) {
    return (array.dtype == DType::i64 || array.dtype == DType::u64) &&
           std::ranges::any_of(array.values, [](double value) { return std::abs(value) >= 0x1p53; });
  };
  for (std::size_t i = 0; i < event.outputs.size() && i < exact->size(); ++i)
    judge.look_at(oracle::from_tensor(event.outputs[i]), (*exact)[i], check);
  if (check.error > check.tolerance && (std::ranges::any_of(inputs, rounded) || std::ranges::any_of(*exact, rounded))) {
    check.large_integers = true;
    check.skipped = large_integers;
  }
  return check;
}

nlohmann::json number_or_infinite(double error) {
  return std::isfinite(error) ? nlohmann::json(error) : nlohmann::json("infinite");
}

std::string verdict(const LayerCheck& check) {
  if (!check.skipped.empty()) return check.skipped;
  if (check.beyond_range > 0)
    return fmt::format("OUT OF RANGE: {} up to {:.3g} are infinite as stored", check.beyond_range, check.largest);
  if (!check.passed()) return "EXCEEDED";
  std::string text = "ok";
  if (check.not_finite > 0) text += fmt::format("; {} infinite or NaN by the reference", check.not_finite);
  if (check.made_nan > 0) text += fmt::format("; {} made NaN by {}", check.made_nan, check.algorithm);
  return text;
}

std::string range_advice(std::span<const LayerCheck> layers) {
  const auto leaves = [](const LayerCheck& layer) { return layer.beyond_range > 0; };
  const auto first = std::ranges::find_if(layers, leaves);
  if (first == layers.end()) return {};
  return fmt::format("{} of them leave the range of float16, first {} (up to {:.3g}): bf16 has that of float32",
                     std::ranges::count_if(layers, leaves), first->name, first->largest);
}

}  // namespace lenslet::tool
