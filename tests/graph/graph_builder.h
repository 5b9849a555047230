#pragma once
// Small graphs built in code and run without optimisation, for comparing a graph before and after passes.

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/graph/graph.h"
#include "runtime/passes/passes.h"
#include "tests/tensors.h"

namespace lenslet::test {

/// Builds a graph node by node like a loader: operators from the table, generated names. Constants are random with a
/// fixed seed unless given.
class GraphBuilder {
 public:
  /// Dimensions below 0 are free; -1, -2 and -3 are named "N", "H" and "W".
  ValueId input(std::string name, std::vector<std::int64_t> dims, DType dtype = DType::f32);
  ValueId constant(Tensor tensor);
  /// Normal random around `mean`.
  ValueId weights(Shape shape, double mean = 0, double deviation = 1);
  ValueId scalar(float value) { return constant(Tensor::of<float>(Shape{}, {value})); }
  ValueId int64s(std::initializer_list<std::int64_t> values);
  /// Output 0 of a new node; `inputs` may hold no_id.
  ValueId node(std::string_view op, std::vector<ValueId> inputs, AttributeList attributes = {}, std::int64_t opset = 13,
               std::size_t outputs = 1, std::string_view domain = "");
  /// The same for an operator without a row in the table.
  ValueId node_of(std::shared_ptr<const Op> op, std::vector<ValueId> inputs, std::size_t outputs = 1);
  ValueId conv(ValueId x, std::int64_t c, std::int64_t k, std::int64_t kernel, std::int64_t pad = 0,
               std::int64_t stride = 1);
  ValueId batch_norm(ValueId x, std::int64_t c);
  void output(ValueId id);
  /// Bound to `batch` images, with inferred types.
  Graph build(std::int64_t batch = 1);
  /// As from a loader: neither bound nor inferred.
  Graph raw() const;
  /// As built, without shapes.
  Graph source() const { return graph_; }

 private:
  Graph graph_;
  unsigned seed_ = 1;
  int count_ = 0;
};

/// Runs the nodes in order, each with its own packing, into outputs filled with NaN.
std::vector<Tensor> interpret(const Graph& graph, const std::vector<Tensor>& inputs);
/// Random inputs of the graph's shapes.
std::vector<Tensor> random_inputs(const Graph& graph, unsigned seed);

/// max |a - b| over the rms of a, for equal shapes; NaN counts as infinite.
double relative_error(const Tensor& a, const Tensor& b);

/// The graph after one pass, or after all; checked. Options as in a plan for one CPU thread.
Graph after(const Graph& graph, std::string_view pass);
Graph after(const Graph& graph, std::string_view pass, const PassContext& context);
Graph after_all(const Graph& graph, const std::vector<std::string>& disabled = {});
Graph after_all(const Graph& graph, const PassContext& context, const std::vector<std::string>& disabled = {});
PassContext pass_context();

/// Runs both on the same random inputs. Returns the worst relative error over all outputs.
double worst_difference(const Graph& before, const Graph& after, unsigned seed = 7);

int count(const Graph& graph, std::string_view op);
/// The only node of that op; fails the test if there are none or several.
const Node& only(const Graph& graph, std::string_view op);

}  // namespace lenslet::test
