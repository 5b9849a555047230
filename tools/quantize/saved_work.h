#pragma once
// Calibration of a run that was stopped, in a file from which the same command continues.

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tools/quantize/calibration.h"

namespace lenslet::tool {

/// The file holds sums and counts, so a continued run computes the same bits as one that was not stopped.
class SavedWork {
 public:
  /// `key` identifies model, options and photos. An empty `file` keeps nothing.
  SavedWork(std::filesystem::path file, std::string key);

  /// What `file` holds for `key` and values with these groups; empty if there is none, or it is another command's,
  /// which stderr says. Error(invalid_argument) names the field that is damaged, or a file that is not ours.
  Calibration read(const std::map<std::string, std::string>& groups, std::size_t files);
  /// The error of a layer that was quantised alone before, or nothing.
  std::optional<double> row(const std::string& layer) const;

  void keep(const Calibration& calibration);
  void keep_row(const std::string& layer, double error) { document_["rows"][layer] = error; }
  /// Error(io).
  void write() const;
  void remove() const;
  const std::filesystem::path& file() const { return file_; }

 private:
  std::filesystem::path file_;
  nlohmann::json document_;
};

}  // namespace lenslet::tool
