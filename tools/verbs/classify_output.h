#pragma once
// The output formats of `lenslet classify`.

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lenslet/classifier.h"

namespace lenslet::tool {

struct PhotoResult {
  std::string file;
  std::string error;  ///< empty: no error
  std::vector<ClassResult> top;
  bool probabilities = true;
  double decode_ms = 0, preprocess_ms = 0, inference_ms = 0;
  bool done = false;
};

/// Prints results to stdout. add() takes those of each photo in order, finish() ends the output.
class ResultPrinter {
 public:
  virtual ~ResultPrinter() = default;
  virtual void add(const PhotoResult& result) = 0;
  virtual void finish() {}
};

/// Values of --format.
inline constexpr const char* result_formats[] = {"table", "json", "jsonl", "csv"};

/// `header`: JSON before the results. `device`: for the table's last line. jsonl and csv print results immediately.
std::unique_ptr<ResultPrinter> make_result_printer(std::string_view format, nlohmann::ordered_json header,
                                                   std::string device);

}  // namespace lenslet::tool
