#pragma once
// Pad: constant, reflect, edge and wrap; negative pads crop.

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "ops/core/op.h"
#include "ops/movement/pad_axis.h"

namespace lenslet {

/// Inputs: data; from opset 11 on also pads (int64, known before the run), constant value (one element, optional) and
/// from opset 18 on axes (optional). attributes(): mode, and where they are no inputs pads and value.
class PadOp final : public Op {
 public:
  PadMode mode = PadMode::constant;
  std::optional<std::vector<std::int64_t>> attribute_pads;  ///< begins of all axes, then ends; opset < 11
  double attribute_value = 0;

  std::string_view type() const override { return "Pad"; }
  AttributeList attributes() const override;
  std::vector<TensorType> infer(std::span<const InputInfo> inputs) const override;
  bool runs_in(Format layout, std::span<const InputInfo> inputs) const override;
  void run_cpu(const RunContext& context) const override;
  std::optional<std::string> refuse_cuda(std::span<const InputInfo> inputs) const override;
  bool reads_on_cuda(int input, const PlanContext&) const override { return input == 0; }
  void run_cuda(const CudaRun& run) const override;

  /// Begins of all axes of the data, then ends; negative: elements cut off. Error(unsupported) when not known.
  std::vector<std::int64_t> pads(std::span<const InputInfo> inputs) const;
};

/// Row of the op table.
std::shared_ptr<const Op> make_pad(const NodeSpec& spec);
/// Zeros around the images of a 4-D tensor: the step before a convolution whose algorithm wants padded input.
std::shared_ptr<const Op> make_explicit_pad(std::int64_t top, std::int64_t left, std::int64_t bottom,
                                            std::int64_t right);

}  // namespace lenslet
