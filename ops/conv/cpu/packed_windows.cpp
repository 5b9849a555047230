#include "ops/conv/cpu/packed_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/convert.h"

namespace lenslet {
namespace {

std::int64_t divide_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit; }
std::int64_t round_up(std::int64_t value, std::int64_t unit) { return divide_up(value, unit) * unit; }

/// Elements of x from `from` on, as the kernel's: uint8 as it is or widened to 16 bits, or rounded to bfloat16.
void copy_elements(DType x_type, const std::byte* from, std::int64_t count, std::int64_t element_bytes, std::byte* to) {
  if (x_type == DType::u8 && element_bytes == 2) {
    const auto* const codes = reinterpret_cast<const std::uint8_t*>(from);
    std::copy(codes, codes + count, reinterpret_cast<std::int16_t*>(to));
  } else if (x_type == DType::f32) {
    convert_elements(DType::f32, from, DType::bf16, to, count);
  } else {
    std::memcpy(to, from, static_cast<std::size_t>(count * element_bytes));
  }
}

void fill_elements(std::uint8_t value, std::int64_t count, std::int64_t element_bytes, std::byte* to) {
  if (element_bytes == 1)
    std::memset(to, value, static_cast<std::size_t>(count));
  else
    std::fill_n(reinterpret_cast<std::int16_t*>(to), count, std::int16_t{value});
}

/// `p` with neighbouring groups taken together while a vector holds their filters, whose other weights are zero: no
/// more products, and fewer sums of unused lanes.
ConvProblem with_merged_groups(ConvProblem p, const WindowKernel& kernel) {
  std::int64_t merged = kernel.reads_past_runs ? std::clamp<std::int64_t>(kernel.lanes / p.group_k(), 1, p.groups) : 1;
  while (p.groups % merged != 0) --merged;
  p.groups /= merged;
  return p;
}

/// Whether all windows of x are equally far apart, across lines and images.
bool windows_adjoin(const ConvProblem& p, const WindowLayout& layout) {
  return !layout.copies && p.r * p.s == 1 && p.stride_h == 1 && p.stride_w == 1;
}

/// How output pixels and filters are cut into pieces: blocks of whole images, of lines of an image, or of columns of a
/// line, whose part of x stays in L2; and parts of the panels.
struct Pieces {
  std::int64_t images, lines, columns;  ///< of a block
  std::int64_t image_blocks, line_blocks, column_blocks, panels, parts = 1;

  Pieces(const ConvProblem& p, const WindowLayout& layout, const DeviceProfile& device) {
    const std::int64_t pixel_bytes = std::min(p.stride_h, p.r) * p.stride_w * layout.x_pixel + p.k * layout.y_bytes;
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

  Band(const ConvProblem& p, const WindowLayout& layout, std::int64_t lines, std::int64_t of_columns)
      : rows((lines - 1) * p.stride_h + (p.r - 1) * p.dilation_h + 1),
        columns((of_columns - 1) * p.stride_w + layout.window_w) {}
};

/// Size of a thread's copy of x for a piece.
std::int64_t copy_bytes(const ConvProblem& p, const WindowLayout& layout, const Pieces& pieces) {
  if (!layout.copies) return 0;
  const Band band(p, layout, pieces.lines, pieces.columns);
  return round_up(pieces.images * band.rows * band.columns * layout.x_pixel + layout.over_read, 64);
}

class BoundWindows final : public BoundConv {
 public:
  BoundWindows(const ConvProblem& p, const WindowKernel& kernel, const DeviceProfile& device)
      : BoundWindows(p, kernel, WindowLayout(p, kernel), device) {}

