// Relabel (domain lenslet): the same bytes under another shape and format. Costs nothing; plans insert it.

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/format.h"
#include "ops/shape/view_op.h"

namespace lenslet {

namespace {

enum class Kind {
  channels_first,  ///< [N,H,W,C] in nchw (row-major) is [N,C,H,W] in nhwc: Transpose 0,3,1,2
  channels_last,   ///< [N,C,H,W] in nhwc is [N,H,W,C] in nchw (row-major): Transpose 0,2,3,1
  pixels,          ///< [N,C,H,W] in nhwc is [N,H*W*C]: rows of images, pixel by pixel
  layout,          ///< the same shape in another format, where both have the same bytes
};
constexpr std::string_view names[] = {"channels_first", "channels_last", "pixels", "layout"};  // by Kind

class Relabel final : public ViewOp {
 public:
  explicit Relabel(Kind k) : kind(k) {}

  const Kind kind;

  std::string_view type() const override { return "Relabel"; }
  AttributeList attributes() const override { return {{"kind", std::string(names[static_cast<std::size_t>(kind)])}}; }
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override {
    const TensorType& x = inputs[0].type;
    const Shape& s = x.shape;
    if (s.rank() != 4)
      throw Error(ErrorKind::internal, fmt::format("Relabel of shape {}: it needs 4 dimensions", s.str()));
    switch (kind) {
      case Kind::channels_first:
        return {{x.dtype, Shape{s[0], s[3], s[1], s[2]}}};
      case Kind::channels_last:
        return {{x.dtype, Shape{s[0], s[2], s[3], s[1]}}};
      case Kind::pixels:
        return {{x.dtype, Shape{s[0], s[1] * s[2] * s[3]}}};
      case Kind::layout:
        break;
    }
    if (!same_bytes(formats::nchw, formats::nhwc, s))
      throw Error(ErrorKind::internal, fmt::format("Relabel of shape {}: its layouts differ in bytes", s.str()));
    return {x};
  }
  std::optional<AxisMap> axis_map(std::span<const InputInfo>, const Shape&) const override {
    if (kind == Kind::pixels) return axes_kept(1, {0});
    constexpr std::array<std::int8_t, 4> from[] = {{0, 3, 1, 2}, {0, 2, 3, 1}, {}, {0, 1, 2, 3}};  // by Kind
    AxisMap map = axes_kept(1, {});
    std::ranges::copy(from[static_cast<std::size_t>(kind)], map.inputs[0].axis.begin());
    return map;
  }
  bool gives_input_back(std::span<const InputInfo>) const override { return kind == Kind::layout; }
};

Offer offer(const Problem& problem, const Target&) {
  const Kind kind = problem.as<Relabel>().kind;
  Offer offer;
  for (const auto& [from, to] : {std::pair{formats::nchw, formats::nhwc}, std::pair{formats::nhwc, formats::nchw}}) {
    const bool to_last = kind == Kind::channels_last || kind == Kind::pixels;  // it says which way round
    if (from == formats::nchw ? to_last : kind == Kind::channels_first) continue;
    Candidate candidate;
    candidate.inputs = {from};
    candidate.outputs = {to};
    offer.candidates.push_back(std::move(candidate));
  }
  return offer;
}

constexpr auto kernels = on_either({.offer = offer, .bind = bind_run<run_view>});

std::shared_ptr<const Op> make(const NodeSpec& spec) {
  AttributeReader reader(spec);
  const std::string kind = reader.text("kind", "");
  reader.finish();
  const auto found = std::find(std::begin(names), std::end(names), kind);
  if (found == std::end(names)) throw Error(ErrorKind::invalid_model, fmt::format("attribute kind is \"{}\"", kind));
  return std::make_shared<Relabel>(static_cast<Kind>(found - std::begin(names)));
}

}  // namespace

OpParts relabel() { return {make, kernels}; }

}  // namespace lenslet
