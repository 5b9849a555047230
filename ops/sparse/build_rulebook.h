#pragma once
// Builds rulebooks on the CPU. Sites are sorted by key, so no hash table is needed: the target sites of a tap are
// sorted, too, and walking both lists finds all pairs in order, with sequential memory access.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "ops/sparse/rulebook.h"

namespace lenslet {

/// The parameters of both builders; all are fixed before the first run.
struct RulebookPlan {
  SparseGeometry geometry;
  SparseGrid grid;              ///< of the inputs
  std::int64_t max_inputs = 0;  ///< rows of the indices
  std::int64_t max_outputs = 0;
  std::int64_t max_pairs = 0;  ///< capacity of the value
  bool neighbours = false;     ///< with a table of them
};

/// Builds the pairs of a submanifold convolution.
class SubmanifoldBuilder {
 public:
  explicit SubmanifoldBuilder(const RulebookPlan& plan);
  std::size_t workspace_bytes() const;
  /// `indices` [max_inputs, 1 + dims], `rulebook` rulebook_length(). Error(invalid_argument) as from read_sites(), and
  /// for more pairs than the rulebook can hold.
  void build(const std::int32_t* indices, std::int32_t* rulebook, std::span<std::byte> workspace,
             ThreadPool& pool) const;

 private:
  /// Taps that differ only in x.
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

/// Builds output sites and pairs of a regular or transposed convolution.
class RegularBuilder {
 public:
  explicit RegularBuilder(const RulebookPlan& plan);
  std::size_t workspace_bytes() const;
  /// As SubmanifoldBuilder's; `out_indices` [max_outputs, 1 + dims], sorted by key, or null. Error(invalid_argument)
  /// also for more outputs than it can hold.
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

/// Fills both lists with -1 behind the pairs.
void clear_rest(std::int32_t* rulebook, std::int64_t stored_taps, std::int64_t max_pairs, ThreadPool& pool);

}  // namespace lenslet
