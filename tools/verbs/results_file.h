#pragma once
// --output and --resume of `lenslet classify`.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <istream>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lenslet::tool {

using ResultCounts = std::unordered_map<std::string, std::size_t>;  // by the photo's name

/// What a run left, perhaps killed while it wrote.
struct EarlierResults {
  ResultCounts photos{};
  std::size_t count = 0;
  std::uint64_t bytes = 0;  ///< of the whole results: the file's beginning
};

/// `format`: jsonl or csv. The last photo's rows of CSV are whole if there are `top` of them, or an error. The last row
/// of either needs its newline. Error(invalid_argument) for other rows.
EarlierResults read_results(std::istream& stream, std::string_view format, std::size_t top);
/// Removes those that have results, in the order of `photos`. A name with one result that is there twice stays once.
void remove_done(std::vector<std::string>& photos, ResultCounts done, std::string_view format);

/// --output: a new file, or one to be continued.
class ResultsFile {
 public:
  /// Opens `file` and locks it against another run. With `resume` incomplete results at its end are removed. Error(io)
  /// unless it can be written and, without `resume`, is empty.
  ResultsFile(const std::string& file, std::string_view format, bool resume, std::size_t top);
  std::FILE* stream() const { return stream_.get(); }

  EarlierResults earlier{};

 private:
  struct Close {
    void operator()(std::FILE* stream) const { std::fclose(stream); }
  };
  std::unique_ptr<std::FILE, Close> stream_;
};

}  // namespace lenslet::tool
