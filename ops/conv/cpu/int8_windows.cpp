#include "ops/conv/cpu/int8_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace lenslet {
namespace {

std::int64_t divide_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit; }
std::int64_t round_up(std::int64_t value, std::int64_t unit) { return divide_up(value, unit) * unit; }

/// Elements of the image `from` on, widened to 16 bits if those of `to` have two bytes.
void copy_elements(const std::uint8_t* from, std::int64_t count, std::int64_t element_bytes, std::byte* to) {
  if (element_bytes == 1)
    std::memcpy(to, from, static_cast<std::size_t>(count));
  else
    std::copy(from, from + count, reinterpret_cast<std::int16_t*>(to));
}

void fill_elements(std::uint8_t value, std::int64_t count, std::int64_t element_bytes, std::byte* to) {
  if (element_bytes == 1)
    std::memset(to, value, static_cast<std::size_t>(count));
  else
    std::fill_n(reinterpret_cast<std::int16_t*>(to), count, std::int16_t{value});
}

/// `p` with neighbouring groups taken together while a vector holds their filters, whose other weights are zero: no
/// more products, and fewer sums of unused lanes.
ConvProblem with_merged_groups(ConvProblem p, const Int8Kernel& kernel) {
  std::int64_t merged = std::clamp<std::int64_t>(kernel.lanes / p.group_k(), 1, p.groups);
  while (p.groups % merged != 0) --merged;
  p.groups /= merged;
  return p;
}

/// Whether all windows of x are equally far apart, across lines and images.
bool windows_adjoin(const ConvProblem& p, const Int8Layout& layout) {
  return !layout.copies && p.r * p.s == 1 && p.stride_h == 1 && p.stride_w == 1;
}

/// How output pixels and filters are cut into pieces: blocks of whole images, of lines of an image, or of columns of a
/// line, whose part of x stays in L2; and parts of the panels.
struct Pieces {
  std::int64_t images, lines, columns;  ///< of a block
  std::int64_t image_blocks, line_blocks, column_blocks, panels, parts = 1;

  Pieces(const ConvProblem& p, const Int8Layout& layout, const DeviceProfile& device) {
    const std::int64_t pixel_bytes = std::min(p.stride_h, p.r) * p.stride_w * layout.x_pixel + p.k;
    const auto l2_bytes = static_cast<std::int64_t>(device.l2_bytes);
    const std::int64_t most = std::clamp<std::int64_t>(l2_bytes / 4 / pixel_bytes, 64, 4096);
    const std::int64_t panels_of_group = divide_up(p.group_k(), 2 * layout.lanes), units = device.units;
    panels = p.groups * panels_of_group;
    image_blocks = divide_up(p.n, std::max<std::int64_t>(1, most / (p.p * p.q)));
    line_blocks = divide_up(p.p, std::max<std::int64_t>(1, most / p.q));
    column_blocks = divide_up(p.q, most);
    const double macs = p.flops() / 2;
    if (units > 1 && macs > 1e6) {
      // As split_rows() of gemm_cpu.cpp: rows keep threads at their part of the image, columns read the filters once.
      const std::int64_t m = p.n * p.p * p.q, n = p.k, k = p.group_c() * p.r * p.s;
      const bool by_rows = m >= 32 * units && 3 * m * (p.group_c() + n) >= n * k;
      if (!by_rows && panels >= units)
        parts = units;
      else if (p.n >= units)
        image_blocks = std::min(p.n, round_up(image_blocks, units));
      else if (p.p >= units)
        image_blocks = p.n, line_blocks = std::min(p.p, round_up(line_blocks, units));  // parts of one image adjoin
      else
        parts = std::min(panels, units);
    }
    images = divide_up(p.n, image_blocks);
    lines = divide_up(p.p, line_blocks);
    columns = divide_up(p.q, column_blocks);
    image_blocks = divide_up(p.n, images);
    line_blocks = divide_up(p.p, lines);
    column_blocks = divide_up(p.q, columns);
  }

