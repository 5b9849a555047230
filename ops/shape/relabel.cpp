#include "ops/shape/relabel.h"
#include "base/format.h"

#include <fmt/format.h>

#include <string>

namespace lenslet {
namespace {

constexpr std::string_view names[] = {"channels_first", "channels_last", "layout"};  // by Kind

}  // namespace

AttributeList RelabelOp::attributes() const { return {{"kind", std::string(names[static_cast<std::size_t>(kind)])}}; }

std::vector<TensorType> RelabelOp::infer(std::span<const InputInfo> inputs) const {
  const TensorType& x = inputs[0].type;
  if (x.shape.rank() != 4)
    throw Error(ErrorKind::internal, fmt::format("Relabel of shape {}: it needs 4 dimensions", x.shape.str()));
  switch (kind) {
    case Kind::channels_first:
      return {{x.dtype, Shape{x.shape[0], x.shape[3], x.shape[1], x.shape[2]}}};
    case Kind::channels_last:
      return {{x.dtype, Shape{x.shape[0], x.shape[2], x.shape[3], x.shape[1]}}};
    case Kind::layout:
      break;
  }
  if (!same_bytes(formats::nchw, formats::nhwc, x.shape))
    throw Error(ErrorKind::internal, fmt::format("Relabel of shape {}: its layouts differ in bytes", x.shape.str()));
  return {x};
}

bool RelabelOp::runs_in(Format layout, std::span<const InputInfo>) const {
  // Said of the output, as the two sides differ.
  if (kind == Kind::layout) return true;
  return layout == (kind == Kind::channels_first ? formats::nhwc : formats::nchw);
}

std::shared_ptr<const Op> make_relabel(const NodeSpec& spec) {
  AttributeReader reader(spec.attributes);
  const std::string kind = reader.text("kind", "");
  reader.finish();
  for (std::size_t i = 0; i < std::size(names); ++i)
    if (kind == names[i]) return std::make_shared<RelabelOp>(static_cast<RelabelOp::Kind>(i));
  throw Error(ErrorKind::invalid_model, fmt::format("attribute kind is \"{}\"", kind));
}

}  // namespace lenslet
