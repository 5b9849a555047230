#pragma once
// How rulebooks are made on the CPU. Sites arrive in the order of their keys, so that no table of them is needed: the
// sites that a tap leads to come in the same order, and walking both lists finds all pairs: memory is read in
// order, and pairs come out in theirs.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "ops/sparse/rulebook.h"

namespace lenslet {

/// What both builders are made for; everything is decided before the first run.
struct RulebookPlan {
  SparseGeometry geometry;
  SparseGrid grid;              ///< of the inputs
  std::int64_t max_inputs = 0;  ///< rows of the indices
  std::int64_t max_outputs = 0;
  std::int64_t max_pairs = 0;  ///< that the value has room for
  bool neighbours = false;     ///< with a table of them
};

/// Pairs of a submanifold convolution.
class SubmanifoldBuilder {
 public:
  explicit SubmanifoldBuilder(const RulebookPlan& plan);
  std::size_t workspace_bytes() const;
  /// `indices` [max_inputs, 1 + dims], `rulebook` rulebook_length(). Error(invalid_argument) as of read_sites(), and
  /// for more pairs than there is room for.
  void build(const std::int32_t* indices, std::int32_t* rulebook, std::span<std::byte> workspace,
             ThreadPool& pool) const;

 private:
  /// Taps that differ in x alone.
  struct Line {
    std::int64_t first_tap = 0, taps = 0;
    std::int64_t first_step = 0;  ///< key of the first tap's site less that of the output
  };
  std::int64_t pieces() const;
  void find(const Line& line, const std::int64_t* keys, std::int64_t count, std::int64_t begin, std::int64_t end,
            std::int32_t* in, std::int32_t* out, std::int32_t* counts) const;

  RulebookPlan plan_;
  PerAxis reach_;
  SiteKeys key_;
  std::vector<Line> lines_;
};

/// Output sites and pairs of a regular or transposed convolution.
class RegularBuilder {
 public:
  explicit RegularBuilder(const RulebookPlan& plan);
  std::size_t workspace_bytes() const;
  /// As SubmanifoldBuilder's; `out_indices` [max_outputs, 1 + dims], in the order of their keys, or null.
  /// Error(invalid_argument) also for more outputs than there is room for.
  void build(const std::int32_t* indices, std::int32_t* rulebook, std::int32_t* out_indices,
             std::span<std::byte> workspace, ThreadPool& pool) const;

 private:
  template <typename F>
  void for_each_pair(const std::int32_t* indices, std::int64_t begin, std::int64_t end, const F& f) const;
  std::int64_t pieces() const;

  RulebookPlan plan_;
  SparseGrid out_;
  SiteKeys key_;
};

/// -1 behind the pairs, in both lists.
void clear_rest(std::int32_t* rulebook, std::int64_t stored_taps, std::int64_t max_pairs, ThreadPool& pool);

}  // namespace lenslet