  std::int64_t blocks() const { return image_blocks * line_blocks * column_blocks; }
  std::int64_t pixels() const { return images * lines * columns; }
};

/// The part of x that a block's windows cover.
struct Band {
  std::int64_t rows, columns;

  Band(const ConvProblem& p, const Int8Layout& layout, std::int64_t lines, std::int64_t of_columns)
      : rows((lines - 1) * p.stride_h + (p.r - 1) * p.dilation_h + 1),
        columns((of_columns - 1) * p.stride_w + layout.window_w) {}
};

/// Size of a thread's copy of x for a piece.
std::int64_t copy_bytes(const ConvProblem& p, const Int8Layout& layout, const Pieces& pieces) {
  if (!layout.copies) return 0;
  const Band band(p, layout, pieces.lines, pieces.columns);
  return round_up(pieces.images * band.rows * band.columns * layout.x_pixel + layout.over_read, 64);
}

class BoundInt8 final : public BoundConv {
 public:
  BoundInt8(const ConvProblem& p, const Int8Kernel& kernel, const DeviceProfile& device)
      : BoundInt8(p, kernel, Int8Layout(p, kernel), device) {}

 private:
  BoundInt8(const ConvProblem& p, const Int8Kernel& kernel, const Int8Layout& layout, const DeviceProfile& device)
      : BoundInt8(p, kernel, layout, Pieces(p, layout, device), device.units) {}
  BoundInt8(const ConvProblem& p, const Int8Kernel& kernel, const Int8Layout& layout, const Pieces& pieces, int threads)
      : BoundConv(p, static_cast<std::size_t>(threads * worker_bytes(p, layout, pieces))),
        kernel_(kernel),
        layout_(layout),
        pieces_(pieces) {
    const std::int64_t row = (layout.copies ? Band(p, layout, 1, pieces.columns).columns : p.w) * layout.x_pixel;
    for (std::int64_t r = 0; r < p.r; ++r)
      for (std::int64_t s = 0; s < (layout.adjacent ? 1 : p.s); ++s)
        runs_.push_back(r * p.dilation_h * row + s * p.dilation_w * layout.x_pixel);
  }

  static std::int64_t worker_bytes(const ConvProblem& p, const Int8Layout& layout, const Pieces& pieces) {
    const std::int64_t windows = pieces.pixels() * static_cast<std::int64_t>(sizeof(std::byte*));
    return copy_bytes(p, layout, pieces) + round_up(windows, 64);
  }

