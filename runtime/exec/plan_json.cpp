#include "lenslet/plan_json.h"

#include <algorithm>
#include <variant>

#include "base/boundary.h"
#include "base/json_writer.h"

namespace lenslet {

namespace {

class PlanWriter {
 public:
  std::string write(const PlanInfo& plan) {
    json_.object([&] {
      json_.member("device", plan.device);
      json_.member("precision", to_string(plan.numerics));
      json_.member("threads", plan.threads);
      ports("inputs", plan.inputs, {});
      ports("outputs", plan.outputs, plan.late_outputs);
      list("steps", plan.steps);
      json_.object("late", [&] {
        list("nodes", plan.late);
        json_.member("copies", plan.late_copies);
        json_.member("copied_bytes", plan.late_copied_bytes);
      });
      list("bands", plan.bands);
      list("placements", plan.placements);
      memory(plan.memory);
      json_.member("layout_conversions", plan.layout_conversions);
      json_.member("type_conversions", plan.type_conversions);
      json_.member("explicit_paddings", plan.explicit_paddings);
    });
    return json_.take();
  }

 private:
  template <typename Rows>
  void list(const char* name, const Rows& rows) {
    json_.array(name, [&] {
      for (const auto& row : rows) json_.object([&] { members(row); });
    });
  }
  template <typename Values>
  void values(const char* name, const Values& of) {
    json_.array(name, [&] {
      for (const auto& value : of) json_.element(value);
    });
  }

  void ports(const char* name, const std::vector<std::pair<std::string, Shape>>& of,
             const std::vector<std::size_t>& late) {
    json_.array(name, [&] {
      for (std::size_t i = 0; i < of.size(); ++i)
        json_.object([&] {
          json_.member("name", of[i].first);
          if (std::find(late.begin(), late.end(), i) != late.end())
            json_.member("shape", nullptr);
          else
            values("shape", of[i].second.dims());
        });
    });
  }

  void members(const StepInfo& step) {
    json_.member("name", step.name);
    json_.member("op", step.op);
    json_.object("attributes", [&] {
      for (const auto& attribute : step.attributes)
        std::visit([&](const auto& value) { write_attribute(attribute.first, value); }, attribute.second);
    });
    values("inputs", step.inputs);
    json_.array("outputs", [&] {
      for (std::size_t i = 0; i < step.outputs.size(); ++i)
        json_.object([&] {
          json_.member("name", step.outputs[i]);
          values("shape", step.output_shapes[i].dims());
          json_.member("layout", to_string(step.output_formats[i]));
        });
    });
    json_.member("flops", step.flops);
    json_.member("bytes", step.bytes);
    json_.member("estimated_us", step.estimated_us);
    json_.member("no_op", step.no_op);
    json_.member("workspace_bytes", step.workspace_bytes);
    json_.member("config", step.config);
    json_.member("tolerance", step.tolerance);
    if (step.candidates.empty()) return;
    json_.member("problem", step.problem);
    json_.member("algorithm", step.algorithm);
    json_.member("reason", step.reason);
    list("candidates", step.candidates);
  }

  template <typename T>
  void write_attribute(const std::string& name, const T& value) {
    json_.member(name, value);
  }
  template <typename T>
  void write_attribute(const std::string& name, const std::vector<T>& of) {
    values(name.c_str(), of);
  }
  void write_attribute(const std::string& name, const Tensor& tensor) {
    json_.object(name, [&] {
      json_.member("dtype", to_string(tensor.dtype()));
      values("shape", tensor.shape().dims());
    });
  }

  void members(const StepCandidate& candidate) {
    json_.member("algorithm", candidate.algorithm);
    if (!candidate.refusal.empty()) return json_.member("refusal", candidate.refusal);
    json_.member("config", candidate.config);
    json_.member("estimated_us", candidate.estimated_us);
    json_.member("neighbours_us", candidate.neighbours_us);
    json_.member("workspace_bytes", candidate.workspace_bytes);
    json_.member("tolerance", candidate.tolerance);
  }

  void members(const LateInfo& node) {
    json_.member("name", node.name);
    json_.member("op", node.op);
    json_.member("reason", node.reason);
    json_.array("at_most", [&] {
      for (const Shape& shape : node.at_most)
        json_.array([&] {
          for (const std::int64_t dim : shape.dims()) json_.element(dim);
        });
    });
  }

  void members(const BandInfo& band) {
    json_.member("first_step", band.first_step);
    json_.member("last_step", band.last_step);
    json_.member("rows", band.rows);
    json_.member("reason", band.reason);
  }

  void members(const PlacementInfo& placement) {
    json_.member("value", placement.value);
    json_.member("offset", placement.offset);
    json_.member("bytes", placement.bytes);
    json_.member("first_step", placement.first_step);
    json_.member("last_step", placement.last_step);
  }

  void memory(const MemoryReport& of) {
    json_.object("memory", [&] {
      json_.member("weight_bytes", of.weight_bytes);
      json_.member("uploaded_bytes", of.uploaded_bytes);
      json_.member("prepared_bytes", of.prepared_bytes);
      json_.member("activation_bytes", of.activation_bytes);
      json_.member("activation_sum_bytes", of.activation_sum_bytes);
      json_.member("lower_bound_bytes", of.lower_bound_bytes);
      json_.member("workspace_bytes", of.workspace_bytes);
      json_.member("peak_bytes", of.peak_bytes);
    });
  }

  JsonWriter json_;
};

}  // namespace

std::string to_json(const PlanInfo& plan) {
  return at_boundary([&] { return PlanWriter().write(plan); });
}

}  // namespace lenslet
