#include "tools/verbs/classify_output.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "tools/verbs/common_options.h"
#include "tools/verbs/csv.h"
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

/// One row for each class, or one for a photo that failed.
class Csv : public ResultPrinter {
 public:
  Csv() { print_csv_line({"file", "rank", "index", "label", "prob", "score", "error"}); }

  void add(const PhotoResult& result) override {
    if (!result.error.empty()) print_csv_line({result.file, "", "", "", "", "", result.error});
    int rank = 0;
    for (const ClassResult& best : result.top) {
      const std::string score = fmt::to_string(best.prob);
      print_csv_line({result.file, fmt::to_string(++rank), fmt::to_string(best.index), best.label,
                      result.probabilities ? score : "", result.probabilities ? "" : score, ""});
    }
    std::fflush(stdout);
  }
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
