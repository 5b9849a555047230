#include "tools/verbs/classify_output.h"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "lenslet/error.h"
#include "tools/measuring/samples.h"
#include "tools/verbs/csv.h"
#include "tools/verbs/terminal.h"

namespace lenslet::tool {

namespace {

using Json = nlohmann::ordered_json;

Json to_json(const PhotoResult& result, bool probabilities) {
  Json entry{{"file", result.name}};
  if (result.error) {
    entry["error"] = error_text(result);
    return entry;
  }
  entry["top"] = Json::array();
  for (const ClassResult& best : result.top)
    entry["top"].push_back(
        {{"index", best.index}, {"label", best.label}, {probabilities ? "prob" : "score", best.prob}});
  if (result.decoded_on_gpu) entry["decoded_on_gpu"] = true;
  entry["ms"] = {{"decode", result.decode_ms}, {"preprocess", result.prepare_ms}, {"inference", result.run_ms}};
  return entry;
}

std::string text_of(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

class Table : public ResultPrinter {
 public:
  using ResultPrinter::ResultPrinter;

  void add(const PhotoResult& result) override {
    if (result.error) return;
    std::string text = fmt::format("{}  {}\n", printable(result.name),
                                   styled(Style::dim,
                                          fmt::format("(decode {:.1f} ms, preprocess {:.1f} ms, inference {:.1f} ms)",
                                                      result.decode_ms, result.prepare_ms, result.run_ms),
                                          output_.stream));
    for (const ClassResult& best : result.top) {
      const auto score = static_cast<double>(best.prob);
      const std::string number = output_.probabilities
                                     ? fmt::format("{:>6.2f} %  {}", 100.0 * score, bar(score, 20, utf8_))
                                     : fmt::format("score {:>10.4g}", score);
      const Style style = &best == &result.top.front() ? Style::bold : Style::plain;
      text += fmt::format("  {}  {:>4}  {}\n", number, best.index,
                          styled(style, best.label.empty() ? "(no label)" : best.label, output_.stream));
    }
    write(text);
    ++good_;
    decode_ += result.decode_ms;
    preprocess_ += result.prepare_ms;
    inference_ += result.run_ms;
  }

  void finish() override {
    if (good_ < 2) return;
    const auto count = static_cast<double>(good_);
    write(fmt::format("{} photos on {}, {:.1f}/s; decode {:.1f}, preprocess {:.1f}, inference {:.1f} ms each\n", good_,
                      output_.device, count / watch_.seconds(), decode_ / count, preprocess_ / count,
                      inference_ / count));
  }

 private:
  const bool utf8_ = locale_is_utf8();
  Stopwatch watch_;
  std::size_t good_ = 0;
  double decode_ = 0, preprocess_ = 0, inference_ = 0;
};

/// One document, written as dump() would write it.
class Document : public ResultPrinter {
 public:
  explicit Document(ResultOutput&& output) : ResultPrinter(std::move(output)) {
    std::string text = text_of(output_.header, 2);
    text.resize(text.size() - 2);  // without "\n}"
    write(text + ",\n  \"results\": [");
  }

  void add(const PhotoResult& result) override {
    std::string text = "\n" + text_of(to_json(result, output_.probabilities), 2);
    for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos;) text.insert(++at, 4, ' ');
    write((is_empty_ ? "" : ",") + text);
    is_empty_ = false;
  }

  void finish() override { write(is_empty_ ? "]\n}\n" : "\n  ]\n}\n"); }

 private:
  bool is_empty_ = true;
};

class JsonLines : public ResultPrinter {
 public:
  using ResultPrinter::ResultPrinter;
  void add(const PhotoResult& result) override { write(text_of(to_json(result, output_.probabilities), -1) + "\n"); }
};

/// One row for each class, or one for a photo that failed.
class Csv : public ResultPrinter {
 public:
  explicit Csv(ResultOutput&& output) : ResultPrinter(std::move(output)) {
    if (!output_.is_continued) write(csv_line(csv_columns, output_.stream));
  }

  void add(const PhotoResult& result) override {
    std::string text;
    if (result.error) text = csv_line({result.name, "", "", "", "", "", error_text(result)}, output_.stream);
    int rank = 0;
    for (const ClassResult& best : result.top) {
      const std::string score = fmt::to_string(best.prob);
      text += csv_line({result.name, fmt::to_string(++rank), fmt::to_string(best.index), best.label,
                        output_.probabilities ? score : "", output_.probabilities ? "" : score, ""},
                       output_.stream);
    }
    write(text);
  }
};

}  // namespace

std::string error_text(const PhotoResult& result) {
  if (!result.error) return "";
  return result.error->context() == result.name ? result.error->message() : result.error->what();
}

void ResultPrinter::write(std::string_view text) const {
  if (std::fwrite(text.data(), 1, text.size(), output_.stream) == text.size() && std::fflush(output_.stream) == 0)
    return;
  const std::error_code why(errno, std::generic_category());
  if (output_.file.empty()) throw std::system_error(why);
  throw Error(ErrorKind::io, fmt::format("cannot be written: {}", why.message()), output_.file);
}

std::unique_ptr<ResultPrinter> make_result_printer(std::string_view format, ResultOutput output) {
  if (format == "json") return std::make_unique<Document>(std::move(output));
  if (format == "jsonl") return std::make_unique<JsonLines>(std::move(output));
  if (format == "csv") return std::make_unique<Csv>(std::move(output));
  return std::make_unique<Table>(std::move(output));
}

}  // namespace lenslet::tool
