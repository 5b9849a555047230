#include "tools/verbs/trace.h"

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "lenslet/tensor_file.h"

namespace lenslet::tool {

void write_trace(const std::filesystem::path& file, const std::string& model, const std::string& device,
                 std::span<const LayerRow> rows) {
  using Json = nlohmann::ordered_json;
  const auto named = [](const char* what, const std::string& name) {
    return Json{{"name", what}, {"ph", "M"}, {"pid", 1}, {"tid", 1}, {"args", {{"name", name}}}};
  };
  Json events = Json::array({named("process_name", model), named("thread_name", device)});
  double at_us = 0;
  for (const LayerRow& row : rows) {
    const LayerTime& time = row.time;
    const std::string kind = time.step.algorithm.empty() ? time.step.op : time.step.op + " " + time.step.algorithm;
    events.push_back({{"name", time.step.name},
                      {"cat", kind},
                      {"ph", "X"},
                      {"pid", 1},
                      {"tid", 1},
                      {"ts", at_us},
                      {"dur", time.us.median},
                      {"args", to_json(row)}});
    at_us += time.us.median;
  }
  const Json document = {{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}};
  const std::string text = document.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
  write_file(file, std::as_bytes(std::span(text)));
}

}  // namespace lenslet::tool
