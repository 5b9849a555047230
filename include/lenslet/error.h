#pragma once
// The one exception type of lenslet.

#include <stdexcept>
#include <string>
#include <string_view>

#include "lenslet/export.h"

namespace lenslet {

/// What went wrong, coarse enough to act on. `lenslet` maps each kind to an exit code.
enum class ErrorKind {
  invalid_argument,  ///< the caller asked for something that makes no sense
  invalid_model,     ///< a model file that is damaged or contradicts itself
  unsupported,       ///< well-formed, but not supported by lenslet
  invalid_image,     ///< an image file that is damaged or of a refused kind
  io,                ///< a file that cannot be opened, read or written
  limit,             ///< a published limit (docs/limits.md) was exceeded, or the host has no memory left
  device,            ///< an accelerator, its driver or its library failed
  internal,          ///< a broken invariant of ours: please report it
  cancelled,         ///< the caller asked for the run's end (RunOptions::stop)
};

/// The kind as a lower-case phrase, for messages ("invalid model").
LENSLET_API std::string_view to_string(ErrorKind kind) noexcept;

/// Thrown on every failure in lenslet. `what()` is one line, "CONTEXT: MESSAGE"; the context names file and node where
/// known. If several nodes are at fault, an indented line for each follows.
class LENSLET_API Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string message, std::string context = {});

  ErrorKind kind() const noexcept { return kind_; }
  /// Where it happened: "resnet18.onnx: node conv1 (Conv)"; empty if unknown.
  const std::string& context() const noexcept { return context_; }
  /// What happened, without the context.
  const std::string& message() const noexcept { return message_; }
  /// The same error with `outer` prepended to the context ("outer: context").
  Error within(std::string_view outer) const;

 private:
  ErrorKind kind_;
  std::string message_;
  std::string context_;
};

}  // namespace lenslet
