#include "runtime/exec/band_run.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>
#include <utility>

#include "base/time_stamps.h"

namespace lenslet {

namespace {

std::size_t round_up(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

/// The rows of a node's output held in a worker's strip.
struct BandRun::Strip {
  float* data = nullptr;
  std::int64_t row_floats = 0;
  std::int64_t image = {};
  Rows held;  ///< of the current image; empty at first

  /// Moves the strip to `wanted` and returns the rows still to compute. Rows already held are kept: the last rows of a
  /// piece are the first of the next.
  Rows make_place(std::int64_t for_image, Rows wanted) {
    const bool some = image == for_image && held.begin <= wanted.begin && wanted.begin < held.end;
    const Rows missing{some ? held.end : wanted.begin, wanted.end};
    if (some && held.begin < wanted.begin)
      std::memmove(data, data + (wanted.begin - held.begin) * row_floats,
                   static_cast<std::size_t>((held.end - wanted.begin) * row_floats) * sizeof(float));
    image = for_image;
    held = {wanted.begin, std::max(wanted.end, missing.begin)};
    return missing;
  }
  RowMemory<float> memory() const { return {data, held.begin, row_floats}; }
};

BandRun::BandRun(const Band& band, std::vector<std::shared_ptr<const BoundKernel>> kernels)
    : kernels_(std::move(kernels)), band_rows_(band.rows) {
  for (const auto& kernel : kernels_) rows_.push_back(kernel->row_kernel());
  worker_bytes_ = round_up(band.strips.size() * sizeof(Strip));
  for (std::size_t n = 0; n < band.strips.size(); ++n) {
    strip_offsets_.push_back(worker_bytes_);
    const std::int64_t floats = band.strips[n] * rows_[n]->y_shape().row_floats;
    worker_bytes_ += round_up(static_cast<std::size_t>(floats) * sizeof(float));
  }
}

void BandRun::run(std::span<const KernelRun> steps, std::span<std::byte> workspace, ThreadPool& pool) const {
  assert(workspace.size() >= workspace_bytes(pool.threads()));
  const auto strips_of = [&](int worker) {
    std::byte* const own = workspace.data() + static_cast<std::size_t>(worker) * worker_bytes_;
    return std::span(reinterpret_cast<Strip*>(own), strip_offsets_.size());
  };
  for (int worker = 0; worker < pool.threads(); ++worker)
    for (std::size_t n = 0; n < strip_offsets_.size(); ++n)
      new (&strips_of(worker)[n])
          Strip{reinterpret_cast<float*>(workspace.data() + static_cast<std::size_t>(worker) * worker_bytes_ +
                                         strip_offsets_[n]),
                rows_[n]->y_shape().row_floats,
                {},
                {}};

  TimeStamps* const stamps = TimeStamps::current();
  const int first_step = stamps == nullptr ? 0 : stamps->step();
  const RowShape y = rows_.back()->y_shape();
  const std::int64_t pieces = (y.rows + band_rows_ - 1) / band_rows_;
  pool.parallel_for(y.images * pieces, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i % pieces * band_rows_;
      const auto run_rows = [&](std::size_t n, const ImageRows& rows) {
        if (stamps == nullptr) return rows_[n]->run_rows(steps[n], rows);
        const double begin_us = stamps->now_us();
        rows_[n]->run_rows(steps[n], rows);
        stamps->add(worker, first_step + static_cast<int>(n), TimelineSpan::Kind::band, begin_us);
      };
      run_piece(steps, i / pieces, {row, std::min(row + band_rows_, y.rows)}, strips_of(worker), run_rows);
    }
  });
}

template <typename RunRows>
void BandRun::run_piece(std::span<const KernelRun> steps, std::int64_t image, Rows rows, std::span<Strip> strips,
                        const RunRows& run_rows) const {
  const auto compute = [&](const auto& self, std::size_t n, Rows wanted) -> void {
    const RowKernel& kernel = *rows_[n];
    ImageRows call{image, wanted, {}, {}};
    if (n == 0) {
      call.x = image_of(steps[0].in<float>(kernel.row_input()), kernel.x_shape(), image);
    } else {
      Strip& before = strips[n - 1];
      const Rows reads = kernel.reads(wanted);
      const Rows missing = reads.count() > 0 ? before.make_place(image, reads) : Rows();
      if (missing.count() > 0) self(self, n - 1, missing);
      const RowMemory<float> x = before.memory();
      call.x = {x.data, x.first, x.row_floats};
    }
    call.y = n == strips.size() ? image_of(steps[n].out<float>(), kernel.y_shape(), image) : strips[n].memory();
    run_rows(n, call);
  };
  compute(compute, strips.size(), rows);
}

}  // namespace lenslet