 private:
  BoundWindows(const ConvProblem& p, const WindowKernel& kernel, const WindowLayout& layout,
               const DeviceProfile& device)
      : BoundWindows(p, kernel, layout, Pieces(p, layout, device), device.units) {}
  BoundWindows(const ConvProblem& p, const WindowKernel& kernel, const WindowLayout& layout, const Pieces& pieces,
               int threads)
      : BoundConv(p, static_cast<std::size_t>(threads * worker_bytes(p, layout, pieces))),
        kernel_(kernel),
        layout_(layout),
        pieces_(pieces) {
    const std::int64_t row = (layout.copies ? Band(p, layout, 1, pieces.columns).columns : p.w) * layout.x_pixel;
    for (std::int64_t r = 0; r < p.r; ++r)
      for (std::int64_t s = 0; s < (layout.adjacent ? 1 : p.s); ++s)
        runs_.push_back(r * p.dilation_h * row + s * p.dilation_w * layout.x_pixel);
  }

  static std::int64_t worker_bytes(const ConvProblem& p, const WindowLayout& layout, const Pieces& pieces) {
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
        scratch = copy_band(run.x<std::byte>() + n * p.h * p.w * p.c * layout_.x_bytes, lines, columns, row, scratch);
      }
      for (std::int64_t line = 0; line < lines.count(); ++line)
        for (std::int64_t q = 0; q < columns.count(); ++q)
          *to++ = first + line * p.stride_h * row + q * p.stride_w * pixel;
    }
    WindowBlock call;
    call.windows = windows;
    call.m = to - windows;
    call.runs = runs_.data();
    call.run_count = static_cast<std::int64_t>(runs_.size());
    call.words = layout_.words;
    call.y_pixel = run.y_pixel * layout_.y_bytes;
    call.problem = &p;
    call.line = windows_adjoin(p, layout_) ? call.m : columns.count();
    call.window_stride = p.stride_w * pixel;
    if (const std::int64_t step = p.stride_h * row_bytes; step % call.window_stride == 0 && call.line < call.m) {
      call.lines = lines.count();
      call.line_stride = step / call.window_stride;
    }
    const std::int64_t first_y = ((images.begin * p.p + lines.begin) * p.q + columns.begin) * call.y_pixel;
    // The panels of this part, group by group.
    const std::int64_t panel = 2 * layout_.lanes, of_group = pieces_.panels / p.groups;
    const std::int64_t end = pieces_.panels * (part + 1) / pieces_.parts;
    for (std::int64_t at = pieces_.panels * part / pieces_.parts; at < end;) {
      const std::int64_t group = at / of_group, k = (at - group * of_group) * panel;
      const std::int64_t panels = std::min(end, (group + 1) * of_group) - at;
      const std::int64_t filter = group * p.group_k() + k;
      call.k = std::min(panels * panel, p.group_k() - k);
      call.group_offset = group * layout_.group_c * layout_.element_bytes;
      const auto* const packed = run.filter<std::int32_t>();
      call.filters = packed + layout_.correction_words + group * layout_.group_words + k * call.run_count * call.words;
      if (p.requantized) {
        call.corrections = packed + filter;
        call.multipliers = run.requantization.multipliers + filter;
      }
      call.bias = run.bias_data == nullptr ? nullptr : run.bias<std::byte>() + 4 * filter;
      call.y = run.y<std::byte>() + first_y + filter * layout_.y_bytes;
      if (p.residual) call.residual = run.residual<std::byte>() + first_y + filter * layout_.y_bytes;
      kernel_.multiply(call);
      at += panels;
    }
  }

  static Rows share(std::int64_t block, std::int64_t size, std::int64_t all) {
    return {block * size, std::min(all, (block + 1) * size)};
  }

