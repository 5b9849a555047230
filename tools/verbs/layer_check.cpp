#include "tools/verbs/layer_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <variant>
#include <vector>

#include "oracle/oracle.h"

namespace lenslet::tool {

namespace {

// Where the reference is NaN, or an infinity, the layer has to have the same: anything else is an infinite error, and
// so is what is not finite where the reference is. But Winograd and fft add and subtract the pixels of a tile before
// they multiply: of an infinity or a NaN among a layer's inputs they make NaN in all outputs of the tile, which is told
// and no error. Errors are measured where both are finite, beyond the rounding to the type that the output is stored
// in.
class Judge {
 public:
  Judge(const LayerEvent& event, const std::vector<oracle::Array>& inputs)
      : spreads_((event.info->algorithm.starts_with("winograd") || event.info->algorithm == "fft") &&
                 !std::ranges::all_of(inputs, [](const oracle::Array& input) {
                   return std::ranges::all_of(input.values, [](double value) { return std::isfinite(value); });
                 })) {}

  bool made_nan(double got, double exact) const { return spreads_ && std::isnan(got) && !std::isnan(exact); }
  static bool comparable(double got, double exact) { return std::isfinite(got) && std::isfinite(exact); }

  void look_at(const oracle::Array& got, const oracle::Array& exact, LayerCheck& check) const {
    if (got.values.size() != exact.values.size()) {
      check.error = INFINITY;
      return;
    }
    double worst = 0;
    for (std::size_t i = 0; i < got.values.size(); ++i) {
      const double a = got.values[i], e = exact.values[i];
      if (!std::isfinite(e)) ++check.not_finite;
      if (std::isinf(a) && std::isfinite(e) && got.dtype != DType::f32) {
        ++check.beyond_range;
        check.largest = std::max(check.largest, std::abs(e));
      }
      if (made_nan(a, e))
        ++check.made_nan;
      else
        worst = std::max(worst, oracle::error_beyond_rounding(a, e, got.dtype));
    }
    const double scale = oracle::rms(exact.values);
    if (worst > 0) check.error = std::max(check.error, scale > 0 ? worst / scale : INFINITY);
  }

 private:
  bool spreads_;
};

// The same sum of its terms' squares, without activations: the output's variance, were the terms of random sign.
std::vector<oracle::Array> sum_of_squares(const LayerEvent& event, std::vector<oracle::Array> inputs) {
  AttributeList attributes = event.info->attributes;
  for (auto& [name, value] : attributes) {
    if (name == "activation" || name == "depthwise_activation") value = std::string("none");
    if (auto* factors = std::get_if<std::vector<double>>(&value))
      for (double& factor : *factors) factor *= factor;
    if (auto* factor = std::get_if<double>(&value)) *factor *= *factor;
  }
  for (oracle::Array& input : inputs)
    if (input.dtype != DType::i32)  // a rulebook's -1 are no numbers
      for (double& value : input.values) value *= value;
  return oracle::run(event.info->op, attributes, inputs).value();
}

// Tolerances of sums of products are stated for terms of random sign, where the output's rms is that of sqrt(sum
// terms^2), and so are rounding errors. In a trained layer a channel's terms may cancel (against its bias, too) or an
// activation may clip most of them away; the rounding error does not cancel with them. There the channel's rms of
// sqrt(sum terms^2) stands in for the output's rms, and an element's own where that is larger: sites of a scan differ
// more than pixels do, by their places (metres) and by how many neighbours they have (SECOND in fp16: errors of up to
// 2.6 of what the rms of all sites allows). The sum of |terms| over the root of their number was too little there: of
// 108 terms of SECOND's first layer a lone site has 4, of which its places are nearly all (TF32: 1.64 of the
// tolerance). Only ever asked for layers that exceed the plain measure.
double error_against_terms(const LayerEvent& event, const std::vector<oracle::Array>& inputs,
                           const oracle::Array& exact) {
  const oracle::Array squares = sum_of_squares(event, inputs).at(0);
  const oracle::Array got = oracle::from_tensor(event.outputs[0]);
  const std::int64_t channels = exact.shape[1];
  const std::int64_t inner = exact.shape.rank() > 2 ? exact.shape.elems() / (exact.shape[0] * channels) : 1;
  const double output_rms = oracle::rms(exact.values);
  double worst = 0;
  for (std::int64_t c = 0; c < channels; ++c) {
    std::vector<double> terms;
    const auto each = [&](auto visit) {
      for (std::int64_t n = 0; n < exact.shape[0]; ++n)
        for (std::int64_t i = 0; i < inner; ++i) visit(static_cast<std::size_t>((n * channels + c) * inner + i));
    };
    each([&](std::size_t at) { terms.push_back(std::sqrt(squares.values[at])); });
    const double scale = std::max(output_rms, oracle::rms(terms));
    each([&](std::size_t at) {
      if (!Judge::comparable(got.values[at], exact.values[at])) return;
      const double error = oracle::error_beyond_rounding(got.values[at], exact.values[at], got.dtype);
      const double own = std::sqrt(squares.values[at]);
      worst = std::max(worst, error / (std::isfinite(own) ? std::max(scale, own) : scale));
    });
  }
  return worst;
}

bool sums_products(const LayerEvent& event) {
  const std::string& op = event.info->op;
  const bool of_two = op == "Conv" || op == "Gemm" || op == "SeparableConv" || op == "SparseConv";
  return of_two && event.outputs[0].shape().rank() >= 2 && event.outputs[0].elems() > 0;
}

}  // namespace

LayerCheck check_layer(const LayerEvent& event) {
  LayerCheck check;
  check.name = event.info->name;
  check.op = event.info->op;
  check.algorithm = event.info->algorithm;
  check.tolerance = event.info->tolerance;
  std::vector<oracle::Array> inputs;
  for (const Tensor& tensor : event.inputs) inputs.push_back(oracle::from_tensor(tensor));
  const auto exact = oracle::run(event.info->op, event.info->attributes, inputs);
  if (!exact) {
    check.skipped = "no reference for this op";
    return check;
  }
  const Judge judge(event, inputs);
  for (std::size_t i = 0; i < event.outputs.size() && i < exact->size(); ++i)
    judge.look_at(oracle::from_tensor(event.outputs[i]), (*exact)[i], check);
  if (check.error > check.tolerance && std::isfinite(check.error) && sums_products(event)) {
    check.error = error_against_terms(event, inputs, (*exact)[0]);
    check.against_terms = true;
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
  std::string text = check.against_terms ? "ok (of the terms: they cancel)" : "ok";
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
