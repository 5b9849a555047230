#pragma once
// Folders in the layout of the ONNX backend tests: model.onnx, test_data_set_K/input_I.pb, output_I.pb.

#include <filesystem>
#include <string>
#include <vector>

#include "lenslet/model.h"
#include "lenslet/tensor.h"
#include "tools/verbs/compare.h"

namespace lenslet::tool {

/// All folders in and below `root` that hold a model.onnx, or that cannot be read (run_case fails on those), sorted by
/// path. Symlinked folders are not followed.
/// Error(io) when `root` is no folder.
std::vector<std::filesystem::path> find_cases(const std::filesystem::path& root);

struct CaseResult {
  enum class Status { passed, failed, unsupported };
  Status status = Status::passed;
  std::string reason;                ///< one line; empty when passed
  std::vector<std::string> digests;  ///< of all outputs, set by set
};
std::string_view to_string(CaseResult::Status status);

/// Runs every data set of one case. The plan is made for the inputs (runner_for). Errors of kind unsupported or limit
/// make the case unsupported, all others failed; nothing is thrown but bad_alloc.
/// `each_pass`: more plans have to give the outputs, each without one of the optional passes, and one without any.
CaseResult run_case(const std::filesystem::path& folder, PlanOptions options, const Tolerance& tolerance,
                    bool each_pass = false);

}  // namespace lenslet::tool
