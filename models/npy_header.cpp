#include "models/npy_header.h"

#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <optional>
#include <string_view>

#include "lenslet/error.h"
#include "models/limits.h"

namespace lenslet {

namespace {

constexpr std::string_view magic = "\x93NUMPY";

struct TypeCode {
  std::string_view code;  // without the byte order
  DType dtype;
};
constexpr TypeCode type_codes[] = {{"f4", DType::f32}, {"f8", DType::f64}, {"f2", DType::f16}, {"i1", DType::i8},
                                   {"u1", DType::u8},  {"i2", DType::i16}, {"u2", DType::u16}, {"i4", DType::i32},
                                   {"u4", DType::u32}, {"i8", DType::i64}, {"u8", DType::u64}, {"b1", DType::boolean}};

[[noreturn]] void damaged(std::string_view what) {
  throw Error(ErrorKind::io, fmt::format("not a readable .npy file: {}", what));
}

/// Reads the Python dictionary literal of the header: just the three keys, and just the literals that may stand there.
class DictParser {
 public:
  explicit DictParser(std::string_view text) : text_(text) {}

  NpyHeader parse() {
    NpyHeader header;
    bool descr = false, order = false, shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && !descr) {
        header.dtype = dtype();
        descr = true;
      } else if (key == "fortran_order" && !order) {
        header.fortran_order = boolean();
        order = true;
      } else if (key == "shape" && !shape) {
        header.shape = tuple();
        shape = true;
      } else {
        damaged("an unknown or doubled key in its header");
      }
      if (accept(',')) continue;
      expect('}');
      break;
    }
    skip_blanks();
    if (!text_.empty()) damaged("text behind its header");
    if (!descr || !order || !shape) damaged("its header lacks descr, fortran_order or shape");
    return header;
  }

 private:
  void skip_blanks() {
    const auto start = text_.find_first_not_of(" \t\r\n");
    text_.remove_prefix(start == std::string_view::npos ? text_.size() : start);
  }
  bool accept(char c) {
    skip_blanks();
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!accept(c)) damaged(fmt::format("'{}' expected in its header", c));
  }
  /// Blanks before it are skipped already.
  std::string_view quoted() {
    if (text_.empty() || (text_.front() != '\'' && text_.front() != '"')) damaged("a string expected in its header");
    const auto end = text_.find(text_.front(), 1);
    if (end == std::string_view::npos) damaged("a string without end in its header");
    const std::string_view content = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return content;
  }
  bool boolean() {
    skip_blanks();
    for (const auto& [word, value] : {std::pair{std::string_view("True"), true}, {std::string_view("False"), false}})
      if (text_.starts_with(word)) {
        text_.remove_prefix(word.size());
        return value;
      }
    damaged("True or False expected in its header");
  }
  Shape tuple() {
    std::vector<std::int64_t> dims;
    expect('(');
    while (!accept(')')) {
      std::int64_t dim = 0;
      const auto [end, error] = std::from_chars(text_.data(), std::to_address(text_.end()), dim);
      if (error != std::errc() || dim < 0) damaged("a dimension expected in its header");
      text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
      dims.push_back(dim);
      if (dims.size() > static_cast<std::size_t>(limits::rank))
        throw Error(ErrorKind::limit, fmt::format("a tensor of rank above {}", limits::rank));
      if (accept(',')) continue;
      expect(')');
      break;
    }
    return Shape{std::span<const std::int64_t>(dims)};
  }
  DType dtype() {
    skip_blanks();
    if (!text_.empty() && text_.front() == '[')
      throw Error(ErrorKind::unsupported, "a .npy file of records is not supported");
    const std::string_view descr = quoted();
    const std::string_view code = descr.empty() ? descr : descr.substr(1);
    for (const TypeCode& row : type_codes)
      if (row.code == code && (descr.front() == '<' || (descr.front() == '|' && dtype_bytes(row.dtype) == 1)))
        return row.dtype;
    std::string shown;
    for (const char c : descr.substr(0, 16)) shown += c >= ' ' && c <= '~' ? c : '?';
    throw Error(ErrorKind::unsupported, fmt::format("a .npy file of type '{}' is not supported", shown));
  }

  std::string_view text_;
};

}  // namespace

NpyHeader parse_npy_header(std::span<const std::byte> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (!text.starts_with(magic) || text.size() < 10) damaged("its first bytes are not those of one");
  const auto byte = [&text](std::size_t i) { return static_cast<std::size_t>(static_cast<unsigned char>(text[i])); };
  const std::size_t major = byte(6);
  if (major != 1 && major != 2)
    throw Error(ErrorKind::unsupported, fmt::format(".npy format version {}; supported are 1 and 2", major));
  const std::size_t start = major == 1 ? 10 : 12;
  if (text.size() < start) damaged("it ends in its header");
  std::size_t length = byte(8) | byte(9) << 8U;
  if (major == 2) length |= byte(10) << 16U | byte(11) << 24U;
  if (length > limits::npy_header_bytes)
    throw Error(ErrorKind::limit,
                fmt::format("a .npy header of {} bytes; at most {} are allowed", length, limits::npy_header_bytes));
  if (length > text.size() - start) damaged("it ends in its header");
  NpyHeader header = DictParser(text.substr(start, length)).parse();
  header.data_offset = start + length;
  return header;
}

std::string npy_header(DType dtype, const Shape& shape) {
  std::string_view code;
  for (const TypeCode& row : type_codes)
    if (row.dtype == dtype) code = row.code;
  if (code.empty())
    throw Error(ErrorKind::unsupported, fmt::format("the .npy format has no type for {}", to_string(dtype)));
  std::string dims;
  for (const std::int64_t dim : shape.dims()) dims += fmt::format("{}{}", dims.empty() ? "" : ", ", dim);
  if (shape.rank() == 1) dims += ',';
  std::string dict = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                 dtype_bytes(dtype) == 1 ? '|' : '<', code, dims);
  constexpr std::size_t before = 10, alignment = 64;
  const std::size_t total = (before + dict.size() + 1 + alignment - 1) / alignment * alignment;
  dict.resize(total - before - 1, ' ');
  dict += '\n';
  std::string header(magic);
  header += {'\x01', '\x00', static_cast<char>(dict.size() & 0xFFU), static_cast<char>(dict.size() >> 8U)};
  return header + dict;
}

}  // namespace lenslet
