#include "photos/pictures/heif_boxes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "photos/pictures/bytes.h"

namespace lenslet::photos {

namespace {

using FileBytes = std::span<const std::byte>;

constexpr std::size_t most_items = 4096;                             // libheif's time is quadratic
constexpr std::uint64_t most_data_per_byte = 4;                      // of all items, for each byte of the file
constexpr std::int64_t most_decoded_pixels = 16 * max_image_pixels;  // of the tiles of all grids

constexpr std::uint32_t name(const char (&text)[5]) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(text[i]);
  return value;
}
constexpr std::uint32_t hevc = name("hvc1"), av1 = name("av01"), grid = name("grid");

[[noreturn]] void damaged() { throw BadImage("the HEIF or AVIF file is damaged or cut short"); }

/// Reads bits; past the end they are 0 and `overrun`.
class Bits {
 public:
  explicit Bits(FileBytes data) : data_(data) {}
  std::uint32_t take(std::size_t count) {
    std::uint32_t value = 0;
    for (; count > 0; --count, ++at_) {
      if (at_ / 8 >= data_.size()) damaged();
      value = value << 1 | (std::to_integer<std::uint32_t>(data_[at_ / 8]) >> (7 - at_ % 8) & 1);
    }
    return value;
  }
  void skip(std::size_t count) { at_ += count; }
  /// Exp-Golomb, ue(v) of HEVC and uvlc() of AV1.
  std::uint32_t number() {
    std::size_t zeros = 0;
    while (take(1) == 0)
      if (++zeros > 31) damaged();
    return ((1U << zeros) - 1) + take(zeros);
  }

 private:
  FileBytes data_;
  std::size_t at_ = 0;
};

struct Box {
  std::uint32_t type;
  std::size_t begin, end;  ///< of its content, in the file
};

constexpr std::uint32_t chosen = 2;  // by each frame

/// What the beginning of a frame's header depends on.
struct Av1Sequence {
  bool reduced = false;  ///< of a still picture
  std::size_t time_bits = 0, id_bits = 0;
  std::uint32_t screen_content = chosen, integer_mv = chosen;
};

class Checker {
 public:
  Checker(FileBytes data, const CheckSize& check_size) : data_(data), file_(data), check_size_(check_size) {}

  std::int64_t check() {
    const std::vector<Box> all = boxes(0, data_.size());
    if (std::ranges::none_of(all, [](const Box& box) { return box.type == name("meta"); }))
      throw BadImage("HEIF without a still picture is not read");
    const Box meta = only(all, name("meta"));
    const std::vector<Box> children = boxes(meta.begin + 4, meta.end);
    read_types(only(children, name("iinf")));
    for (const Box& box : children) {
      if (box.type == name("iref")) check_references(box);
      if (box.type == name("idat")) idat_ = box.begin;
    }
    for (const Box& properties : children)
      if (properties.type == name("iprp"))
        for (const Box& list : boxes(properties.begin, properties.end))
          if (list.type == name("ipco"))
            for (const Box& box : boxes(list.begin, list.end)) check_configuration(box);
    check_items(only(children, name("iloc")));
    if (file_.overrun()) damaged();
    if (tiles_ > 0 && most_coded_ > most_decoded_pixels / tiles_)
      throw BadImage("the tiles of the HEIF file are larger than its picture");
    return std::max(most_coded_, most_of_grid_);
  }

 private:
  std::vector<Box> boxes(std::size_t at, std::size_t end) {
    std::vector<Box> found;
    while (at < end) {
      std::uint64_t size = file_.u32(at), head = 8;
      const std::uint32_t type = file_.u32(at + 4);
      if (size == 1) {
        size = number(at + 8, 8);
        head = 16;
      }
      if (size == 0) size = end - at;
      if (file_.overrun() || size < head || size > end - at) damaged();
      found.push_back({type, at + head, at + size});
      at += size;
    }
    return found;
  }
  static Box only(const std::vector<Box>& among, std::uint32_t type) {
    const auto is_one = [type](const Box& box) { return box.type == type; };
    if (std::ranges::count_if(among, is_one) != 1) damaged();
    return *std::ranges::find_if(among, is_one);
  }
  std::uint64_t number(std::size_t at, std::size_t bytes) {
    if (bytes == 0) return 0;
    if (bytes == 4) return file_.u32(at);
    if (bytes == 2) return file_.u16(at);
    if (bytes != 8) damaged();
    return std::uint64_t{file_.u32(at)} << 32 | file_.u32(at + 4);
  }
  FileBytes bytes(std::uint64_t at, std::uint64_t size) const {
    if (at > data_.size() || size > data_.size() - at) damaged();
    return data_.subspan(at, size);
  }

