#include "tools/quantize/saved_work.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <optional>
#include <utility>

#include "lenslet/error.h"
#include "lenslet/tensor_file.h"
#include "tools/verbs/terminal.h"

namespace lenslet::tool {

namespace {

using nlohmann::json;

constexpr std::string_view mark = "lenslet quantize 1";

void need(bool right, std::string_view field) {
  if (!right) throw std::runtime_error(fmt::format("{} is damaged", field));
}

std::vector<double> numbers(const json& list, std::string_view field) {
  auto values = list.get<std::vector<double>>();
  for (const double value : values) need(std::isfinite(value), field);
  return values;
}

Histogram histogram(const json& saved, std::string_view field) {
  std::vector<std::pair<std::size_t, double>> bins;
  for (const json& bin : saved.at("bins")) bins.emplace_back(bin.at(0).get<std::size_t>(), bin.at(1).get<double>());
  const auto made = Histogram::from(saved.at("least"), saved.at("most"), saved.at("width"), bins);
  need(made.has_value(), field);
  return *made;
}

}  // namespace

SavedWork::SavedWork(std::filesystem::path file, std::string key)
    : file_(std::move(file)), document_{{"made_by", mark}, {"key", std::move(key)}, {"rows", json::object()}} {}

Calibration SavedWork::read(const std::map<std::string, std::string>& groups, std::size_t files) {
  std::error_code ignored;
  if (file_.empty() || !std::filesystem::exists(file_, ignored)) return {};
  std::string field = "its JSON";
  try {
    if (!std::filesystem::is_regular_file(file_, ignored)) throw std::runtime_error("it is no file");
    std::ifstream stream(file_, std::ios::binary);
    json saved = json::parse(stream);
    field = "made_by";
    need(saved.at(field) == mark, field);
    field = "key";
    if (saved.at(field) != document_.at(field)) {
      note(fmt::format("{} is of another command, model or photos: beginning anew", file_.string()));
      return {};
    }
    Calibration read;
    for (const auto& [name, to] : {std::pair{"done", &read.done}, {"runs", &read.runs}, {"failed", &read.failed}}) {
      field = name;
      need(saved.at(field).is_number_unsigned(), field);
      *to = saved.at(field).get<std::size_t>();
    }
    need(read.done <= files && read.runs <= read.done && read.failed == read.done - read.runs, "done");
    field = "values";
    need(saved.at(field).size() == (read.runs == 0 ? 0 : groups.size()), field);
    for (const auto& [name, value] : saved.at("values").items()) {
      field = "values/" + name;
      need(groups.contains(name), field);
      read.values[name] = histogram(value, field);
    }
    field = "means";
    for (const auto& [name, sums] : saved.at("means").items()) {
      field = "means/" + name;
      need(groups.contains(name), field);
      read.means[name] = numbers(sums, field);
    }
    field = "rows";
    for (const auto& [name, error] : saved.at("rows").items()) {
      field = "rows/" + name;
      need(error.is_number() && std::isfinite(error.get<double>()) && error.get<double>() >= 0, field);
    }
    document_ = std::move(saved);
    return read;
  } catch (const std::exception& error) {  // of JSON, too, whose words are for programmers
    const bool ours = dynamic_cast<const std::runtime_error*>(&error) != nullptr;
    throw Error(ErrorKind::invalid_argument,
                fmt::format("cannot be continued from: {}; delete it to begin anew",
                            ours ? error.what() : fmt::format("{} is damaged", field)),
                file_.string());
  }
}

std::optional<double> SavedWork::row(const std::string& layer) const {
  const auto found = document_.at("rows").find(layer);
  return found == document_.at("rows").end() ? std::nullopt : std::optional(found->get<double>());
}

void SavedWork::keep(const Calibration& calibration) {
  document_["done"] = calibration.done;
  document_["runs"] = calibration.runs;
  document_["failed"] = calibration.failed;
  document_["means"] = calibration.means;
  json& values = document_["values"] = json::object();
  for (const auto& [name, value] : calibration.values) {
    json bins = json::array();
    value.each_bin([&](std::size_t bin, double count) { bins.push_back({bin, count}); });
    values[name] = {{"least", value.least()}, {"most", value.most()}, {"width", value.width()}, {"bins", bins}};
  }
}

void SavedWork::write() const {
  if (file_.empty()) return;
  const std::string text = document_.dump(-1, ' ', false, json::error_handler_t::replace);
  write_file(file_, std::as_bytes(std::span(text)));
}

void SavedWork::remove() const {
  std::error_code ignored;
  if (!file_.empty()) std::filesystem::remove(file_, ignored);
}

}  // namespace lenslet::tool
