#pragma once
// Folders in the layout of the ONNX backend tests: model.onnx, test_data_set_K/input_I.pb, output_I.pb.

#include <filesystem>
#include <string>
#include <vector>

#include "lenslet/model.h"
#include "lenslet/tensor.h"
#include "tools/verbs/compare.h"

namespace lenslet::tool {

/// All folders in and below `root` with a model.onnx, sorted by path, and unreadable ones, which run_case() reports as
/// failed. Symlinked folders are not followed. Error(io) if `root` is not a folder.
std::vector<std::filesystem::path> find_cases(const std::filesystem::path& root);

struct CaseResult {
  enum class Status { passed, failed, unsupported };
  Status status = Status::passed;
  std::string reason;                ///< one line; empty if passed
  std::vector<std::string> digests;  ///< of all outputs, by data set
};
std::string_view to_string(CaseResult::Status status);

/// Runs every data set of one case, with a plan for its inputs (runner_for). Errors of kind unsupported or limit make
/// the case unsupported, all others failed; only bad_alloc is thrown. `each_pass`: further plans, each without one
/// optional pass and one without any, must give the same outputs.
CaseResult run_case(const std::filesystem::path& folder, PlanOptions options, const Tolerance& tolerance,
                    bool each_pass = false);

}  // namespace lenslet::tool
