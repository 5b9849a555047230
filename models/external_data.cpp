#include "models/external_data.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>

#include "lenslet/error.h"
#include "models/limits.h"

namespace lenslet {

namespace {

namespace fs = std::filesystem;

std::uint64_t parse_count(std::string_view key, std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw Error(ErrorKind::invalid_model, fmt::format("external data: {} '{}' is not a byte count", key, text));
  return value;
}

// Checks the text only; symlinks are checked when the file is opened.
void check_location(const std::string& location) {
  const auto refuse = [&location](std::string_view why) {
    throw Error(ErrorKind::invalid_model, fmt::format("external data location '{}' {}", location, why));
  };
  if (location.empty()) refuse("is empty");
  if (location.size() > limits::external_location_bytes)
    throw Error(ErrorKind::limit, fmt::format("an external data location of {} bytes; at most {} are allowed",
                                              location.size(), limits::external_location_bytes));
  // Refused on every system, since models move between systems and '\' and "C:" have a meaning on some.
  if (location.find('\\') != std::string::npos) refuse("holds a backslash");
  if (location[1] == ':') refuse("has a drive letter");
  const fs::path path(location);
  if (path.is_absolute()) refuse("is absolute; it must be relative to the model's folder");
  if (std::any_of(path.begin(), path.end(), [](const fs::path& part) { return part == ".."; }))
    refuse("climbs out of the model's folder with '..'");
}

// Both canonical.
bool lies_in(const fs::path& file, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), file.begin(), file.end()).first == folder.end();
}

}  // namespace

const InputFile& ExternalData::open(const std::string& location) {
  check_location(location);
  if (file_ && location == location_) return *file_;
  if (folder_.empty())
    throw Error(ErrorKind::io, fmt::format("external data '{}': the model has no folder; set "
                                           "LoadOptions::external_data_dir",
                                           location));
  const bool first = !seen_.contains(location);
  if (first && seen_.size() == limits::external_files)
    throw Error(ErrorKind::limit, fmt::format("more than {} external data files", limits::external_files));
  std::error_code error;
  const fs::path folder = fs::canonical(folder_, error);
  if (error) throw Error(ErrorKind::io, fmt::format("external data folder: {}", error.message()), folder_.string());
  const fs::path name = folder / location;
  const fs::path inner = fs::canonical(name.parent_path(), error);
  const fs::path file = error ? fs::path() : fs::canonical(name, error);
  if (error) throw Error(ErrorKind::io, fmt::format("external data '{}': {}", location, error.message()));
  if (!lies_in(inner, folder))
    throw Error(ErrorKind::invalid_model,
                fmt::format("external data location '{}' leads out of the model's folder through a symlink", location));
  const bool outside = !lies_in(file, folder);
  if (outside && !fs::is_regular_file(file, error))  // opening a device may have side effects
    throw Error(ErrorKind::io, fmt::format("external data '{}' is a symlink to what is not a regular file", location));
  location_.clear();
  file_.emplace(file, limits::external_file_bytes);
  struct stat link {};
  if (outside && (::lstat(name.c_str(), &link) != 0 || link.st_uid != file_->owner()))
    throw Error(ErrorKind::invalid_model,
                fmt::format("external data location '{}' is a symlink out of the model's folder, to a file of another "
                            "owner",
                            location));
  if (seen_.try_emplace(location, file_->identity()).first->second != file_->identity())
    throw Error(ErrorKind::io, "was changed while it was read", fmt::format("external data '{}'", location));
  location_ = location;
  return *file_;
}

WeightMemory::Part ExternalData::read(const OnnxTensor& tensor, std::uint64_t bytes) {
  std::optional<std::string_view> location, offset_text, length_text;
  const auto take = [](std::optional<std::string_view>& slot, std::string_view key, std::string_view value) {
    if (slot) throw Error(ErrorKind::invalid_model, fmt::format("external data: a second {}", key));
    slot = value;
  };
  for (const auto& [key, value] : tensor.external_data) {
    if (key == "location") take(location, key, value);
    if (key == "offset") take(offset_text, key, value);
    if (key == "length") take(length_text, key, value);
    // Others (checksum, basepath of old exporters) do not say where the data lies.
  }
  if (!location) throw Error(ErrorKind::invalid_model, "external data without a location");
  const InputFile& file = open(std::string(*location));
  const std::uint64_t offset = offset_text ? parse_count("offset", *offset_text) : 0;
  const std::uint64_t size = file.bytes();
  if (offset > size)
    throw Error(ErrorKind::invalid_model,
                fmt::format("external data '{}': offset {} lies behind the file's {} bytes", *location, offset, size));
  const std::uint64_t length = length_text ? parse_count("length", *length_text) : bytes;
  if (length != bytes)
    throw Error(ErrorKind::invalid_model,
                fmt::format("external data '{}': length {} where the tensor needs {} bytes", *location, length, bytes));
  if (length > size - offset)
    throw Error(ErrorKind::invalid_model,
                fmt::format("external data '{}': offset {} and length {} reach beyond the file's {} bytes", *location,
                            offset, length, size));
  const auto [device, number] = std::pair(file.identity().device, file.identity().number);
  WeightMemory::Part& part = parts_[{device, number, offset, length}];
  if (part.owner) return part;
  // Tensors may share bytes, but a small file must not expand into large memory.
  std::uint64_t& taken = taken_[{device, number}];
  if (taken + length > limits::external_reads * size)
    throw Error(ErrorKind::limit,
                fmt::format("external data '{}': tensors that overlap in it need more than {} times its {} bytes",
                            *location, limits::external_reads, size));
  taken += length;
  const WeightMemory::Part read = weights_.take(length, size + 64);
  try {
    file.read(offset, read.bytes);
  } catch (const Error& error) {
    throw error.within(fmt::format("external data '{}'", *location));
  }
  return part = read;
}

}  // namespace lenslet
