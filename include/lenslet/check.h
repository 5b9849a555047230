#pragma once
// Is a layer right? Each step of a network, or one layer by itself, against a reference in double precision that was
// written apart from the kernels. A component of the package of its own, which knows no test framework:
// find_package(lenslet COMPONENTS check), target lenslet::check; with the static library lenslet::check_static.
//
//   const auto model = lenslet::Model::load("net.onnx");
//   for (const auto& layer : lenslet::check_layers(model, {.device = "cpu"}))
//     CHECK_MESSAGE(layer.passed(), layer.str());
//
// docs/verify.md says what is proven, and how errors are measured.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lenslet/attributes.h"
#include "lenslet/model.h"
#include "lenslet/runner.h"
#include "lenslet/tensor.h"

namespace lenslet {

/// One row: a step as one kernel computed it, an output of the whole network, or a kernel that refuses a step. Owns all
/// that it says.
struct LayerCheck {
  enum class Kind : std::uint8_t {
    layer,   ///< a step of the plan, judged by the values that it read itself
    output,  ///< an output of the network, judged by the network as the file has it
    refusal  ///< a kernel that does not compute this step: nothing was run
  };
  Kind kind = Kind::layer;
  std::string name;       ///< of the node, or of the output; as the file has it, control characters included
  std::string op;         ///< "Conv"; of an output empty
  std::string algorithm;  ///< the kernel, where the operator has several; else empty
  std::string config;     ///< how that is run ("tile=128x64"), as StepInfo::config
  std::string device;     ///< "cpu", "cuda:0"
  std::string precision;  ///< "fp32", "tf32", "fp16", "bf16": what the plan may use
  std::string forced;     ///< the algorithm that this run forced on all convolutions; empty: the rule chose
  std::vector<Shape> input_shapes, output_shapes;  ///< N, C, H, W; of an omitted input []

  /// The largest error of all elements, infinite where only one of the two is NaN or their sizes differ. Of a layer it
  /// is relative to the element's scale, the terms that it is made of, and what rounding to 16 bits explains is no
  /// error; of integers and bool any difference is infinite. Of an output it is |got - exact| of the element that uses
  /// up most of what it may.
  double error = 0;
  double tolerance = 0;           ///< what the kernel states, or what an output may be off by; in the error's measure
  std::size_t worst_output = 0;   ///< of the step: the output that this error was found in
  std::size_t worst_element = 0;  ///< the element there, row-major in the order of the shape
  double got = 0, exact = 0;      ///< its value, and the reference's
  std::size_t not_finite = 0;     ///< elements that are infinite or NaN by the reference, too
  std::size_t made_nan = 0;       ///< elements that Winograd or fft made NaN for a neighbour's sake, which is no error
  std::size_t beyond_range = 0;   ///< elements that are finite, but infinite in the 16 bits that store them
  double largest = 0;             ///< the largest magnitude of these

  std::string refusal;  ///< why the kernel refuses
  std::string skipped;  ///< why there was nothing to compare with (no reference for the operator); empty: it was judged

  double ms = 0;  ///< median time of the step alone, in milliseconds; 0 where none was asked for
  int runs = 0;   ///< of which it is the median

