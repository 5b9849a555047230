#include "tools/measuring/conv_data.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

#include "base/format.h"
#include "ops/conv/conv.h"
#include "oracle/draw.h"
#include "oracle/oracle.h"
#include "tools/measuring/kernel_timer.h"

namespace lenslet::tool {
namespace {

// A uniform value in [-1,1] has variance 1/3, and so does the product of two, divided by the scale of one.
Tensor drawn_filters(const ConvProblem& p) {
  Tensor w(DType::f32, {p.k, p.group_c(), p.r, p.s});
  oracle::FastEngine engine(2);
  oracle::draw(w, engine);
  const auto scale = static_cast<float>(3 / std::sqrt(static_cast<double>(p.group_c() * p.r * p.s)));
  for (float& value : w.values<float>()) value *= scale;
  return w;
}

}  // namespace

PosedConv::PosedConv(const ConvProblem& p) : problem(p), node(pose(p, drawn_filters(p))), inputs(drawn_inputs(*node)) {}

std::unique_ptr<const Problem> pose_unread(const ConvProblem& p) {
  const Shape shape{p.k, p.group_c(), p.r, p.s};
  const std::shared_ptr<void> zeros(std::calloc(static_cast<std::size_t>(shape.elems()), sizeof(float)), std::free);
  return pose(p, Tensor::share(DType::f32, shape, zeros, zeros.get()));
}

ConvReference::ConvReference(const PosedConv& conv, std::size_t most) : problem_(conv.problem) {
  const ConvProblem& p = problem_;
  const std::int64_t outputs = p.n * p.k * p.p * p.q;
  if (outputs <= static_cast<std::int64_t>(most)) {
    for (std::int64_t i = 0; i < outputs; ++i) places_.push_back(i);
  } else {
    std::mt19937_64 random(1);
    std::uniform_int_distribution<std::int64_t> place(0, outputs - 1);
    places_ = {0, p.q - 1, (p.p - 1) * p.q, outputs - 1};  // corners, where the pads matter
    while (places_.size() < most) places_.push_back(place(random));
  }
  std::vector<Tensor> inputs_f32;
  for (const Tensor& input : conv.inputs) inputs_f32.push_back(input.empty() ? input : input.to_dtype(DType::f32));
  const auto value = [&](std::size_t input, std::int64_t i) {
    return double{static_cast<const float*>(inputs_f32[input].data())[i]};
  };
  // Each position as a convolution of its own window with one output. The oracle computes many at once, as groups.
  const std::int64_t c = p.group_c(), window = c * p.r * p.s, at_once = std::max<std::int64_t>(1, (1 << 20) / window);
  for (std::size_t begin = 0; begin < places_.size(); begin += static_cast<std::size_t>(at_once)) {
    const auto count = std::min(at_once, static_cast<std::int64_t>(places_.size() - begin));
    oracle::Array inputs[] = {{{1, count * c, p.r, p.s}, {}},
                              {{count, c, p.r, p.s}, {}},
                              {{count}, {}, DType::f32, p.bias},
                              {{1, count, 1, 1}, {}, DType::f32, p.residual}};
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t place = places_[begin + static_cast<std::size_t>(i)];
      const std::int64_t q = place % p.q, row = place / p.q % p.p, k = place / (p.q * p.p) % p.k,
                         n = place / (p.q * p.p * p.k);
      for (std::int64_t e = 0; e < window; ++e) {
        const std::int64_t channel = k / p.group_k() * c + e / (p.r * p.s);
        const std::int64_t in_h = row * p.stride_h - p.pad_top + e / p.s % p.r * p.dilation_h;
        const std::int64_t in_w = q * p.stride_w - p.pad_left + e % p.s * p.dilation_w;
        const bool inside = in_h >= 0 && in_h < p.h && in_w >= 0 && in_w < p.w;
        const std::int64_t at = ((n * p.c + channel) * p.h + in_h) * p.w + in_w;
        inputs[ConvOp::input].values.push_back(inside ? value(ConvOp::input, at) : 0.0);
        inputs[ConvOp::filter].values.push_back(value(ConvOp::filter, k * window + e));
      }
      if (p.bias) inputs[ConvOp::bias].values.push_back(value(ConvOp::bias, k));
      if (p.residual) inputs[ConvOp::residual].values.push_back(value(ConvOp::residual, place));
    }
    ConvProblem windows = resolve_conv(inputs[0].shape, inputs[1].shape, {.groups = count});
    windows.activation = p.activation;
    const auto exact = oracle::run("Conv", ConvOp(windows).attributes(), inputs).value().at(0);
    exact_.insert(exact_.end(), exact.values.begin(), exact.values.end());
  }
  rms_ = oracle::rms(exact_);
}

double ConvReference::error(const Tensor& y) const {
  const ConvProblem& p = problem_;
  const Strides strides(y.format(), y.shape());
  const Tensor singles = y.to_dtype(DType::f32);
  const auto* const values = static_cast<const float*>(singles.data());
  double worst = 0;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const std::int64_t place = places_[i], pixel = place % (p.p * p.q), plane = place / (p.p * p.q);
    const std::int64_t at = strides.at(plane / p.k, plane % p.k, pixel / p.q, pixel % p.q);
    worst = std::max(worst, oracle::error_beyond_rounding(double{values[at]}, exact_[i], y.dtype()));
  }
  return worst / rms_;
}

}  // namespace lenslet::tool