  void read_types(const Box& list) {
    const std::size_t head = file_.u8(list.begin) == 0 ? 6 : 8;
    if (list.end - list.begin < head) damaged();
    for (const Box& item : boxes(list.begin + head, list.end)) {
      if (item.type != name("infe") || file_.u8(item.begin) < 2) continue;
      const std::size_t id_bytes = file_.u8(item.begin) == 2 ? 2 : 4;
      const auto id = static_cast<std::uint32_t>(number(item.begin + 4, id_bytes));
      const std::uint32_t type = file_.u32(item.begin + 4 + id_bytes + 2);
      if (!types_.emplace(id, type).second || types_.size() > most_items) damaged();
      if (type == name("iden") || type == name("iovl")) throw BadImage("HEIF with derived pictures is not read");
      const FileBytes rest = bytes(item.begin, item.end - item.begin);
      const std::string_view text(reinterpret_cast<const char*>(rest.data()), rest.size());
      if (type == name("mime") && text.find("deflate") != text.npos)
        throw BadImage("HEIF with compressed metadata is not read");
    }
  }

  std::uint32_t type_of(std::uint32_t id) const {
    const auto found = types_.find(id);
    return found == types_.end() ? 0 : found->second;
  }

  /// Tiles are coded pictures, and an auxiliary picture has none itself: nothing recurs.
  void check_references(const Box& list) {
    const std::size_t id_bytes = file_.u8(list.begin) == 0 ? 2 : 4;
    std::vector<std::uint32_t> auxiliary, with_auxiliary;
    for (const Box& reference : boxes(list.begin + 4, list.end)) {
      const auto from = static_cast<std::uint32_t>(number(reference.begin, id_bytes));
      const std::size_t count = file_.u16(reference.begin + id_bytes);
      for (std::size_t i = 0; i < count; ++i) {
        const auto to = static_cast<std::uint32_t>(number(reference.begin + (i + 1) * id_bytes + 2, id_bytes));
        if (reference.type == name("dimg")) {
          ++tiles_;
          if (const std::uint32_t tile = type_of(to); type_of(from) == grid && tile != hevc && tile != av1)
            throw BadImage("HEIF with derived pictures is not read");
        } else if (reference.type == name("auxl")) {
          auxiliary.push_back(from);
          with_auxiliary.push_back(to);
        }
      }
    }
    for (const std::uint32_t id : auxiliary)
      if (std::ranges::find(with_auxiliary, id) != with_auxiliary.end())
        throw BadImage("HEIF with auxiliary pictures of auxiliary pictures is not read");
  }

  void check_configuration(const Box& box) {
    const FileBytes content = bytes(box.begin, box.end - box.begin);
    if (box.type == name("av1C") && content.size() > 4) check_av1(content.subspan(4));
    if (box.type != name("hvcC")) return;
    Bytes config(content);
    std::size_t at = 23;
    for (std::uint32_t arrays = config.u8(22); arrays > 0; --arrays) {
      std::uint32_t units = config.u16(at + 1);
      for (at += 3; units > 0 && !config.overrun(); --units) {
        const std::size_t size = config.u16(at);
        if (at + 2 + size > content.size()) damaged();
        check_hevc_unit(content.subspan(at + 2, size));
        at += 2 + size;
      }
    }
    if (config.overrun()) damaged();
  }