  void compute(const ConvRun& run) const override {
    const std::int64_t of_worker = worker_bytes(problem, layout_, pieces_), blocks = pieces_.blocks();
    run.pool->parallel_for(blocks * pieces_.parts, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
      std::byte* const scratch = run.workspace.data() + worker * of_worker;
      for (std::int64_t piece = begin; piece < end; ++piece)
        compute_piece(run, piece % blocks, piece / blocks, scratch);
    });
  }

  void compute_piece(const ConvRun& run, std::int64_t block, std::int64_t part, std::byte* scratch) const {
    const ConvProblem& p = problem;
    const std::int64_t column_block = block % pieces_.column_blocks, rest = block / pieces_.column_blocks;
    const Rows columns = share(column_block, pieces_.columns, p.q);
    const Rows lines = share(rest % pieces_.line_blocks, pieces_.lines, p.p);
    const Rows images = share(rest / pieces_.line_blocks, pieces_.images, p.n);
    auto** const windows = reinterpret_cast<const std::byte**>(scratch + copy_bytes(p, layout_, pieces_));
    const std::byte** to = windows;
    const std::int64_t band_columns = Band(p, layout_, 1, pieces_.columns).columns, pixel = layout_.x_pixel;
    const std::int64_t row_bytes = (layout_.copies ? band_columns : p.w) * pixel;
    for (std::int64_t n = images.begin; n < images.end; ++n) {
      const std::byte* first =
          run.x<std::byte>() + ((n * p.h + lines.begin * p.stride_h) * p.w + columns.begin * p.stride_w) * pixel;
      std::int64_t row = p.w * pixel;
      if (layout_.copies) {
        row = band_columns * pixel;
        first = scratch;
        scratch = copy_band(run.x<std::uint8_t>() + n * p.h * p.w * p.c, lines, columns, row, scratch);
      }
      for (std::int64_t line = 0; line < lines.count(); ++line)
        for (std::int64_t q = 0; q < columns.count(); ++q)
          *to++ = first + line * p.stride_h * row + q * p.stride_w * pixel;
    }
    Int8Block call;
    call.windows = windows;
    call.m = to - windows;
    call.runs = runs_.data();
    call.run_count = static_cast<std::int64_t>(runs_.size());
    call.words = layout_.words;
    call.y_pixel = run.y_pixel;
    call.codes = codes_of(p);
    call.line = windows_adjoin(p, layout_) ? call.m : columns.count();
    call.window_stride = p.stride_w * pixel;
    if (const std::int64_t step = p.stride_h * row_bytes; step % call.window_stride == 0 && call.line < call.m) {
      call.lines = lines.count();
      call.line_stride = step / call.window_stride;
    }
    std::uint8_t* const y =
        run.y<std::uint8_t>() + ((images.begin * p.p + lines.begin) * p.q + columns.begin) * run.y_pixel;
    // The panels of this part, group by group.
    const std::int64_t panel = 2 * layout_.lanes, of_group = pieces_.panels / p.groups;
    const std::int64_t end = pieces_.panels * (part + 1) / pieces_.parts;
    for (std::int64_t at = pieces_.panels * part / pieces_.parts; at < end;) {
      const std::int64_t group = at / of_group, k = (at - group * of_group) * panel;
      const std::int64_t panels = std::min(end, (group + 1) * of_group) - at;
      const std::int64_t filter = group * p.group_k() + k;
      call.k = std::min(panels * panel, p.group_k() - k);
      call.group_offset = group * p.group_c() * layout_.element_bytes;
      const auto* const packed = run.filter<std::int32_t>();
      call.corrections = packed + filter;
      call.filters = packed + layout_.correction_words + group * layout_.group_words + k * call.run_count * call.words;
      call.multipliers = run.requantization.multipliers + filter;
      call.bias = run.bias<std::int32_t>() == nullptr ? nullptr : run.bias<std::int32_t>() + filter;
      call.y = y + filter;
      kernel_.multiply(call);
      at += panels;
    }
  }

  static Int8Codes codes_of(const ConvProblem& p) {
    const bool is_signed = p.storage == DType::i8;
    const int least = is_signed ? -128 : 0, most = least + 255;
    return {p.y_zero_point, std::clamp(p.y_least, least, most), std::clamp(p.y_most, least, most), is_signed};
  }

  static Rows share(std::int64_t block, std::int64_t size, std::int64_t all) {
    return {block * size, std::min(all, (block + 1) * size)};
  }

  /// Copies what the windows of these lines and columns cover, `row` bytes a row. Returns the end.
  std::byte* copy_band(const std::uint8_t* image, Rows lines, Rows columns, std::int64_t row, std::byte* to) const {
    const ConvProblem& p = problem;
    const Band band(p, layout_, lines.count(), columns.count());
    const std::int64_t top = lines.begin * p.stride_h - p.pad_top, left = columns.begin * p.stride_w - p.pad_left;
    const std::int64_t begin = std::clamp<std::int64_t>(-left, 0, band.columns);
    const std::int64_t end = std::clamp(p.w - left, begin, band.columns), size = layout_.element_bytes;
    const auto zero = static_cast<std::uint8_t>(p.x_zero_point);
    for (std::int64_t h = top; h < top + band.rows; ++h, to += row) {
      if (h < 0 || h >= p.h) {
        fill_elements(zero, band.columns * p.c, size, to);
        continue;
      }
      fill_elements(zero, begin * p.c, size, to);
      copy_elements(image + (h * p.w + left + begin) * p.c, (end - begin) * p.c, size, to + begin * p.c * size);
      fill_elements(zero, (band.columns - end) * p.c, size, to + end * p.c * size);
    }
    return to;
  }

  const Int8Kernel kernel_;
  const Int8Layout layout_;
  const Pieces pieces_;
  std::vector<std::int64_t> runs_;
};

