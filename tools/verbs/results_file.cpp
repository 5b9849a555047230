#include "tools/verbs/results_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "lenslet/error.h"
#include "tools/verbs/classify_output.h"
#include "tools/verbs/csv.h"
#include "tools/verbs/terminal.h"

namespace lenslet::tool {

namespace {

using nlohmann::json;

// Names and errors, which may have newlines, are shorter: a quote is missing.
constexpr std::size_t most_quoted = std::size_t{1} << 16;

/// A line with its newline, or several where CSV quotes newlines; empty if the quotes do not end. False for the end,
/// and for a last one without newline.
bool next_record(std::istream& stream, bool csv, std::string& record) {
  record.clear();
  bool quoted = false;
  do {
    std::string line;
    std::getline(stream, line);
    record += line;
    if (!stream || stream.eof()) return false;
    if (csv && std::ranges::count(line, '"') % 2 != 0) quoted = !quoted;
    record += '\n';
    if (quoted && record.size() > most_quoted) record.clear(), quoted = false;
  } while (quoted);
  return true;
}

/// As a JSON line has it, where bytes that are not UTF-8 are replaced.
std::string name_in(std::string_view format, const std::string& name) {
  if (format != "jsonl") return name;
  return json::parse(json(name).dump(-1, ' ', false, json::error_handler_t::replace)).get<std::string>();
}

[[noreturn]] void refuse(std::size_t number, std::string_view format) {
  throw Error(ErrorKind::invalid_argument, fmt::format("row {} is not of classify --format {}", number, format));
}

/// An incomplete row is removed: the file's first one must begin as results do.
void check_first(std::string_view record, std::string_view begins, std::string_view format) {
  if (!begins.starts_with(record.substr(0, begins.size()))) refuse(1, format);
}

EarlierResults read_json_lines(std::istream& stream) {
  EarlierResults earlier;
  std::string line;
  for (; next_record(stream, false, line); earlier.bytes += line.size()) {
    const json row = json::parse(line, nullptr, false);
    if (!row.is_object() || !row.contains("file") || !row["file"].is_string() ||
        !(row.contains("top") || row.contains("error")))
      refuse(earlier.count + 1, "jsonl");
    ++earlier.photos[row["file"].get<std::string>()];
    ++earlier.count;
  }
  if (earlier.count == 0) check_first(line, R"({"file":")", "jsonl");
  return earlier;
}

EarlierResults read_csv(std::istream& stream, std::size_t top) {
  EarlierResults earlier;
  std::uint64_t at = 0;
  std::string name;  // the photo whose rows are being read; its results are counted when they are whole
  bool whole = true;
  const auto count = [&] {
    if (!name.empty()) ++earlier.photos[name], ++earlier.count;
    name.clear();
    earlier.bytes = at;
  };
  std::size_t number = 0;
  std::string record;
  for (; next_record(stream, true, record); at += record.size()) {
    std::vector<std::string> fields = csv_fields(record);
    if (++number == 1 ? fields != csv_columns : fields.size() != csv_columns.size()) refuse(number, "csv");
    const std::string& rank = fields[1];
    if (number == 1 || rank.empty() || rank == "1") count();
    if (number > 1) name = std::move(fields[0]);
    whole = number == 1 || rank.empty() || rank == fmt::to_string(top);
  }
  if (number == 0) check_first(record, fmt::format("{}\n", fmt::join(csv_columns, ",")), "csv");
  if (whole) count();
  return earlier;
}

}  // namespace

EarlierResults read_results(std::istream& stream, std::string_view format, std::size_t top) {
  return format == "csv" ? read_csv(stream, top) : read_json_lines(stream);
}

void remove_done(std::vector<std::string>& photos, ResultCounts done, std::string_view format) {
  std::erase_if(photos, [&](const std::string& photo) {
    const auto found = done.find(name_in(format, photo));
    return found != done.end() && found->second > 0 && found->second-- > 0;
  });
}

ResultsFile::ResultsFile(const std::string& file, std::string_view format, bool resume, std::size_t top) {
  const auto fail = [&](int error) {
    throw Error(ErrorKind::io, fmt::format("cannot be written: {}", std::generic_category().message(error)), file);
  };
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0) fail(errno);
  stream_.reset(::fdopen(descriptor, "a"));
  if (stream_ == nullptr) fail(errno);
  const bool is_locked = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
  struct stat status {};  // after the lock: another run's results count
  if (::fstat(descriptor, &status) != 0) fail(errno);
  if (!S_ISREG(status.st_mode)) throw Error(ErrorKind::io, "this is no regular file", file);
  if (!is_locked) throw Error(ErrorKind::io, "another run is writing to it", file);
  if (!resume) {
    if (status.st_size > 0) throw Error(ErrorKind::io, "is there already (--resume continues it)", file);
    return;
  }
  try {
    std::ifstream stream(file, std::ios::binary);
    earlier = read_results(stream, format, top);
    if (!stream.is_open() || stream.bad()) throw Error(ErrorKind::io, "cannot be read");
  } catch (const Error& error) {
    throw error.within(file);
  }
  if (earlier.bytes == static_cast<std::uint64_t>(status.st_size)) return;
  note(fmt::format("{}: its end is incomplete, and is removed", file));
  if (::ftruncate(descriptor, static_cast<off_t>(earlier.bytes)) != 0) fail(errno);
}

}  // namespace lenslet::tool