  void check_items(const Box& locations) {
    const std::uint32_t version = file_.u8(locations.begin), sizes = file_.u16(locations.begin + 4);
    const std::size_t offset_bytes = sizes >> 12, length_bytes = sizes >> 8 & 15, base_bytes = sizes >> 4 & 15;
    // Of items within items; libheif reads version 1 otherwise than the standard.
    if (version > 2 || (version > 0 && (sizes & 15) != 0)) throw BadImage("HEIF with such item locations is not read");
    const std::size_t id_bytes = version == 2 ? 4 : 2;
    std::size_t at = locations.begin + 6 + id_bytes;
    std::uint64_t all = 0;
    for (std::uint64_t items = number(at - id_bytes, id_bytes); items > 0; --items) {
      const auto id = static_cast<std::uint32_t>(number(at, id_bytes));
      at += id_bytes;
      const std::uint32_t method = version > 0 ? file_.u16(at) & 15 : 0;
      at += version > 0 ? 4 : 2;  // and the data reference
      const std::uint64_t base = number(at, base_bytes);
      at += base_bytes;
      std::uint32_t extents = file_.u16(at);
      at += 2;
      if (method > 1) throw BadImage("HEIF with such item locations is not read");
      std::vector<std::byte> content;
      for (; extents > 0; --extents, at += offset_bytes + length_bytes) {
        const std::uint64_t offset = number(at, offset_bytes), size = number(at + offset_bytes, length_bytes);
        if (file_.overrun() || base > data_.size() || offset > data_.size()) damaged();
        const FileBytes extent = bytes((method == 1 ? idat_ : 0) + base + offset, size);
        if ((all += size) > most_data_per_byte * data_.size()) throw BadImage("items of the HEIF file overlap");
        content.insert(content.end(), extent.begin(), extent.end());
      }
      if (!located_.emplace(id, true).second) damaged();
      check_item(type_of(id), content);
    }
  }

  void check_item(std::uint32_t type, FileBytes content) {
    if (type == av1 && !check_av1(content)) damaged();  // dav1d leaks empty data
    Bytes bytes(content);
    if (type == grid) {
      const std::size_t wide = (bytes.u8(1) & 1) != 0 ? 4 : 2;
      const std::int64_t width = wide == 4 ? bytes.u32(4) : bytes.u16(4);
      const std::int64_t height = wide == 4 ? bytes.u32(8) : bytes.u16(6);
      if (bytes.overrun()) damaged();
      check_size_(width, height);
      most_of_grid_ = std::max(most_of_grid_, width * height);
    }
    if (type != hevc) return;
    for (std::size_t at = 0; at < content.size();) {
      const std::size_t size = bytes.u32(at);
      at += 4;
      if (bytes.overrun() || size > content.size() - at) damaged();
      check_hevc_unit(content.subspan(at, size));
      at += size;
    }
  }

  void check_coded(std::int64_t width, std::int64_t height) {
    check_size_(width, height);
    most_coded_ = std::max(most_coded_, width * height);
  }

  /// The size in a sequence parameter set.
  void check_hevc_unit(FileBytes unit) {
    constexpr std::uint32_t sequence_parameters = 33;
    if (unit.size() < 2 || (std::to_integer<std::uint32_t>(unit[0]) >> 1 & 63) != sequence_parameters) return;
    std::vector<std::byte> payload;  // without the bytes that keep start codes out
    for (std::size_t i = 2; i < unit.size(); ++i)
      if (i < 4 || unit[i] != std::byte{3} || unit[i - 1] != std::byte{0} || unit[i - 2] != std::byte{0})
        payload.push_back(unit[i]);
    Bits bits(payload);
    bits.skip(4);
    const std::uint32_t sub_layers = bits.take(3);
    constexpr std::size_t profile = 88, level = 8;
    bits.skip(1 + profile + level);
    std::size_t skipped = 0;
    for (std::uint32_t i = 0; sub_layers > 0 && i < 8; ++i) {
      const std::uint32_t has_profile = bits.take(1), has_level = bits.take(1);
      if (i < sub_layers) skipped += has_profile * profile + has_level * level;
    }
    bits.skip(skipped);
    bits.number();  // its id
    if (bits.number() == 3) bits.skip(1);
    const std::uint32_t width = bits.number();
    check_coded(width, bits.number());
  }