/// Words of a run, padded to equal k-blocks.
std::int64_t padded_words(std::int64_t words, const Int8Kernel& kernel) {
  return round_up(words, divide_up(words, kernel.block_words));
}

}  // namespace

bool has_avx_vnni() {
#ifdef __x86_64__
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0;
  }();
  return has;
#else
  return false;
#endif
}

Int8Layout::Int8Layout(const ConvProblem& p, const Int8Kernel& kernel)
    : lanes(kernel.lanes),
      word_k(kernel.word_k),
      element_bytes(4 / word_k),
      adjacent(p.groups == 1 && p.dilation_w == 1),
      run_elements(adjacent ? p.s * p.c : p.group_c()),
      words(padded_words(divide_up(run_elements, word_k), kernel)),
      copies(p.padded() || element_bytes > 1 || words * word_k != run_elements),
      window_w((p.s - 1) * p.dilation_w + 1),
      x_pixel(p.c * element_bytes),
      over_read(4 * words - run_elements * element_bytes),
      correction_words(round_up(p.k, 16)),
      group_words(run_count(p) * words * round_up(p.group_k(), lanes)) {}

Int8Panel::Int8Panel(const Int8Block& block, std::int64_t first, std::int64_t wanted)
    : columns(std::min(wanted, block.k - first)), codes(block.codes) {
  std::copy_n(block.multipliers + first, columns, multipliers);
  std::copy_n(block.corrections + first, columns, start);
  std::int32_t bias[most_columns] = {};
  if (block.bias != nullptr) std::copy_n(block.bias + first, columns, bias);
  int above = 0, beyond = 0;
  for (std::int64_t j = 0; j < most_columns; ++j) {
    above += std::abs(multipliers[j]) < 1 ? 0 : 1;
    beyond += std::abs(multipliers[j]) <= std::numeric_limits<float>::max() ? 0 : 1;
    start[j] = static_cast<std::int32_t>(static_cast<std::uint32_t>(start[j]) + static_cast<std::uint32_t>(bias[j]));
  }
  below_one = above == 0;
  finite = beyond == 0;
}

std::optional<std::string> refuse_more_than_codes(const ConvProblem& p) {
  if (!p.requantized) return "its output is not requantized";
  if (p.residual) return "it has a residual";
  if (p.activation.kind != Activation::Kind::none) return "its activation is no range of codes";
  return std::nullopt;
}

std::optional<std::string> Int8Conv::refuse(const ConvProblem& p, const Target& target) const {
  if (auto why = refuse_more_than_codes(p)) return why;
  if (p.x_storage != DType::u8) return fmt::format("its input is {}; only uint8 is supported", to_string(p.x_storage));
  if (p.x_zero_point < 0 || p.x_zero_point > 255 || p.y_zero_point < -128 || p.y_zero_point > 255)
    return "a zero point is no code";
  const ConvProblem merged = with_merged_groups(p, kernel());
  const Int8Layout layout(merged, kernel());
  constexpr std::int64_t most_copied = 64 << 20;
  if (copy_bytes(merged, layout, Pieces(merged, layout, target.device)) > most_copied)
    return "a thread's copy of its input exceeds 64 MiB";
  return std::nullopt;
}

