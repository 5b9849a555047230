// lenslet/check.h for Python.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "c_api/tensors.h"
#include "lenslet/c_api.h"
#include "lenslet/check.h"
#include "python/native/python.h"

using namespace lenslet;

namespace {

// Python's float() reads either.
nlohmann::json number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

nlohmann::json shapes(const std::vector<Shape>& given) {
  nlohmann::json list = nlohmann::json::array();
  for (const Shape& shape : given) list.push_back(std::vector<std::int64_t>(shape.dims().begin(), shape.dims().end()));
  return list;
}

char* text_of(const std::vector<LayerCheck>& rows) {
  constexpr const char* kinds[] = {"layer", "output", "refusal"};
  nlohmann::json list = nlohmann::json::array();
  for (const LayerCheck& row : rows)
    list.push_back({{"kind", kinds[static_cast<std::size_t>(row.kind)]},
                    {"name", row.name},
                    {"op", row.op},
                    {"algorithm", row.algorithm},
                    {"config", row.config},
                    {"device", row.device},
                    {"precision", row.precision},
                    {"forced", row.forced},
                    {"input_shapes", shapes(row.input_shapes)},
                    {"output_shapes", shapes(row.output_shapes)},
                    {"error", number(row.error)},
                    {"tolerance", number(row.tolerance)},
                    {"worst_output", row.worst_output},
                    {"worst_element", row.worst_element},
                    {"got", number(row.got)},
                    {"exact", number(row.exact)},
                    {"not_finite", row.not_finite},
                    {"made_nan", row.made_nan},
                    {"beyond_range", row.beyond_range},
                    {"largest", number(row.largest)},
                    {"refusal", row.refusal},
                    {"skipped", row.skipped},
                    {"ms", number(row.ms)},
                    {"runs", row.runs},
                    {"judged", row.judged()},
                    {"passed", row.passed()},
                    {"measure", std::string(row.measure())},
                    {"text", row.str()}});
  return c_api::text_for_app(list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::vector<Tensor> copies(const lenslet_tensor* given, std::size_t count) {
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < count; ++i)
    tensors.push_back(given[i].data == nullptr ? Tensor() : c_api::host_copy(given[i], "an input"));
  return tensors;
}

// A number, a string, a list of either, or {"tensor": its place among `tensors`}.
AttributeValue attribute(const nlohmann::json& value, const std::vector<Tensor>& tensors) {
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object()) return tensors.at(value.at("tensor").get<std::size_t>());
  const auto all = [&](const auto& is) { return std::all_of(value.begin(), value.end(), is); };
  if (all([](const auto& one) { return one.is_number_integer(); })) return value.get<std::vector<std::int64_t>>();
  if (all([](const auto& one) { return one.is_number(); })) return value.get<std::vector<double>>();
  return value.get<std::vector<std::string>>();
}

}  // namespace

lenslet_status lenslet_python_check_layers(lenslet_model* model, const lenslet_plan_options* options,
                                           const lenslet_tensor* inputs, size_t input_count, const char* how,
                                           char** json) {
  return c_api::guarded([&] {
    const nlohmann::json given = nlohmann::json::parse(how);
    *json = text_of(check_layers(c_api::model_of(model), {.inputs = copies(inputs, input_count),
                                                          .seed = given.at("seed"),
                                                          .outputs = given.at("outputs"),
                                                          .seconds = given.at("seconds"),
                                                          .plan = c_api::plan_options_of(options)}));
  });
}

lenslet_status lenslet_python_check_layer(const lenslet_plan_options* options, const lenslet_tensor* inputs,
                                          size_t input_count, const char* how, char** json) {
  return c_api::guarded([&] {
    const PlanOptions plan = c_api::plan_options_of(options);
    const nlohmann::json given = nlohmann::json::parse(how);
    std::vector<Tensor> tensors = copies(inputs, input_count);
    AttributeList attributes;
    for (const auto& [name, value] : given.at("attributes").items())
      attributes.emplace_back(name, attribute(value, tensors));
    tensors.resize(given.at("inputs").get<std::size_t>());
    *json = text_of(check_layer(given.at("op").get<std::string>(), attributes, tensors,
                                {.device = plan.device,
                                 .precision = std::string(plan.numerics ? to_string(*plan.numerics) : ""),
                                 .algorithm = plan.conv_algorithm,
                                 .seconds = given.at("seconds"),
                                 .run_inputs = given.at("run_inputs"),
                                 .outputs = given.at("outputs"),
                                 .domain = given.at("domain"),
                                 .opset = given.at("opset"),
                                 .threads = plan.threads}));
  });
}
