#include "tools/verbs/trace.h"

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "lenslet/tensor_file.h"
#include "tools/verbs/terminal.h"

namespace lenslet::tool {

void write_trace(const std::filesystem::path& file, const MeasuredLayers& layers) {
  using Json = nlohmann::ordered_json;
  const auto named = [](const char* what, int lane, const std::string& name) {
    return Json{{"name", what}, {"ph", "M"}, {"pid", 1}, {"tid", lane + 1}, {"args", {{"name", name}}}};
  };
  const Timeline timeline = layers.timeline.value_or(Timeline());
  if (timeline.spans.empty()) say("the trace is empty: no timeline on CUDA of shapes that depend on computed values");
  const std::vector<int> rows = rows_of_steps(layers);
  Json events = Json::array({named("process_name", 0, layers.model.name() + " on " + layers.plan.device)});
  for (std::size_t i = 0; i < timeline.lanes.size(); ++i)
    events.push_back(named("thread_name", static_cast<int>(i), timeline.lanes[i]));
  for (const TimelineSpan& span : timeline.spans) {
    const int row = span.step < 0 ? -1 : rows[static_cast<std::size_t>(span.step)];
    Json event = {{"name", "outside the layers"},
                  {"cat", to_string(span.kind)},
                  {"ph", "X"},
                  {"pid", 1},
                  {"tid", span.lane + 1},
                  {"ts", span.begin_us},
                  {"dur", span.end_us - span.begin_us}};
    if (row >= 0) {
      const LayerRow& layer = layers.rows[static_cast<std::size_t>(row)];
      event["name"] = layer.time.step.name;
      event["args"] = to_json(layer);
    }
    events.push_back(std::move(event));
  }
  const Json document = {{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}};
  const std::string text = document.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
  write_file(file, std::as_bytes(std::span(text)));
}

}  // namespace lenslet::tool
