#pragma once
// The output formats of `lenslet classify`.

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lenslet/photos.h"

namespace lenslet::tool {

/// The reason in words, without the photo's name where the error begins with it; "" for none.
std::string error_text(const PhotoResult& result);

struct ResultOutput {
  std::FILE* stream = stdout;
  std::string file{};               ///< its name; "": stdout
  bool is_continued = false;        ///< it has results already
  bool probabilities = true;        ///< else scores
  std::string device{};             ///< for the table's last line
  nlohmann::ordered_json header{};  ///< JSON before the results
};

/// Prints results. Each is written at once, whole; what was printed is a valid document after finish().
class ResultPrinter {
 public:
  explicit ResultPrinter(ResultOutput&& output) : output_(std::move(output)) {}
  virtual ~ResultPrinter() = default;
  virtual void add(const PhotoResult& result) = 0;
  virtual void finish() {}

 protected:
  void write(std::string_view text) const;
  const ResultOutput output_;
};

/// Values of --format.
inline constexpr const char* result_formats[] = {"table", "json", "jsonl", "csv"};
inline const std::vector<std::string> csv_columns{"file", "rank", "index", "label", "prob", "score", "error"};

std::unique_ptr<ResultPrinter> make_result_printer(std::string_view format, ResultOutput output);

}  // namespace lenslet::tool