  /// Whether there is a frame.
  bool check_av1(FileBytes units) {
    bool has_frame = false;
    Bytes bytes(units);
    std::optional<Av1Sequence> sequence;
    for (std::size_t at = 0; at < units.size();) {
      const std::uint32_t head = bytes.u8(at++);
      if ((head & 4) != 0) ++at;
      std::uint64_t size = 0;
      if ((head & 2) == 0) {
        size = at <= units.size() ? units.size() - at : 0;
      } else {
        for (int i = 0; i < 8; ++i) {
          const std::uint64_t part = bytes.u8(at++);
          size |= (part & 127) << (7 * i);
          if ((part & 128) == 0) break;
        }
      }
      if (bytes.overrun() || at > units.size() || size > units.size() - at) damaged();
      constexpr std::uint32_t sequence_header = 1, frame_header = 3, frame = 6;
      const std::uint32_t type = head >> 3 & 15;
      if (type == sequence_header) sequence = check_av1_sequence(Bits(units.subspan(at, size)));
      if (type == frame_header || type == frame) {
        if (!sequence) damaged();
        has_frame = true;
        check_av1_frame(*sequence, Bits(units.subspan(at, size)));
      }
      at += size;
    }
    return has_frame;
  }

  Av1Sequence check_av1_sequence(Bits bits) {
    Av1Sequence sequence;
    bits.skip(4);  // profile, still picture
    sequence.reduced = bits.take(1) != 0;
    if (sequence.reduced) {
      bits.skip(5);
    } else {
      std::size_t delay_bits = 0;
      if (bits.take(1) != 0) {  // timing
        bits.skip(64);
        const bool equal_intervals = bits.take(1) != 0;
        if (equal_intervals) bits.number();
        if (bits.take(1) != 0) {  // decoder model
          delay_bits = bits.take(5) + 1;
          bits.skip(37);
          const std::size_t time_bits = bits.take(5) + 1;
          if (!equal_intervals) sequence.time_bits = time_bits;
        }
      }
      const std::uint32_t has_delays = bits.take(1);
      for (std::uint32_t points = bits.take(5) + 1; points > 0; --points) {
        bits.skip(12);
        if (bits.take(5) > 7) bits.skip(1);
        if (delay_bits > 0 && bits.take(1) != 0) bits.skip(2 * delay_bits + 1);
        if (has_delays != 0 && bits.take(1) != 0) bits.skip(4);
      }
    }
    const std::uint32_t width_bits = bits.take(4) + 1, height_bits = bits.take(4) + 1;
    const std::uint32_t width = bits.take(width_bits) + 1;
    check_coded(width, bits.take(height_bits) + 1);
    if (sequence.reduced) return sequence;
    if (bits.take(1) != 0) {  // frames have ids
      const std::size_t delta_bits = bits.take(4) + 2;
      sequence.id_bits = bits.take(3) + delta_bits + 1;
    }
    bits.skip(3 + 4);                     // tools of intra and inter prediction
    if (bits.take(1) != 0) bits.skip(2);  // order hints
    if (bits.take(1) == 0) sequence.screen_content = bits.take(1);
    if (sequence.screen_content != 0 && bits.take(1) == 0) sequence.integer_mv = bits.take(1);
    return sequence;
  }

  /// A frame may not have another size than its sequence: dav1d takes up to 2^30 pixels.
  static void check_av1_frame(const Av1Sequence& sequence, Bits bits) {
    constexpr std::uint32_t key_frame = 0, switch_frame = 3;
    if (sequence.reduced || bits.take(1) != 0) return;  // or an earlier frame is shown
    const std::uint32_t type = bits.take(2), shown = bits.take(1);
    bits.skip(shown != 0 ? sequence.time_bits : 1);
    if (type != switch_frame && (type != key_frame || shown == 0)) bits.skip(1);  // error resilience
    bits.skip(1);
    const std::uint32_t screen_content = sequence.screen_content == chosen ? bits.take(1) : sequence.screen_content;
    if (screen_content != 0 && sequence.integer_mv == chosen) bits.skip(1);
    bits.skip(sequence.id_bits);
    if (type == switch_frame || bits.take(1) != 0) throw BadImage("AVIF of frames with sizes of their own is not read");
  }

  FileBytes data_;
  Bytes file_;
  const CheckSize& check_size_;
  std::map<std::uint32_t, std::uint32_t> types_;  // of items, by id
  std::map<std::uint32_t, bool> located_;
  std::size_t idat_ = 0;
  std::int64_t most_coded_ = 0, most_of_grid_ = 0, tiles_ = 0;
};

}  // namespace

std::int64_t check_heif(FileBytes file, const CheckSize& check_size) { return Checker(file, check_size).check(); }

}  // namespace lenslet::photos