ConvCandidate Int8Conv::candidate(const ConvProblem& stated, const Target& target) const {
  const Int8Kernel kernel = this->kernel();
  const ConvProblem p = with_merged_groups(stated, kernel);
  const Int8Layout layout(p, kernel);
  const std::int64_t line = windows_adjoin(p, layout) ? p.n * p.p * p.q : p.q, lines = p.n * p.p * p.q / line;
  const std::int64_t pixels = lines * round_up(line, kernel.tile_pixels);
  const std::int64_t filters = p.groups * round_up(p.group_k(), layout.lanes);
  const std::int64_t blocks = divide_up(layout.words, kernel.block_words);
  const std::int64_t words = layout.run_count(p) * blocks * round_up(layout.words / blocks, kernel.tile_words);
  const double products = static_cast<double>(pixels * filters) * static_cast<double>(words * layout.word_k);
  const double vectors = static_cast<double>(pixels * filters) / static_cast<double>(layout.lanes);
  ConvCandidate candidate;
  candidate.pitched = true;
  candidate.estimated_us = 1 + 2 * products / (kernel.speed * target.device.fp32_flops_per_us) +
                           vectors * kernel.vector_us / target.device.units + p.bytes() / target.device.bytes_per_us;
  return candidate;
}

ConvAlgorithm::FilterForm Int8Conv::filter_form(const ConvProblem& stated, std::string_view) const {
  const ConvProblem p = with_merged_groups(stated, kernel());
  const Int8Layout layout(p, kernel());
  return {.elements = layout.correction_words + p.groups * layout.group_words,
          .form = fmt::format("{} lanes of {}, {} words", layout.lanes, layout.word_k, layout.words),
          .element_bytes = sizeof(std::int32_t)};
}

void Int8Conv::transform(const ConvProblem& stated, std::string_view, const ConvFilter& filter,
                         std::span<std::byte> to) const {
  const ConvProblem p = with_merged_groups(stated, kernel());
  const Int8Layout layout(p, kernel());
  std::memset(to.data(), 0, to.size());
  auto* const corrections = reinterpret_cast<std::int32_t*>(to.data());
  std::int32_t* const groups = corrections + layout.correction_words;
  const auto* const w = filter.elements<std::int8_t>();
  const std::int64_t taps = p.r * p.s, depth = layout.run_count(p) * layout.words, panel = 2 * layout.lanes;
  for (std::int64_t k = 0; k < p.k; ++k) {
    const std::int64_t in_group = k % p.group_k(), first = in_group / panel * panel;
    const std::int64_t width = p.group_k() - first <= layout.lanes ? layout.lanes : panel;
    std::int32_t* const column = groups + k / p.group_k() * layout.group_words + first * depth + in_group - first;
    const std::int64_t first_c = k / stated.group_k() * stated.group_c() % p.group_c();
    std::int64_t sum = 0;
    for (std::int64_t c = first_c; c < first_c + stated.group_c(); ++c)
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        const std::int8_t value = w[k * filter.gemm_k + (c - first_c) * taps + tap];
        sum += value;
        const std::int64_t run = layout.adjacent ? tap / p.s : tap, i = layout.adjacent ? tap % p.s * p.c + c : c;
        std::int32_t* const word = column + (run * layout.words + i / layout.word_k) * width;
        if (layout.element_bytes == 1)
          reinterpret_cast<std::int8_t*>(word)[i % layout.word_k] = value;
        else
          reinterpret_cast<std::int16_t*>(word)[i % layout.word_k] = value;
      }
    corrections[k] = static_cast<std::int32_t>(static_cast<std::uint32_t>(-p.x_zero_point * sum));
  }
}

std::unique_ptr<const BoundKernel> Int8Conv::bind_conv(const ConvProblem& p, std::string_view,
                                                       const DeviceProfile& device) const {
  return std::make_unique<BoundInt8>(with_merged_groups(p, kernel()), kernel(), device);
}

}  // namespace lenslet