  /// Was it compared with a reference?
  bool judged() const { return kind != Kind::refusal && skipped.empty(); }
  /// False where it was judged and is wrong.
  bool passed() const { return !judged() || (error <= tolerance && beyond_range == 0); }
  /// What is error and tolerance: "of the element's terms" or "absolute".
  std::string_view measure() const { return kind == Kind::output ? "absolute" : "of the element's terms"; }
  /// "ok", "EXCEEDED", and what else is to be said; why it was not judged.
  std::string verdict() const;
  /// One line with all that matters: "conv1 (Conv by winograd_f4 on cpu, [1,3,8,8] -> [1,4,8,8]): error 3.1e-07 of the
  /// element's terms, 2.4e-06 allowed: ok".
  std::string str() const;
};

/// How check_layers() checks.
struct CheckOptions {
  std::string device = {};     ///< "cpu", "cuda", "cuda:1", "auto"; empty: as `plan` has it, "auto"
  std::string precision = {};  ///< "fp32", and on CUDA "tf32", "fp16", "bf16"; empty: as `plan` has it
  /// Of convolutions. Empty: as `plan` has it, the rule's choice. A name out of conv_algorithm_names(): forced on all,
  /// and Error(unsupported) names each layer that refuses (PlanOptions::conv_algorithm). "all": each in turn, where it
  /// is accepted; who refuses has a row.
  std::string algorithm = {};
  /// In the order of Model::inputs(), of the file's types, or floats of another width, which are converted; their
  /// shapes are those of the plan. Shared, not copied. read_npy() (lenslet/tensor_file.h) reads one from a file. Empty:
  /// random ones by `seed`, the same on every machine: floats uniform in [-1, 1), integers 0 or 1, bytes of any value.
  std::vector<Tensor> inputs = {};
  std::uint64_t seed = 1;
  /// Also compare the outputs with the whole network in double precision, which finds what no single layer shows: a
  /// graph that was rewritten into another one. It computes the network three times more, slowly.
  bool outputs = true;
  /// Time to spend on measuring the layers of each algorithm, in seconds; 0: no times. At least 3 runs.
  double seconds = 0;
  /// All else of how it is planned: batch, shapes, threads, passes left out ...
  PlanOptions plan = {};
};

/// Runs the model once for each algorithm and judges every step, and the outputs. Rows stand in the order of execution,
/// algorithm by algorithm, each with its outputs last. With "all", steps that are no convolution come once, in the last
/// of these. As slow as double precision is: some hundred times the run. Error(invalid_argument): an unknown device,
/// precision or algorithm, or inputs that do not fit the model; Error(unsupported) and others as of Runner.
std::vector<LayerCheck> check_layers(const Model& model, const CheckOptions& options = {});

/// How check_layer() checks.
struct LayerOptions {
  std::string device = {};     ///< as CheckOptions::device; empty: "auto"
  std::string precision = {};  ///< as CheckOptions::precision; empty: "fp32"
  std::string algorithm = {};  ///< one kernel by its name; empty: all that the device has for the operator
  double seconds = 0.05;       ///< time to spend on measuring each kernel; 0: no times
  /// How many of the inputs, from the first on, are given in the run; the others are constants, as the weights in a
  /// file are. Kernels prepare constants beforehand, and some refuse a filter that is none.
  std::size_t run_inputs = 1;
  std::size_t outputs = 1;  ///< how many the node has: 2 for a TopK, the parts of a Split
  std::string domain = {};  ///< of the operator; empty: ONNX's own. "lenslet" has the sparse ones (docs/ops.md)
  std::int64_t opset = 0;   ///< version of that domain that attributes and inputs are of; 0: the newest known
  int threads = 0;          ///< on the CPU; 0: as many as there are cores
};

/// One layer, as a node of an ONNX file: attributes and inputs as the operator's definition has them, an empty() tensor
/// for an optional input that is left out. A row for each kernel that takes it, with its error, stated tolerance and
/// time, and one for each that refuses it, with its reason. A layer that lenslet computes by several steps has rows of
/// each. The tensors are copied where they are constants.
///
///   check_layer("Conv", {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}}},
///               {random_tensor(DType::f32, {1, 64, 56, 56}, 1), random_tensor(DType::f32, {64, 64, 3, 3}, 2)})
///
/// Error(invalid_argument) for an unknown device, precision or algorithm; Error(invalid_model) or Error(unsupported),
/// which name the operator, for attributes or inputs that it does not have, and where no kernel takes it.
std::vector<LayerCheck> check_layer(std::string_view op, const AttributeList& attributes,
                                    const std::vector<Tensor>& inputs, const LayerOptions& options = {});

/// Judges what an observer sees, for a Runner of one's own. With PlanOptions::keep_all_values alone: without it a
/// step's inputs may be overwritten. `device` and `precision` are left empty, `ms` is the event's.
/// Error(invalid_argument) for inputs that make no sense for the operator.
LayerCheck check_step(const LayerEvent& event);

/// A tensor to check with: floats uniform in [-1, 1), those of 16 bits of magnitude 0.5 to 1, bytes of any value, other
/// integers 0 or 1. The same seed gives the same values on every machine.
Tensor random_tensor(DType dtype, const Shape& shape, std::uint64_t seed = 1);

}  // namespace lenslet
