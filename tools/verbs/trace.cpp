#include "tools/verbs/trace.h"

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "lenslet/error.h"

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
  std::ofstream stream(file, std::ios::binary);
  stream << document.dump(1, ' ', false, Json::error_handler_t::replace) << '\n';
  stream.close();
  if (stream) return;
  const std::error_code why(errno, std::generic_category());
  std::error_code ignored;
  if (std::filesystem::is_regular_file(file, ignored)) std::filesystem::remove(file, ignored);
  throw Error(ErrorKind::io, "cannot be written: " + why.message(), file.string());
}

}  // namespace lenslet::tool