  /// Copies what the windows of these lines and columns cover, `row` bytes a row. Returns the end.
  std::byte* copy_band(const std::byte* image, Rows lines, Rows columns, std::int64_t row, std::byte* to) const {
    const ConvProblem& p = problem;
    const Band band(p, layout_, lines.count(), columns.count());
    const std::int64_t top = lines.begin * p.stride_h - p.pad_top, left = columns.begin * p.stride_w - p.pad_left;
    const std::int64_t begin = std::clamp<std::int64_t>(-left, 0, band.columns);
    const std::int64_t end = std::clamp(p.w - left, begin, band.columns), size = layout_.element_bytes,
                       pixel = p.groups * layout_.group_c;
    const auto zero = static_cast<std::uint8_t>(p.x_zero_point);
    for (std::int64_t h = top; h < top + band.rows; ++h, to += row) {
      if (h < 0 || h >= p.h) {
        fill_elements(zero, band.columns * pixel, size, to);
        continue;
      }
      const std::byte* const from = image + (h * p.w + left + begin) * p.c * layout_.x_bytes;
      fill_elements(zero, begin * pixel, size, to);
      std::byte* at = to + begin * pixel * size;
      const std::int64_t group_c = p.group_c();
      if (layout_.group_c == group_c) {
        copy_elements(p.x_storage, from, (end - begin) * pixel, size, at);
      } else {
        // Only elements of 16 bits have added channels. All at once to the end of their place, from there one by one.
        const std::int64_t added = layout_.group_c - group_c, groups = (end - begin) * p.groups;
        auto* element = reinterpret_cast<std::uint16_t*>(at);
        const std::uint16_t* packed = element + groups * added;
        copy_elements(p.x_storage, from, groups * group_c, size, at + groups * added * size);
        for (std::int64_t i = 0; i < groups; ++i) {
          if (group_c == 3 && added == 1) {  // a colour picture
            const std::uint64_t four = packed[0] | std::uint64_t{packed[1]} << 16 | std::uint64_t{packed[2]} << 32;
            std::memcpy(element, &four, sizeof four);
            element += 4;
            packed += 3;
            continue;
          }
          element = std::copy_n(packed, group_c, element);
          element = std::fill_n(element, added, std::uint16_t{0});
          packed += group_c;
        }
      }
      fill_elements(zero, (band.columns - end) * pixel, size, to + end * pixel * size);
    }
    return to;
  }

  const WindowKernel kernel_;
  const WindowLayout layout_;
  const Pieces pieces_;
  std::vector<std::int64_t> runs_;
};

/// Words of a run, padded to equal k-blocks.
std::int64_t padded_words(std::int64_t words, const WindowKernel& kernel) {
  return round_up(words, divide_up(words, kernel.block_words));
}

/// Channels of a group for which runs of `taps` taps are whole words and k-blocks, where that is needed.
std::int64_t whole_channels(std::int64_t group_c, std::int64_t taps, const WindowKernel& kernel) {
  const auto is_whole = [&](std::int64_t c) {
    return padded_words(divide_up(taps * c, kernel.word_k), kernel) * kernel.word_k == taps * c;
  };
  while (!kernel.reads_past_runs && !is_whole(group_c)) ++group_c;
  return group_c;
}

}  // namespace

WindowLayout::WindowLayout(const ConvProblem& p, const WindowKernel& kernel)
    : lanes(kernel.lanes),
      word_k(kernel.word_k),
      adjacent(p.groups == 1 && p.dilation_w == 1),
      group_c(whole_channels(p.group_c(), adjacent ? p.s : 1, kernel)),
      element_bytes(4 / word_k),
      x_bytes(static_cast<std::int64_t>(dtype_bytes(p.x_storage))),
      y_bytes(static_cast<std::int64_t>(dtype_bytes(p.storage))),
      run_elements(adjacent ? p.s * group_c : group_c),
      words(padded_words(divide_up(run_elements, word_k), kernel)),
      copies(p.padded() || group_c != p.group_c() || element_bytes != x_bytes || words * word_k != run_elements),
      window_w((p.s - 1) * p.dilation_w + 1),
      x_pixel(p.groups * group_c * element_bytes),
      over_read(4 * words - run_elements * element_bytes),
      correction_words(p.requantized ? round_up(p.k, 16) : 0),
      group_words(run_count(p) * words * round_up(p.group_k(), lanes)) {}

