#pragma once
// Which layers and values of a network are quantised, and the file with QuantizeLinear and DequantizeLinear around
// them.

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tools/quantize/onnx_file.h"
#include "tools/quantize/ranges.h"

namespace lenslet::tool {

/// What must not be quantised.
struct Floats {
  std::set<std::string> layers;  ///< nodes by EditedNode::label()
  std::set<std::string> ops;
  std::set<std::string> values;
};

/// A quantised node that computes, or a value from a float node or the network's input.
struct QuantizedLayer {
  std::string name, op;  ///< op: "input" for a value
  std::string value;     ///< its quantised output, behind a Relu or Clip; empty: the output stays float
  bool has_weights = false;
};

/// A decision for each node.
struct QuantizePlan {
  std::set<std::size_t> nodes;         ///< indices of nodes whose inputs are quantised, those that only move included
  std::vector<QuantizedLayer> layers;  ///< in the file's order
  std::set<std::string> made;          ///< quantised values that these nodes compute: nobody reads them as float
  std::map<std::string, std::string> group;  ///< of each quantised value: values of a group have one scale
};

/// True of Conv, ConvTranspose, Gemm and MatMul with constant float32 weights (and bias).
bool has_known_weights(const OnnxFile& file, const EditedNode& node);

/// The inputs that are values, not shapes, axes or weights.
std::vector<std::string> data_inputs(const EditedNode& node);

/// The rules are in docs/quantize.md.
QuantizePlan plan_quantization(const OnnxFile& file, const Floats& floats);

/// Mean of each channel (axis 1) of a value over the calibration, for bias correction.
using ChannelMeans = std::map<std::string, std::vector<double>>;

struct Quantizers {
  std::map<std::string, Range> ranges;  ///< by group
  bool is_signed = false;
  const ChannelMeans* means = nullptr;  ///< of the layers' inputs, for bias correction; null: none
};

/// The file with those values and those layers' weights quantised that `wanted` names; null: all of the plan.
struct Wanted {
  std::set<std::string> values, weights;
};
OnnxFile with_qdq(const OnnxFile& file, const QuantizePlan& plan, const Quantizers& how,
                  const Wanted* wanted = nullptr);

}  // namespace lenslet::tool
