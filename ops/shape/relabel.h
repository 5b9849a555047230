#pragma once
// Relabel (domain lenslet): the same bytes under another shape and layout. Costs nothing.

#include <memory>

#include "ops/core/view_op.h"

namespace lenslet {

/// A 4-D tensor seen differently. Its input and output layouts are fixed by the kind, and the bytes are shared.
class RelabelOp final : public ViewOp {
 public:
  enum class Kind {
    channels_first,  ///< [N,H,W,C] in nchw (row-major) is [N,C,H,W] in nhwc: Transpose 0,3,1,2
    channels_last,   ///< [N,C,H,W] in nhwc is [N,H,W,C] in nchw (row-major): Transpose 0,2,3,1
    layout,          ///< the same shape in the other layout, where same_bytes(row_major, channels_last, )
  };
  explicit RelabelOp(Kind k) : kind(k) {}

  const Kind kind;

  std::string_view type() const override { return "Relabel"; }
  AttributeList attributes() const override;
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override;
  bool runs_in(Format layout, std::span<const InputInfo> inputs) const override;
};

/// Row of the op table; attribute kind: "channels_first", "channels_last" or "layout".
std::shared_ptr<const Op> make_relabel(const NodeSpec& spec);

}  // namespace lenslet
