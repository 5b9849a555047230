#include "tools/verbs/classify_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "tools/verbs/common_options.h"
#include "tools/verbs/terminal.h"

namespace lenslet::tool {

namespace {

using Json = nlohmann::ordered_json;

Json to_json(const PhotoResult& result) {
  Json entry{{"file", result.file}};
  if (!result.error.empty()) {
    entry["error"] = result.error;
    return entry;
  }
  entry["top"] = Json::array();
  for (const ClassResult& best : result.top)
    entry["top"].push_back(
        {{"index", best.index}, {"label", best.label}, {result.probabilities ? "prob" : "score", best.prob}});
  entry["ms"] = {
      {"decode", result.decode_ms}, {"preprocess", result.preprocess_ms}, {"inference", result.inference_ms}};
  return entry;
}

class Table : public ResultPrinter {
 public:
  explicit Table(std::string device) : device_(std::move(device)) {}

  void add(const PhotoResult& result) override {
    if (!result.error.empty()) return;
    fmt::print("{}  {}\n", printable(result.file),
               styled(Style::dim,
                      fmt::format("(decode {:.1f} ms, preprocess {:.1f} ms, inference {:.1f} ms)", result.decode_ms,
                                  result.preprocess_ms, result.inference_ms),
                      stdout));
    for (const ClassResult& best : result.top) {
      const auto score = static_cast<double>(best.prob);
      const std::string number = result.probabilities
                                     ? fmt::format("{:>6.2f} %  {}", 100.0 * score, bar(score, 20, utf8_))
                                     : fmt::format("score {:>10.4g}", score);
      const Style style = &best == &result.top.front() ? Style::bold : Style::plain;
      fmt::print("  {}  {:>4}  {}\n", number, best.index,
                 styled(style, best.label.empty() ? "(no label)" : best.label, stdout));
    }
    ++good_;
    decode_ += result.decode_ms;
    preprocess_ += result.preprocess_ms;
    inference_ += result.inference_ms;
  }

  void finish() override {
    if (good_ < 2) return;
    const auto count = static_cast<double>(good_);
    fmt::print("{} photos on {}, each: decode {:.1f} ms, preprocess {:.1f} ms, inference {:.1f} ms\n", good_, device_,
               decode_ / count, preprocess_ / count, inference_ / count);
  }

 private:
  const bool utf8_ = locale_is_utf8();
  std::string device_;
  std::size_t good_ = 0;
  double decode_ = 0, preprocess_ = 0, inference_ = 0;
};

class Document : public ResultPrinter {
 public:
  explicit Document(Json header) : document_(std::move(header)) { document_["results"] = Json::array(); }
  void add(const PhotoResult& result) override { document_["results"].push_back(to_json(result)); }
  void finish() override { print_document(document_); }

 private:
  Json document_;
};

class JsonLines : public ResultPrinter {
 public:
  void add(const PhotoResult& result) override {
    fmt::print("{}\n", to_json(result).dump(-1, ' ', false, Json::error_handler_t::replace));
    std::fflush(stdout);
  }
};

/// RFC 4180, but for its line ends: a row a class, or one for a photo that failed.
class Csv : public ResultPrinter {
 public:
  Csv() { fmt::print("file,rank,index,label,prob,score,error\n"); }

  void add(const PhotoResult& result) override {
    const std::string file = field(result.file);
    if (!result.error.empty()) fmt::print("{},,,,,,{}\n", file, field(result.error));
    int rank = 0;
    for (const ClassResult& best : result.top)
      fmt::print("{},{},{},{},{}{}{},\n", file, ++rank, best.index, field(best.label), result.probabilities ? "" : ",",
                 best.prob, result.probabilities ? "," : "");
    std::fflush(stdout);
  }

 private:
  /// As it is for a program; a terminal is not to be steered by names.
  std::string field(const std::string& text) const {
    std::string shown = at_terminal_ ? printable(text) : text;
    if (shown.find_first_of(",\"\r\n") == std::string::npos) return shown;
    for (std::size_t at = 0; (at = shown.find('"', at)) != std::string::npos; at += 2) shown.insert(at, 1, '"');
    return fmt::format("\"{}\"", shown);
  }

  const bool at_terminal_ = isatty(STDOUT_FILENO) == 1;
};

}  // namespace

std::unique_ptr<ResultPrinter> make_result_printer(std::string_view format, nlohmann::ordered_json header,
                                                   std::string device) {
  if (format == "json") return std::make_unique<Document>(std::move(header));
  if (format == "jsonl") return std::make_unique<JsonLines>();
  if (format == "csv") return std::make_unique<Csv>();
  return std::make_unique<Table>(std::move(device));
}

}  // namespace lenslet::tool
