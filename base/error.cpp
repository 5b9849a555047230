#include "lenslet/error.h"

#include <utility>

namespace lenslet {

namespace {

std::string join(const std::string& context, const std::string& message) {
  return context.empty() ? message : context + ": " + message;
}

}  // namespace

std::string_view to_string(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::invalid_argument:
      return "invalid argument";
    case ErrorKind::invalid_model:
      return "invalid model";
    case ErrorKind::unsupported:
      return "unsupported";
    case ErrorKind::invalid_image:
      return "invalid image";
    case ErrorKind::io:
      return "i/o error";
    case ErrorKind::limit:
      return "limit exceeded";
    case ErrorKind::device:
      return "device error";
    case ErrorKind::internal:
      return "internal error";
    case ErrorKind::cancelled:
      return "cancelled";
  }
  return "error";
}

Error::Error(ErrorKind kind, std::string message, std::string context)
    : std::runtime_error(join(context, message)),
      kind_(kind),
      message_(std::move(message)),
      context_(std::move(context)) {}

Error Error::within(std::string_view outer) const {
  std::string context(outer);
  if (!context_.empty()) context += ": " + context_;
  return {kind_, message_, std::move(context)};
}

}  // namespace lenslet