std::optional<std::string> WindowConv::refuse(const ConvProblem& p, const Target& target) const {
  const ConvProblem merged = with_merged_groups(p, kernel());
  const WindowLayout layout(merged, kernel());
  constexpr std::int64_t most_copied = 64 << 20;
  if (copy_bytes(merged, layout, Pieces(merged, layout, target.device)) > most_copied)
    return "a thread's copy of its input exceeds 64 MiB";
  return std::nullopt;
}

ConvCandidate WindowConv::candidate_of(const ConvProblem& stated, const Target& target, std::string_view config) const {
  const WindowKernel kernel = kernel_of(config);
  const ConvProblem p = with_merged_groups(stated, kernel);
  const WindowLayout layout(p, kernel);
  const std::int64_t line = windows_adjoin(p, layout) ? p.n * p.p * p.q : p.q, lines = p.n * p.p * p.q / line;
  const std::int64_t pixels = lines * round_up(line, kernel.tile_pixels);
  const std::int64_t filters = p.groups * round_up(p.group_k(), layout.lanes);
  const std::int64_t blocks = divide_up(layout.words, kernel.block_words);
  const std::int64_t words = layout.run_count(p) * blocks * round_up(layout.words / blocks, kernel.tile_words);
  const double products = static_cast<double>(pixels * filters) * static_cast<double>(words * layout.word_k);
  const double vectors = static_cast<double>(pixels * filters) / static_cast<double>(layout.lanes);
  ConvCandidate candidate;
  candidate.pitched = true;
  candidate.config = config;
  candidate.tolerance = tolerance(stated);
  candidate.estimated_us = 1 + 2 * products / (kernel.speed * target.device.fp32_flops_per_us) +
                           vectors * kernel.vector_us / target.device.units + p.bytes() / target.device.bytes_per_us;
  return candidate;
}

ConvAlgorithm::FilterForm WindowConv::filter_form(const ConvProblem& stated, std::string_view) const {
  const ConvProblem p = with_merged_groups(stated, kernel());
  const WindowLayout layout(p, kernel());
  return {.elements = layout.correction_words + p.groups * layout.group_words,
          .form = fmt::format("{} lanes of {}, {} words", layout.lanes, layout.word_k, layout.words),
          .element_bytes = sizeof(std::int32_t)};
}

void WindowConv::place_weights(const ConvProblem& stated, std::int32_t* words, const PlaceWeight& place) const {
  const ConvProblem p = with_merged_groups(stated, kernel());
  const WindowLayout layout(p, kernel());
  const std::int64_t taps = p.r * p.s, depth = layout.run_count(p) * layout.words, panel = 2 * layout.lanes;
  for (std::int64_t k = 0; k < p.k; ++k) {
    const std::int64_t in_group = k % p.group_k(), first = in_group / panel * panel;
    const std::int64_t width = p.group_k() - first <= layout.lanes ? layout.lanes : panel;
    std::int32_t* const column = words + k / p.group_k() * layout.group_words + first * depth + in_group - first;
    const std::int64_t first_c = k / stated.group_k() * stated.group_c() % p.group_c();
    for (std::int64_t c = first_c; c < first_c + stated.group_c(); ++c)
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        const std::int64_t run = layout.adjacent ? tap / p.s : tap,
                           i = layout.adjacent ? tap % p.s * layout.group_c + c : c;
        std::int32_t* const word = column + (run * layout.words + i / layout.word_k) * width;
        place(k, (c - first_c) * taps + tap,
              reinterpret_cast<std::byte*>(word) + i % layout.word_k * layout.element_bytes);
      }
  }
}

std::unique_ptr<const BoundKernel> WindowConv::bind_conv(const ConvProblem& p, std::string_view config,
                                                         const DeviceProfile& device) const {
  return std::make_unique<BoundWindows>(with_merged_groups(p, kernel()), kernel_of(config), device);
}

}  // namespace lenslet
